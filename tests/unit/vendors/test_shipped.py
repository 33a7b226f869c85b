"""The shipped profiles match the vendors' own systems: the table of facts, value by value."""

import re
from pathlib import Path
from typing import Any

import pytest

import accelshare
from accelshare.ledger.refusals import Reason
from accelshare.vendors.catalog import load, read_layers
from accelshare.vendors.layers import survey
from accelshare.vendors.profile import Profile

CATALOG = load()

ALL = ("nvidia", "kunlun", "enflame", "stream")
NEW = ("amd", "intel", "mthreads", "ascend")  # never run on hardware by us
FACTS: list[tuple[str, tuple[Any, Any, Any, Any]]] = [
    ("noun", ("GPU", "XPU", "GCU", "NPU")),
    ("resources.memory", ("aliyun.com/gpu-mem", "baidu.com/xpu-mem", "enflame.com/gcu-memory", None)),
    ("resources.count", ("aliyun.com/gpu-count", "baidu.com/xpu-count", "enflame.com/gcu-count", None)),
    ("resources.whole", ("nvidia.com/gpu", "baidu.com/xpu", "enflame.com/gcu", "streamcomputing.com/npu")),
    ("request.cards_label", (None, "baidu.com/xpu-count", None, None)),
    ("request.max_cards", (64, 64, 64, 64)),
    ("request.max_whole_cards", (None, None, None, 1)),
    ("node_label", (("gpushare", "true"), ("xpushare", "true"), ("enflame.com/gcushare", "true"), None)),
    ("unit.default", ("GiB", "MiB", "1", "MiB")),
    (
        "unit.mib",
        ({"GiB": 1024, "MiB": 1}, {"MiB": 1}, {"1": 1024, "0.1": 102.4, "0.01": 10.24, "0.001": 1.024}, {"MiB": 1}),
    ),
    ("annotations.index", ("ALIYUN_COM_GPU_MEM_IDX", "BAIDU_COM_XPU_MEM_IDX", "enflame.com/gcu-device-id", None)),
    ("annotations.card_size", ("ALIYUN_COM_GPU_MEM_DEV", "BAIDU_COM_XPU_MEM_DEV", "enflame.com/gcu-device-memory", None)),
    ("annotations.pod_units", ("ALIYUN_COM_GPU_MEM_POD", "BAIDU_COM_XPU_MEM_POD", "enflame.com/gcu-device-memory-request", None)),
    (
        "annotations.assigned",
        ("ALIYUN_COM_GPU_MEM_ASSIGNED", "BAIDU_COM_XPU_MEM_ASSIGNED", "enflame.com/gcu-device-assigned", None),
    ),
    (
        "annotations.assign_time",
        ("ALIYUN_COM_GPU_MEM_ASSUME_TIME", "BAIDU_COM_XPU_MEM_ASSUME_TIME", "enflame.com/gcu-device-assign-time", None),
    ),
    ("http.prefix", ("/gpushare-scheduler", "/xpushare-scheduler", "/gcushare-scheduler", None)),
    ("http.node_port", (32766, 31868, 32766, None)),
    ("inspect.command", ("gpushare", "xpushare", "gcushare", None)),
    ("inspect.total", ("totalGPU", "totalXPU", "totalGCU", "totalNPU")),
    ("inspect.used", ("usedGPU", "usedXPU", "usedGCU", "usedNPU")),
    ("inspect.available", (None, None, "availableGCU", "availableNPU")),
    ("inspect.cards", ("devs", "devs", "devices", "devices")),
    ("inspect.pod_uid", (False, False, True, True)),
    ("inspect.pod_created", (False, False, True, True)),
    ("unhealthy.name", ("unhealthy-gpu-{node}", "unhealthy-xpu-{node}", "unhealthy-gcu-{node}", None)),
    ("unhealthy.key", ("gpus", "xpus", "gcus", None)),
    ("unhealthy.namespace", ("kube-system", "kube-system", "kube-system", None)),
    (
        "hardware.device_nodes",
        (
            ("/dev/nvidia{minor}",),
            ("/dev/xpu{minor}",),
            ("/dev/gcu{minor}",),
            ("/dev/stc{index}", *(f"/dev/stc{{index}}c{cluster}" for cluster in range(4)), "/dev/stc{index}ctrl"),
        ),
    ),
    (
        "hardware.shared_device_nodes",
        (
            ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"),
            ("/dev/xpuctrl",),
            ("/dev/gcuctl",),
            (),
        ),
    ),
    (
        "container.env",
        (
            {
                "ALIYUN_COM_GPU_MEM_IDX": "{index}",
                "ALIYUN_COM_GPU_MEM_POD": "{pod_units}",
                "ALIYUN_COM_GPU_MEM_CONTAINER": "{units}",
                "ALIYUN_COM_GPU_MEM_DEV": "{card_units}",
            },
            {},
            {},
            {},
        ),
    ),
    (
        "container.envvar",
        (
            {"NVIDIA_VISIBLE_DEVICES": "{id}"},
            {"CXPU_VISIBLE_DEVICES": "{index}"},
            {"ENFLAME_VISIBLE_DEVICES": "{minor}"},
            {},
        ),
    ),
    ("container.strategy", (("envvar",), ("envvar", "device-nodes"), ("envvar", "device-nodes"), ("envvar", "device-nodes"))),
    ("container.node_label_env", ({"cgpu.disable.isolation=true": "CGPU_DISABLE=true"}, {}, {}, {})),
    ("driver.name", ("nvidia", "kunlun", "enflame", "stream")),
    ("enforcement.order", (("nvml", "toolkit", "nobody"), ("runtime", "nobody"), ("nobody",), ("nobody",))),
]


