"""A pod whose runtime handler does not know the vendor's variables is refused, not run without a card."""

import json
from pathlib import Path
from typing import cast

import grpc
import msgspec.structs
import pytest

from accelshare.agent.device_plugin.allocator import AllocationError, Allocator
from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as api
from accelshare.agent.device_plugin.plugin import DevicePlugin
from accelshare.agent.device_plugin.pod_queue import PodQueue
from accelshare.agent.discovery.device_inventory import DeviceInventory, InventoryCard, VendorCards
from accelshare.agent.nri.protocol.nri_pb2 import Container, PodSandbox
from accelshare.agent.nri.protocol.plugin import Refuse
from accelshare.agent.nri.runtime_handlers import RuntimeHandlers
from accelshare.agent.pod_store import PodStore
from accelshare.agent.repairs import Repairs
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.nouns import Ask, Slice
from accelshare.runtimes.handlers import Handlers, handlers
from accelshare.runtimes.validator_status import Files
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import HostCard
from accelshare.vendors.profile import Profile
from accelshare.wire.node_pods import ContainerNeeds, NodePod
from accelshare.wire.pods import PodReader
from tests.unit.agent.builders import container_handler, mode, pod_store

NVIDIA = load()["nvidia"]
BESIDE_RUNC = Handlers("runc", {"runc": "runc", "gpu": "nvidia-container-runtime"})


def choosing(*strategy: str, **rules: object) -> Profile:
    return msgspec.structs.replace(NVIDIA, container=msgspec.structs.replace(NVIDIA.container, strategy=strategy, **rules))


def refusal(known: Handlers, handler: str, profile: Profile = NVIDIA) -> str:
    return RuntimeHandlers(lambda: known).refusal(profile, handler)


def test_the_default_handler_is_refused_where_another_one_gives_cards() -> None:
    problem = refusal(BESIDE_RUNC, "")
    assert "'runc', the default one" in problem
    assert "on this node gpu does" in problem
    assert "spec.runtimeClassName" in problem


@pytest.mark.parametrize(
    ("known", "handler"),
    [
        (BESIDE_RUNC, "gpu"),
        (Handlers("gpu", {"gpu": "nvidia-container-runtime"}), ""),
        (Handlers("nvidia", {"runc": "runc", "nvidia": ""}), ""),
        (Handlers("runc", {"runc": "runc"}), ""),  # cards may come by hooks or plugins that no file shows
        (Handlers(), ""),  # no file could be read
    ],
)
def test_a_handler_that_may_give_cards_is_not_refused(known: Handlers, handler: str) -> None:
    assert refusal(known, handler) == ""


def test_a_profile_may_require_a_handler_that_is_sure() -> None:
    sure = choosing("envvar", runtime_handler_required=True)
    assert "configure one of nvidia" in refusal(Handlers("runc", {"runc": "runc"}), "", sure)
    assert refusal(BESIDE_RUNC, "gpu", sure) == ""


@pytest.mark.parametrize("strategy", [("device-nodes",), ("cdi",), ("envvar", "device-nodes")])
def test_any_handler_gives_cards_that_need_no_vendor_runtime(strategy: tuple[str, ...]) -> None:
    assert refusal(BESIDE_RUNC, "", choosing(*strategy)) == ""


def test_the_files_are_read_again_after_a_while() -> None:
    known, now = BESIDE_RUNC, 0.0
    judge = RuntimeHandlers(lambda: known, clock=lambda: now)
    assert judge.refusal(NVIDIA, "")
    known = Handlers("gpu", BESIDE_RUNC.programs)
    assert judge.refusal(NVIDIA, "")
    now = 11.0
    assert judge.refusal(NVIDIA, "") == ""


CONTAINERD = """
version = {version}
[plugins.'{section}'.containerd]
default_runtime_name = 'runc'
[plugins.'{section}'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'{section}'.containerd.runtimes.nvidia.options]
BinaryName = '/usr/bin/nvidia-container-runtime'
"""


@pytest.mark.parametrize(("version", "section"), [(3, "io.containerd.cri.v1.runtime"), (2, "io.containerd.grpc.v1.cri")])
def test_containerds_handlers_are_read_in_both_versions_of_its_file(tmp_path: Path, version: int, section: str) -> None:
    config = tmp_path / "config.toml"
    config.write_text(CONTAINERD.format(version=version, section=section))
    read = handlers(Files(config, tmp_path / "none"))
    assert read == Handlers("runc", {"runc": "", "nvidia": "nvidia-container-runtime"})


def test_crios_handlers_are_read(tmp_path: Path) -> None:
    config = tmp_path / "crio.conf"
    handler = '[crio.runtime.runtimes.nvidia]\nruntime_path = "/opt/nvidia-container-runtime"\n'
    config.write_text('[crio.runtime]\ndefault_runtime = "crun"\n' + handler)
    read = handlers(Files(tmp_path / "none", config))
    assert read == Handlers("crun", {"nvidia": "nvidia-container-runtime"})


@pytest.mark.parametrize("text", ["no toml at all [", "plugins = 7", "[plugins.'io.containerd.cri.v1.runtime']\ncontainerd = 3"])
def test_a_file_without_handlers_is_no_reason_to_refuse(tmp_path: Path, text: str) -> None:
    config = tmp_path / "config.toml"
    config.write_text(text)
    assert refusal(handlers(Files(config, tmp_path / "none")), "") == ""


