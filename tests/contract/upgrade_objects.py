"""Nodes and pods with everything that this version writes on them, for readers of an earlier version.

Belongs here: objects whose annotations come from this version's own writers. Never: expectations.
"""

from typing import Any, Final

from accelshare.ledger.nouns import Resize, Slice
from accelshare.vendors.catalog import load
from accelshare.wire import assignment, inventory, resizing
from accelshare.wire.inventory import CardEntry, KindEntry

Object = dict[str, Any]
NOW_NS: Final = 1_794_891_483_000_000_000
_PROFILES: Final = {profile.name: profile for profile in load(())}


def _node(name: str, kinds: dict[str, KindEntry], capacity: dict[str, str], **notes: str) -> Object:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", **capacity}
    annotations = {inventory.KEY: inventory.write(kinds), **notes}
    return {"metadata": {"name": name, "annotations": annotations}, "status": {"capacity": amounts, "allocatable": amounts}}


def _pod(name: str, node: str, limits: dict[str, str], slices: tuple[Slice, ...] = (), **notes: str) -> Object:
    sizes = {(slice_.kind, slice_.index): 16 for slice_ in slices}
    annotations = assignment.write(slices, profiles=_PROFILES, sizes=sizes, now_ns=NOW_NS)
    container = {"name": "main", "image": "registry.example/none", "resources": {"limits": limits}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations | notes}
    return {"metadata": metadata, "spec": {"nodeName": node, "containers": [container]}, "status": {"phase": "Running"}}


def nodes() -> list[Object]:
    """One node by device plugins and one by the container runtime, with every field of an inventory in use."""
    gpus = [
        CardEntry(0, 16, "GPU-0", minor=0, model="A30", numa=1, enforced_by="driver", min_units=2),
        CardEntry(1, 16, "GPU-1", minor=1, model="A30", size_given=True, enforced_by="nobody"),
        CardEntry(2, 16, "GPU-2", healthy=False, minor=2, problem="/dev/nvidia2 is missing"),
    ]
    xpus = [CardEntry(0, 8064, "XPU-0", minor=0), CardEntry(1, 8064, "XPU-1", minor=1)]
    gcus = [CardEntry(index, 16, f"GCU-{index}", minor=index, model="T20", enforced_by="dmem") for index in range(3)]
    by_plugins = {
        "nvidia": KindEntry(gpus, "GiB", "device-plugin+nri", whole_by_others=True, slots={"GPU-1": 5}),
        "kunlun": KindEntry(xpus, "MiB", "device-plugin", delivers=False, problem="xpu_smi did not answer"),
    }
    moved = assignment.write_corrections({"uid-moved": assignment.text((Slice("nvidia", 1, 3, id="GPU-1"),))})
    return [
        _node(
            "by-plugins",
            by_plugins,
            {"aliyun.com/gpu-mem": "48", "aliyun.com/gpu-count": "3", "baidu.com/xpu-mem": "16128"},
            **{assignment.CORRECTED: moved or ""},
        ),
        _node(
            "by-runtime",
            {"enflame": KindEntry(gcus, "1", "nri", insists=True)},
            {"enflame.com/gcu-memory": "48", "enflame.com/gcu-count": "3"},
            **{resizing.APPLIED: resizing.applied_text({"uid-resized": Resize(6, 1)})},
        ),
    ]


def pods() -> list[Object]:
    gpu, gcu = "aliyun.com/gpu-mem", "enflame.com/gcu-memory"
    return [
        _pod("slice", "by-plugins", {gpu: "4"}, (Slice("nvidia", 0, 4, id="GPU-0"),)),
        _pod(
            "two-cards",
            "by-plugins",
            {gpu: "8"},
            (Slice("nvidia", 0, 4, id="GPU-0"), Slice("nvidia", 1, 4, id="GPU-1")),
            **{"accelshare.io/card-count": "2", "accelshare.io/enforcement": "preferred"},
        ),
        _pod("moved", "by-plugins", {gpu: "3"}, (Slice("nvidia", 1, 3, id="GPU-1"),)),
        _pod("xpu", "by-plugins", {"baidu.com/xpu-mem": "4500"}, (Slice("kunlun", 1, 4500, id="XPU-1"),)),
        _pod(
            "by-nri",
            "by-runtime",
            {gcu: "12"},
            (Slice("enflame", 1, 12, id="GCU-1"),),
            **assignment.require_plugin(["main"]),
        ),
        _pod("whole", "by-runtime", {"enflame.com/gcu": "1"}, (Slice("enflame", 2, whole=True, id="GCU-2"),)),
        _pod(
            "resized",
            "by-runtime",
            {gcu: "4"},
            (Slice("enflame", 0, 4, id="GCU-0"),),
            **{resizing.RESIZE: "6", resizing.GRANTED: resizing.granted_text(Resize(6, 1))},
        ),
    ]