def value(profile: Profile, key: str) -> object:
    found: object = profile
    for name in key.split("."):
        found = getattr(found, name) if found is not None else None
    return found


def test_the_vendors_are_shipped() -> None:
    assert [profile.name for profile in CATALOG] == sorted((*ALL, *NEW))


def test_shipped_profiles_have_no_problems_and_are_the_same_without_checks() -> None:
    """Commands read shipped files without checking them again: it would take 12 ms of every `inspect`."""
    layers, unread = read_layers(())
    found = survey(layers)
    assert (unread, found.problems) == ([], ())
    assert found.profiles == tuple(CATALOG)
    assert all(source.base is None for layer in layers for source in layer)


@pytest.mark.parametrize(("name", "key", "fact"), [(name, key, row[at]) for key, row in FACTS for at, name in enumerate(ALL)])
def test_the_profile_matches_the_vendors_documents(name: str, key: str, fact: object) -> None:
    assert value(CATALOG[name], key) == fact


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nvidia", "Insufficient GPU Memory in one device"),
        ("kunlun", "Insufficient XPU Memory in one device"),
        ("enflame", "insufficient GCU Memory in one gcu device"),
    ],
)
def test_full_and_small_cards_are_refused_with_the_vendors_text(name: str, text: str) -> None:
    """Their systems make no difference, and their users search for this text."""
    assert CATALOG[name].text(Reason.NO_CARD_HAS_ROOM) == text
    assert CATALOG[name].text(Reason.LARGER_THAN_ANY_CARD) == text


def test_more_than_one_npu_is_refused_by_name() -> None:
    assert CATALOG["stream"].text(Reason.TOO_MANY_WHOLE_CARDS) == "at most one streamcomputing.com/npu may be requested"


def test_the_label_for_several_xpus_is_named_when_it_is_wrong() -> None:
    kunlun = CATALOG["kunlun"]
    assert kunlun.text(Reason.CARD_COUNT_UNREADABLE) == "label baidu.com/xpu-count must be a whole number from 1 to 64"
    assert (
        kunlun.text(Reason.CARD_COUNT_LEAVES_REMAINDER)
        == "baidu.com/xpu-mem does not divide equally by the number of requested cards"
    )


@pytest.mark.parametrize("name", [*ALL, *NEW])
@pytest.mark.parametrize("reason", Reason)
def test_every_refusal_fits_an_event(name: str, reason: Reason) -> None:
    text = CATALOG[name].text(reason)
    assert 0 < len(text) <= 120
    assert not text.endswith(".")


@pytest.mark.parametrize(
    ("name", "doubts"),
    [
        ("nvidia", {"enforcement.ways.nvml", "enforcement.ways.toolkit", "enforcement.ways.mps"}),
        (
            "kunlun",
            {
                "resources.count",
                *(f"annotations.{key}" for key in ("index", "card_size", "pod_units", "assigned", "assign_time")),
                *(f"inspect.{key}" for key in ("total", "used", "cards")),
                *(f"texts.{word}" for word in ("no-card-has-room", "larger-than-any-card")),
                *(f"unhealthy.{key}" for key in ("namespace", "name", "key")),
                *(f"driver.processes.{key}" for key in ("command", "pattern")),
                "container.envvar.CXPU_VISIBLE_DEVICES",
                "container.none.CXPU_VISIBLE_DEVICES",
                "container.other_resources",
                "enforcement.ways.runtime",
            },
        ),
        (
            "enflame",
            {
                *("unit.mib.0.01", "unit.mib.0.001", "unhealthy.namespace", "unhealthy.name", "unhealthy.key"),
                *("container.none.ENFLAME_VISIBLE_DEVICES", "container.other_resources"),
            },
        ),
        ("stream", {"container.envvar", *(f"inspect.{key}" for key in ("total", "used", "available", "cards"))}),
    ],
)
def test_unconfirmed_values_are_marked(name: str, doubts: set[str]) -> None:
    assert set(CATALOG[name].unverified) == doubts


def test_a_card_of_16_gb_has_the_units_its_vendor_counts() -> None:
    """16 units at "1" and 160 at "0.1", as the vendor's guide shows."""
    unit = CATALOG["enflame"].unit
    assert [round(16 * 1024 / unit.mib[name]) for name in ("1", "0.1", "0.01", "0.001")] == [16, 160, 1600, 16000]
    assert [unit.label(name) for name in unit.mib] == ["GB", "0.1 GB", "0.01 GB", "0.001 GB"]