@pytest.fixture
def devices() -> DeviceInventory:
    devices = DeviceInventory()
    devices.put(VendorCards(NVIDIA, "GiB", 1024, {0: InventoryCard(HostCard(0, "GPU-0", 16384), 16)}))
    return devices


def pod(runtime_class: str = "") -> NodePod:
    seen = PodSeen("u", "default", "p", request=(Ask("nvidia", 2),), slices=(Slice("nvidia", 0, 2, False, "GPU-0"),))
    parts = (ContainerNeeds("main", (("nvidia", False, 2),)),)
    return NodePod(seen, parts, {}, "Pending", terminating=False, runtime_class=runtime_class)


@pytest.mark.parametrize(("name", "is_made"), [("", False), ("gpu", True), ("kata", False)])
def test_the_container_runtime_gets_the_reason_of_a_refused_container(devices: DeviceInventory, name: str, is_made: bool) -> None:
    judge = RuntimeHandlers(lambda: BESIDE_RUNC)
    handler = container_handler(devices, pod_store(pod()), wrong_handler=judge.refusal)
    sandbox = PodSandbox(id="box", name="p", uid="u", namespace="default", runtime_handler=name)
    if is_made:
        adjustment = handler.create_container(sandbox, Container(id="c", name="main"))
        assert {"NVIDIA_VISIBLE_DEVICES": "GPU-0"}.items() <= {one.key: one.value for one in adjustment.env}.items()
        return
    with pytest.raises(Refuse, match=r"default/p: runtime handler .* does not give containers cards of nvidia"):
        handler.create_container(sandbox, Container(id="c", name="main"))


@pytest.mark.parametrize(("runtime_class", "is_served"), [("", False), ("some-class", True)])
async def test_kubelet_gets_the_reason_why_a_pod_without_a_runtime_class_is_rejected(
    devices: DeviceInventory, runtime_class: str, is_served: bool
) -> None:
    """Which handler a RuntimeClass names is not known to the agent, so such a pod is served."""

    async def no_holdings() -> None:
        return None

    pod_queue = PodQueue(devices, PodStore(), arrival_s=0.01)
    allocator = Allocator(
        devices,
        pod_queue,
        no_holdings,
        mode=mode(),
        exists=lambda _: True,
        wrong_handler=RuntimeHandlers(lambda: BESIDE_RUNC).refusal,
    )
    pod_queue.pods.put(pod(runtime_class))
    ids = await allocator.prefer("nvidia", whole=False, available=["0-0", "0-1"], must=(), size=2)
    if is_served:
        assert (await allocator.allocate("nvidia", whole=False, device_ids=ids)).env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
        return
    with pytest.raises(AllocationError, match=r"runtime handler 'runc', the default one, .* cards of nvidia"):
        await allocator.allocate("nvidia", whole=False, device_ids=ids)


class AbortedError(Exception):
    pass


class Call:
    """The context of a gRPC call; it keeps the status code of the refusal."""

    code: grpc.StatusCode
    details: str

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.code, self.details = code, details
        raise AbortedError


@pytest.mark.parametrize(
    ("known", "profile", "pauses"),
    [
        (BESIDE_RUNC, NVIDIA, False),
        (Handlers("runc", {"runc": "runc"}), choosing("envvar", runtime_handler_required=True), True),
    ],
    ids=["the pod names no RuntimeClass", "the node has no such handler"],
)
async def test_a_pod_without_a_runtime_class_does_not_pause_its_node(known: Handlers, profile: Profile, pauses: bool) -> None:
    """A user could cause any number of such rejections. A node that can serve no pod is paused."""

    async def no_holdings() -> None:
        return None

    devices = DeviceInventory()
    devices.put(VendorCards(profile, "GiB", 1024, {0: InventoryCard(HostCard(0, "GPU-0", 16384), 16)}))
    judge = RuntimeHandlers(lambda: known)
    pod_queue = PodQueue(devices, PodStore(), arrival_s=0.01)
    allocator = Allocator(
        devices,
        pod_queue,
        no_holdings,
        mode=mode(),
        exists=lambda _: True,
        wrong_handler=judge.refusal,
        has_handler=judge.has_one,
    )
    pod_queue.pods.put(pod())
    plugin = DevicePlugin(
        "aliyun.com/gpu-mem",
        "nvidia",
        whole=False,
        allocator=allocator,
        devices=devices,
        repairs=cast("Repairs", None),
        on_stream=lambda: None,
    )
    request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(device_ids=["0-0", "0-1"])])
    call = Call()
    with pytest.raises(AbortedError):
        await plugin._allocate(request, call)
    code = "".join(word.title() for word in call.code.name.split("_"))  # as Go spells it
    status = {
        "phase": "Failed",
        "reason": "UnexpectedAdmissionError",
        "message": f"Allocate failed due to rpc error: code = {code} desc = {call.details}, which is unexpected",
    }
    limits = {"aliyun.com/gpu-mem": "2"}
    spec = {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": limits}}]}
    fact = PodReader(load()).decode(json.dumps({"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": status}).encode())
    assert isinstance(fact, PodSeen)
    assert fact.rejected is pauses
