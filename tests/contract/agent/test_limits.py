"""Limits on containers' cgroups: the real agent, with a fake library of a driver or fake cgroup files, and a fake runtime."""

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from accelshare.agent.nri.protocol.nri_pb2 import Container, Event, LinuxPodSandbox, PodSandbox
from accelshare.testing.fake_runtime import FakeContainer, FakeRuntime, RuntimeFeatures, RuntimeRefusalError
from accelshare.wire import assignment
from tests.contract.agent.fake_node import MEMORY, PROFILE, WHOLE, FakeNode
from tests.contract.agent.test_nri_delivery import CONTAINERD, Runtime, bind
from tests.fakes.build import build
from tests.fakes.hardware import Hardware

GIB = 2**30
NVML = """
[enforcement]
order = ["driver", "nobody"]
[enforcement.ways.driver]
set_by = "nvml"
min_mib = 1500
"""
DMEM = """
[enforcement]
order = ["kernel", "nobody"]
[enforcement.ways.kernel]
set_by = "dmem"
region = "fake/zpu{index}"
"""
UNVALIDATED = RuntimeFeatures(name="containerd", version="v2.4.2")


class Node:
    """A fake node whose runtime makes cgroups in a directory that stands for the host's tree."""

    def __init__(self, fake_node: FakeNode, hardware: Hardware, directory: Path, features: RuntimeFeatures) -> None:
        self.fake = fake_node
        self.hardware = hardware
        self.cgroups = directory / "cgroup"
        self.cgroups.mkdir()
        (self.cgroups / "cgroup.controllers").write_text("cpu memory\n")
        self.runtime = Runtime(fake_node, features)
        self.runtime.real = FakeRuntime(self.runtime.socket, features, cgroups=self.cgroups)
        self.has()

    def has(self, **changes: object) -> None:
        """The cards, with these changes of the first."""
        cards = [{"index": i, "minor": i, "uuid": f"zpu{i}", "memory_mib": 16384} for i in range(3)]
        self.hardware.has({**cards[0], **changes}, *cards[1:])

    def uses_driver(self) -> None:
        library = f'name = "nvidia"\nlibraries = ["{self.hardware.path("libnvidia-ml.so.1")}"]\ntools = ["/nowhere/smi"]'
        static = PROFILE.partition("[driver.static]")[0].replace('name = "static"', library)
        (self.fake.profiles / "acme.toml").write_text(static + NVML)

    def uses_kernel(self) -> None:
        (self.fake.profiles / "acme.toml").write_text(PROFILE + DMEM)
        (self.cgroups / "cgroup.controllers").write_text("cpu memory dmem\n")
        (self.cgroups / "cgroup.subtree_control").write_text("cpu memory dmem\n")
        (self.cgroups / "dmem.capacity").write_text(f"fake/zpu0 {16 * GIB}\nfake/zpu2 {16 * GIB}\n")
        (self.cgroups / "accelshare-probe").mkdir()
        (self.cgroups / "accelshare-probe/dmem.max").write_text("")  # the kernel would make it with the directory

    async def start_agent(self, *flags: str, delivery: str = "nri") -> None:
        await self.runtime.start_agent(f"--cgroup-root={self.cgroups}", *flags, delivery=delivery)

    async def kill_agent(self) -> None:
        assert self.fake.agent is not None
        self.fake.agent.kill()
        await self.runtime.real.until_plugins(0)

    async def create(self, name: str, container: str = "c0") -> FakeContainer:
        """Try again until it is not refused, as kubelet does."""
        made: list[FakeContainer] = []

        async def tried() -> bool:
            with contextlib.suppress(RuntimeRefusalError):
                made.append(await self.create_once(name, container))
            return bool(made)

        await self.fake.until(tried, f"{name}/{container} is created")
        return made[0]

    async def create_once(self, name: str, container: str = "c0", **annotations: str) -> FakeContainer:
        pod = self.runtime.sandbox(name, **annotations)
        parent = LinuxPodSandbox(cgroup_parent=f"/kubepods/pod{pod.uid}")
        with_group = PodSandbox()
        with_group.CopyFrom(pod)
        with_group.linux.CopyFrom(parent)
        self.runtime.real.run_pod(with_group)
        return await self.runtime.real.create_container(pod.id, Container(id=f"{name}-{container}", name=container))

    async def start(self, name: str, container: str = "c0") -> None:
        await self.runtime.real.start_container(f"{name}-{container}")

    def group(self, name: str, container: str = "c0") -> Path:
        return self.pod_group(name) / f"{name}-{container}"

    def pod_group(self, name: str) -> Path:
        return self.cgroups / f"kubepods/pod{self.fake.read(name)['metadata']['uid']}"

    def limits(self) -> dict[tuple[str, str], int]:
        """What the driver has: by card and cgroup, the hard limit."""
        lines = [line.split() for line in self.hardware.limits().splitlines()]
        assert all(soft == "0" for _, _, soft, _ in lines)
        return {(card, group): int(hard) for card, group, _, hard in lines}

    def ways(self) -> list[str]:
        return [card.enforced_by for card in self.fake.entry().cards]

    async def repairs(self, least: int) -> bool:
        return await self.fake.metric("accelshare_limit_repairs_total") >= least


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("nvidia", tmp_path_factory.mktemp("nvidia"))