@pytest.mark.parametrize(
    ("name", "way", "env"),
    [
        ("nvidia", "toolkit", {"NVIDIA_GPU_MEMORY_REQUEST": "0", "NVIDIA_GPU_MEMORY_LIMIT": "{share_mib}"}),
        (
            "nvidia",
            "mps",
            {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "{ordinal}={share_mib}M", "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"},
        ),
        ("kunlun", "runtime", {"CXPU_CONTAINER_MEMORY_LIMIT": "{bytes}"}),
        ("mthreads", "sgpu", {"MTHREADS_QOS_MEMORY_LIMIT": "{share_bytes}"}),
        ("ascend", "vnpu", {"ASCEND_VNPU_SPECS": "{shape}"}),
    ],
)
def test_a_limit_is_set_in_the_vendors_variables(name: str, way: str, env: dict[str, str]) -> None:
    assert CATALOG[name].enforcement.ways[way].env == env


@pytest.mark.parametrize("name", [*ALL, *NEW])
def test_no_enforcement_way_is_used_without_a_probe(name: str) -> None:
    """An old runtime silently ignores the variables, so every such way has a requirement. Limits on a cgroup are proven."""
    assert all(way.requires or way.on_cgroup for way in CATALOG[name].enforcement.ways.values())


def test_nothing_is_preloaded_into_a_container() -> None:
    """Preloaded libraries break programs, so no profile and no code of ours gives a container one."""
    package = Path(accelshare.__file__).parent
    files = [*package.glob("agent/**/*.py"), *package.glob("vendors/**/*.py"), *package.glob("vendors/profiles/*.toml")]
    assert len(files) > 60
    names = re.compile(r"LD_PRELOAD|LD_AUDIT|LD_LIBRARY_PATH|ld\.so")
    assert [file.name for file in files if names.search(file.read_text())] == []


def test_a_share_smaller_than_a_cuda_context_is_not_possible() -> None:
    ways = CATALOG["nvidia"].enforcement.ways
    assert (ways["nvml"].min_mib, ways["toolkit"].min_mib) == (1024, 1024)


NEW_FACTS: list[tuple[str, tuple[Any, Any, Any, Any]]] = [
    ("noun", ("GPU", "GPU", "GPU", "NPU")),
    (
        "resources.memory",
        ("amd.com/gpu-memory", "gpu.intel.com/xe-memory", "mthreads.com/sgpu-memory", "huawei.com/Ascend910B3-memory"),
    ),
    ("resources.whole", ("amd.com/gpu", "gpu.intel.com/xe", "mthreads.com/gpu", "huawei.com/Ascend910B3")),
    ("unit.mib", ({"MiB": 1, "GiB": 1024}, {"MiB": 1, "GiB": 1024}, {"512MiB": 512}, {"MiB": 1})),
    ("request.max_cards", (64, 64, 1, 1)),
    ("driver.name", ("static",) * 4),
    ("container.strategy", (("device-nodes",), ("device-nodes",), ("envvar",), ("envvar",))),
    ("container.envvar", ({}, {}, {"MTHREADS_VISIBLE_DEVICES": "{index}"}, {"ASCEND_VISIBLE_DEVICES": "{index}"})),
]


@pytest.mark.parametrize(("name", "key", "fact"), [(name, key, row[at]) for key, row in NEW_FACTS for at, name in enumerate(NEW)])
def test_the_new_profiles_have_the_names_of_the_field(name: str, key: str, fact: object) -> None:
    assert value(CATALOG[name], key) == fact


@pytest.mark.parametrize("name", NEW)
def test_everything_about_hardware_that_nobody_has_tried_is_marked(name: str) -> None:
    """Whoever runs it on hardware removes the marks."""
    profile = CATALOG[name]
    marked = set(profile.unverified)
    assert profile.driver is not None
    assert profile.driver.static is not None
    sources = {"sysfs": profile.driver.static.sysfs, "json": profile.driver.static.json}
    used = {
        f"driver.static.{source}.{key}"
        for source, rules in sources.items()
        if rules is not None
        for key in rules.__struct_fields__
        if getattr(rules, key) and key != "memory_unit"
    }
    used |= {f"driver.static.{key}" for key in ("command", "block_pattern") if getattr(profile.driver.static, key)}
    used |= {f"enforcement.ways.{way}" for way in profile.enforcement.ways}
    used |= {"hardware.device_nodes"} | ({"request.shapes"} if profile.request.shapes else set())
    assert used <= marked


def test_shapes_are_the_vendors_templates() -> None:
    ascend = [(shape.name, shape.mib) for shape in CATALOG["ascend"].request.shapes]
    assert ascend == [("vir05_1c_16g", 16384), ("vir10_3c_32g", 32768)]
    assert [shape.mib for shape in CATALOG["mthreads"].request.shapes] == [512 * 2**step for step in range(8)]