@contextlib.asynccontextmanager
async def opened(fake_node: FakeNode, built: Path, tmp_path: Path, features: RuntimeFeatures) -> AsyncIterator[Node]:
    fake_node.cards(3)
    node = Node(fake_node, Hardware.copied(built, tmp_path / "hardware"), tmp_path, features)
    try:
        async with node.runtime.real:
            yield node
    finally:
        shutil.rmtree(node.runtime.directory)


@pytest.fixture(params=[CONTAINERD, UNVALIDATED], ids=["validator", "no-validator"])
async def node(fake_node: FakeNode, built: Path, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    async with opened(fake_node, built, tmp_path, request.param) as one:
        yield one


@pytest.fixture
async def validated(fake_node: FakeNode, built: Path, tmp_path: Path) -> AsyncIterator[Node]:
    async with opened(fake_node, built, tmp_path, CONTAINERD) as one:
        yield one


async def test_the_driver_limits_a_container_before_it_starts(fake_node: FakeNode, validated: Node) -> None:
    validated.uses_driver()
    await validated.start_agent()
    assert validated.ways() == ["driver"] * 3
    assert [card.min_units for card in fake_node.entry().cards] == [2] * 3
    assert await fake_node.metric('accelshare_agent_card_enforcement{card="0",node="n1",vendor="acme",way="driver"}') == 1
    assert Event.START_CONTAINER in validated.runtime.real.wanted[0]
    bind(fake_node, "a", {MEMORY: 4}, 1, units=4)
    made = await validated.create("a")
    assert validated.limits() == {
        ("zpu1", str(validated.pod_group("a"))): 4 * GIB
    }  # its cgroup is not there yet, that of the pod is
    assert made.container.annotations[assignment.LIMITED] == '{"zpu1":"driver"}'
    await validated.start("a")
    assert validated.limits()["zpu1", str(validated.group("a"))] == 4 * GIB


async def test_each_container_and_each_card_has_its_own_limit(fake_node: FakeNode, validated: Node) -> None:
    validated.uses_driver()
    await validated.start_agent()
    fake_node.pod("two", {MEMORY: 8}, {MEMORY: 4}, labels={"accelshare.io/card-count": "2"})
    fake_node.bind("two", 0, 2, units=6, more=assignment.require_plugin())
    for container in ("c0", "c1"):
        await validated.create("two", container)
        await validated.start("two", container)
    limits = validated.limits()
    for card in ("zpu0", "zpu2"):
        assert limits[card, str(validated.group("two", "c0"))] == 4 * GIB
        assert limits[card, str(validated.group("two", "c1"))] == 2 * GIB
        assert limits[card, str(validated.pod_group("two"))] == 6 * GIB
    assert len(limits) == 6


async def test_a_whole_card_has_no_limit(fake_node: FakeNode, validated: Node) -> None:
    validated.uses_driver()
    await validated.start_agent()
    bind(fake_node, "whole", {WHOLE: 1}, 0, whole=True)
    await validated.create("whole")
    await validated.start("whole")
    assert validated.limits() == {}


async def test_a_container_whose_limit_is_not_read_back_does_not_start(fake_node: FakeNode, validated: Node) -> None:
    validated.uses_driver()
    await validated.start_agent()
    bind(fake_node, "a", {MEMORY: 4}, 0, units=4)
    await validated.create("a")
    validated.has(limit_mib=16384)
    with pytest.raises(RuntimeRefusalError) as refusal:
        await validated.start("a")
    assert all(fact in str(refusal.value) for fact in ("container c0", "card 0 of acme", str(4 * GIB), str(16 * GIB)))
    with pytest.raises(RuntimeRefusalError, match=str(16 * GIB)):  # kubelet creates it again
        await validated.create_once("a")
    validated.has(set_limit=4)
    with pytest.raises(RuntimeRefusalError, match="nvmlDeviceSetMemoryLimits_v1 returned 4"):
        await validated.create_once("a")
    validated.has()
    await validated.create("a")
    await validated.start("a")
    assert validated.limits()["zpu0", str(validated.group("a"))] == 4 * GIB


async def test_a_hanging_driver_refuses_in_time_and_the_runtime_goes_on(fake_node: FakeNode, validated: Node) -> None:
    validated.uses_driver()
    await validated.start_agent()
    bind(fake_node, "a", {MEMORY: 4}, 0, units=4)
    await validated.create("a")
    cards = [{"index": i, "minor": i, "uuid": f"zpu{i}", "memory_mib": 16384} for i in range(3)]
    validated.hardware.has(*cards, hang="nvmlDeviceSetMemoryLimits_v1")
    with pytest.raises(RuntimeRefusalError, match="no answer within"):
        await validated.start("a")
    assert validated.runtime.real.plugins == ("10-accelshare",)


async def test_only_a_card_whose_limit_was_proven_has_one(fake_node: FakeNode, validated: Node) -> None:
    validated.uses_driver()
    validated.has(limit_mib=16384)
    await validated.start_agent()
    assert validated.ways() == ["nobody", "driver", "driver"]
    assert [card.min_units for card in fake_node.entry().cards] == [0, 2, 2]
    for name, card in (("a", 0), ("b", 1)):
        bind(fake_node, name, {MEMORY: 4}, card, units=4)
        await validated.create(name)
        await validated.start(name)
    assert {card for card, _ in validated.limits()} == {"zpu1"}
    assert "16384" not in str(validated.limits())


async def test_limits_are_set_again_after_a_restart_of_the_agent(fake_node: FakeNode, validated: Node) -> None:
    """The driver was loaded again while the agent was away, and another limit was changed by somebody."""
    validated.uses_driver()
    await validated.start_agent()
    for name, card in (("a", 0), ("b", 1), ("c", 2)):
        bind(fake_node, name, {MEMORY: 4}, card, units=4)
        await validated.create(name)
        await validated.start(name)
    before = validated.limits()
    await validated.kill_agent()
    kept = [("zpu0", str(validated.group("a")), 4 * GIB), ("zpu1", str(validated.group("b")), 16 * GIB)]
    file = validated.hardware.folder / "limits"
    file.write_text("".join(f"{card} {group} 0 {hard}\n" for card, group, hard in kept))
    await validated.start_agent()
    own = {key: hard for key, hard in before.items() if key[1].endswith("-c0")}
    await fake_node.until(lambda: own.items() <= validated.limits().items(), "all limits are set again")
    await fake_node.until(lambda: validated.repairs(2), "two repairs are counted")
    assert await fake_node.metric("accelshare_limit_repairs_total") == 2


async def test_a_limit_that_cannot_be_set_again_is_an_event_on_the_pod(fake_node: FakeNode, validated: Node) -> None:
    validated.uses_driver()
    await validated.start_agent()
    bind(fake_node, "a", {MEMORY: 4}, 0, units=4)
    await validated.create("a")
    await validated.start("a")
    await validated.kill_agent()
    (validated.hardware.folder / "limits").unlink()
    await validated.start_agent()
    await fake_node.until(lambda: validated.repairs(1), "it is repaired")
    (validated.hardware.folder / "limits").unlink()
    validated.has(set_limit=4)
    validated.runtime.real.cut()  # the agent checks all containers when the runtime connects again

    def reported() -> bool:
        events = [event.object for event in fake_node.api.store.list("events").versions]
        return any(event["reason"] == "AcceleratorNotLimited" and event["involvedObject"]["name"] == "a" for event in events)

    await fake_node.until(reported, "an event is on the pod")


async def test_no_container_runs_without_a_limit_if_the_agent_dies_between_create_and_start(
    fake_node: FakeNode, node: Node
) -> None:
    """Without an agent the runtime starts the container: the limit of its pod holds. The next agent sets the container's own."""
    node.uses_driver()
    await node.start_agent()
    bind(fake_node, "a", {MEMORY: 4}, 1, units=4)
    await node.create("a")
    await node.kill_agent()
    await node.start("a")
    assert node.limits() == {("zpu1", str(node.pod_group("a"))): 4 * GIB}
    await node.start_agent()
    await fake_node.until(lambda: ("zpu1", str(node.group("a"))) in node.limits(), "the container has its own limit")


async def test_the_next_agent_limits_a_container_that_it_did_not_create(fake_node: FakeNode, node: Node) -> None:
    node.uses_driver()
    await node.start_agent()
    for name, card in (("a", 1), ("b", 0)):
        bind(fake_node, name, {MEMORY: 4}, card, units=4)
        await node.create(name)
    await node.kill_agent()
    node.has(set_limit=4)
    await node.start_agent()
    await node.start("a")
    assert node.limits()["zpu1", str(node.group("a"))] == 4 * GIB
    # The other was created with a limit, and nobody can set it any more: kubelet creates it again.
    with pytest.raises(RuntimeRefusalError, match=r"container c0 of pod default/b .*zpu0 \(driver\)"):
        await node.start("b")


async def test_the_kernels_limit_is_in_the_answer_to_create(fake_node: FakeNode, validated: Node) -> None:
    validated.uses_kernel()
    await validated.start_agent()
    assert validated.ways() == ["kernel", "nobody", "kernel"]  # the kernel has no region of the second card
    bind(fake_node, "a", {MEMORY: 4}, 2, units=4)
    made = await validated.create("a")
    assert dict(made.container.linux.resources.unified) == {"dmem.max": f"fake/zpu2 {4 * GIB}"}
    assert (validated.group("a") / "dmem.max").read_text() == f"fake/zpu2 {4 * GIB}\n"
    await validated.start("a")
    fake_node.pod("two", {MEMORY: 4}, labels={"accelshare.io/card-count": "2"})
    fake_node.bind("two", 0, 2, units=2, more=assignment.require_plugin())
    made = await validated.create("two")
    assert dict(made.container.linux.resources.unified) == {"dmem.max": f"fake/zpu0 {2 * GIB}\nfake/zpu2 {2 * GIB}"}
    for name, limits, options in (("b", {MEMORY: 4}, {"units": 4}), ("whole", {WHOLE: 1}, {"whole": True})):
        bind(fake_node, name, limits, 1, **options)
        assert not (await validated.create(name)).container.linux.resources.unified
        fake_node.api.store.delete("pods", name, options={"gracePeriodSeconds": 0})


async def test_a_container_whose_cgroup_has_no_limit_of_the_kernel_does_not_start(fake_node: FakeNode, validated: Node) -> None:
    validated.uses_kernel()
    await validated.start_agent()
    bind(fake_node, "a", {MEMORY: 4}, 0, units=4)
    await validated.create("a")
    (validated.group("a") / "dmem.max").unlink()
    with pytest.raises(RuntimeRefusalError) as refusal:
        await validated.start("a")
    assert all(fact in str(refusal.value) for fact in ("container c0", "card 0 of acme", str(4 * GIB), "dmem.max"))


async def test_the_kernels_limit_is_written_again(fake_node: FakeNode, validated: Node) -> None:
    validated.uses_kernel()
    await validated.start_agent()
    bind(fake_node, "a", {MEMORY: 4}, 0, units=4)
    await validated.create("a")
    await validated.start("a")
    await validated.kill_agent()
    file = validated.group("a") / "dmem.max"
    file.write_text("fake/zpu0 max\n")
    await validated.start_agent()
    await fake_node.until(lambda: file.read_text().strip() == f"fake/zpu0 {4 * GIB}", "the limit is written again")
    await fake_node.until(lambda: validated.repairs(1), "the repair is counted")


@pytest.mark.parametrize("limited", [True, False])
async def test_annotations_of_a_user_hide_no_limit(fake_node: FakeNode, validated: Node, limited: bool) -> None:
    """Also not one of later: a card that nobody limits now may be limited after the next probe."""
    validated.uses_driver()
    await validated.start_agent(*([] if limited else ["--no-limits"]))
    bind(fake_node, "a", {MEMORY: 4}, 0, units=4)
    await validated.create("a")
    for key in (assignment.LIMITED, assignment.DELIVERED):
        with pytest.raises(RuntimeRefusalError, match=key):
            await validated.create_once("a", **{key: "{}"})


@pytest.mark.parametrize("why", ["cgroup-v1", "switched-off", "old-driver"])
async def test_nobody_holds_limits_where_they_cannot_be_set(fake_node: FakeNode, validated: Node, why: str) -> None:
    validated.uses_driver()
    if why == "cgroup-v1":
        (validated.cgroups / "cgroup.controllers").unlink()
        (validated.cgroups / "memory").mkdir()
    if why == "old-driver":
        shutil.copy(validated.hardware.path("libnvidia-ml-old.so"), validated.hardware.path("libnvidia-ml.so.1"))
    await validated.start_agent(*(["--no-limits"] if why == "switched-off" else []))
    assert validated.ways() == ["nobody"] * 3
    assert (Event.START_CONTAINER in validated.runtime.real.wanted[0]) is (why == "old-driver")
    reasons = {"cgroup-v1": "cgroup v2 is needed", "switched-off": "--no-limits", "old-driver": "nvmlDeviceSetMemoryLimits_v1"}
    assert fake_node.agent is not None
    assert reasons[why] in fake_node.agent.log.read_text()
    bind(fake_node, "a", {MEMORY: 4}, 0, units=4)
    made = await validated.create("a")
    assert assignment.LIMITED not in made.container.annotations
    await validated.start("a")
    assert validated.limits() == {}


async def test_device_plugins_cannot_set_limits_on_cgroups(fake_node: FakeNode, validated: Node) -> None:
    validated.uses_driver()
    async with fake_node.kubelet():
        await validated.start_agent(delivery="device-plugin")
        assert validated.ways() == ["nobody"] * 3
        assert fake_node.agent is not None
        assert "delivery through NRI is needed" in fake_node.agent.log.read_text()
