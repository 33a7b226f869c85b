"""The agent as the container runtime's plugin: cards, refusals, and restarts of agent and runtime."""

import asyncio
import contextlib
import json
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from accelshare.agent.nri.protocol.connection import serve
from accelshare.agent.nri.protocol.messages import adjustment
from accelshare.agent.nri.protocol.nri_pb2 import (
    Container,
    ContainerAdjustment,
    Event,
    LinuxContainer,
    LinuxDevice,
    LinuxDeviceCgroup,
    LinuxResources,
    PodSandbox,
)
from accelshare.testing.fake_kubelet import Admitted, FakeKubelet
from accelshare.testing.fake_runtime import FakeContainer, FakeRuntime, RuntimeFeatures, RuntimeRefusalError
from accelshare.wire import assignment
from tests.contract.agent.fake_node import COUNT, MEMORY, NODE, WHOLE, FakeNode

CONTAINERD = RuntimeFeatures(name="containerd", version="v2.4.2", validator=True)


class Runtime:
    """The fake runtime beside a fake node: it runs pods as kubelet would."""

    def __init__(self, fake_node: FakeNode, features: RuntimeFeatures) -> None:
        self.fake_node = fake_node
        self.directory = Path(tempfile.mkdtemp(prefix="n-"))
        self.socket = self.directory / "nri.sock"
        self.config = self.directory / "config.toml"
        enable = "true" if features.validator else "false"
        self.config.write_text(f'[plugins."io.containerd.nri.v1.nri".default_validator]\nenable = {enable}\n')
        self.real = FakeRuntime(self.socket, features)

    @property
    def flags(self) -> list[str]:
        return [f"--nri-socket={self.socket}", f"--containerd-config={self.config}"]

    async def start_agent(self, *flags: str, delivery: str = "nri") -> None:
        await self.fake_node.start_agent(*self.flags, f"--delivery={delivery}", *flags)

    def sandbox(self, name: str, **annotations: str) -> PodSandbox:
        metadata = self.fake_node.read(name)["metadata"]
        pod = PodSandbox(
            id=f"box-{metadata['uid']}",
            name=name,
            uid=metadata["uid"],
            namespace="default",
            annotations={**(metadata.get("annotations") or {}), **annotations},
        )
        self.real.run_pod(pod)
        return pod

    async def create(self, name: str, container: str = "c0", **more: Any) -> FakeContainer:
        pod = self.sandbox(name)
        return await self.real.create_container(pod.id, Container(id=f"{name}-{container}", name=container, **more))

    async def refused(self, name: str, container: str = "c0") -> str:
        with pytest.raises(RuntimeRefusalError) as refusal:
            await self.create(name, container)
        return str(refusal.value)

    async def created(self, name: str, container: str = "c0", **more: Any) -> FakeContainer:
        """Try again until it is not refused, as kubelet does."""
        made: list[FakeContainer] = []

        async def tried() -> bool:
            with contextlib.suppress(RuntimeRefusalError):
                made.append(await self.create(name, container, **more))
            return bool(made)

        await self.fake_node.until(tried, f"{name}/{container} is created")
        return made[0]


@contextlib.asynccontextmanager
async def open_runtime(fake_node: FakeNode, features: RuntimeFeatures) -> AsyncIterator[Runtime]:
    runtime = Runtime(fake_node, features)
    try:
        async with runtime.real:
            yield runtime
    finally:
        shutil.rmtree(runtime.directory)


@pytest.fixture
async def runtime(fake_node: FakeNode) -> AsyncIterator[Runtime]:
    fake_node.cards(4)
    async with open_runtime(fake_node, CONTAINERD) as opened:
        yield opened


def bind(fake_node: FakeNode, name: str, limits: Mapping[str, int], *cards: int, units: int = 0, whole: bool = False) -> None:
    fake_node.pod(name, limits)
    fake_node.bind(name, *cards, units=units, whole=whole, more=assignment.require_plugin())


def devices(made: FakeContainer) -> list[str]:
    return sorted(device.path for device in made.devices)


async def test_auto_selects_nri_where_the_runtime_validates(fake_node: FakeNode, runtime: Runtime) -> None:
    await runtime.start_agent(delivery="auto")
    entry = fake_node.entry()
    assert (entry.delivery, entry.insists) == ("nri", True)
    amounts = {MEMORY: "64", WHOLE: "4", COUNT: "4"}
    await fake_node.until(lambda: amounts.items() <= fake_node.capacity().items(), "all amounts are on the node")
    assert await fake_node.metric("accelshare_runtime_insists") == 1
    bind(fake_node, "a", {MEMORY: 4}, 2, units=4)
    made = await runtime.created("a")
    assert made.environment == {"ZPU_VISIBLE": "2", "ZPU_UNITS": "4"}
    assert devices(made) == ["/dev/zpu2"]
    flag = "acme.example/assigned"
    await fake_node.until(lambda: fake_node.read("a")["metadata"]["annotations"][flag] == "true", "the pod is marked as assigned")


async def test_equal_pods_created_in_any_order_each_get_their_own_card(fake_node: FakeNode, runtime: Runtime) -> None:
    await runtime.start_agent()
    wanted = {f"p{number}": number % 4 for number in range(64)}
    for name, card in wanted.items():
        bind(fake_node, name, {MEMORY: 1}, card, units=1)
    for name in sorted(wanted, key=hash):
        assert devices(await runtime.created(name)) == [f"/dev/zpu{wanted[name]}"]


async def test_each_container_gets_what_it_requests(fake_node: FakeNode, runtime: Runtime) -> None:
    await runtime.start_agent()
    inits = [fake_node.container("init", {MEMORY: 2})]
    fake_node.pod("many", {MEMORY: 3}, {}, {MEMORY: 5}, inits=inits)
    fake_node.bind("many", 1, units=8)
    env = {name: (await runtime.created("many", name)).environment for name in ("init", "c0", "c1", "c2")}
    assert {name: found.get("ZPU_UNITS") for name, found in env.items()} == {"init": "2", "c0": "3", "c1": None, "c2": "5"}
    assert env["c1"] == {}
    fake_node.pod("two", {MEMORY: 8}, labels={"accelshare.io/card-count": "2"})
    fake_node.bind("two", 2, 3, units=4)
    assert devices(await runtime.created("two")) == ["/dev/zpu2", "/dev/zpu3"]
    bind(fake_node, "whole", {WHOLE: 1}, 0, whole=True)
    made = await runtime.created("whole")
    assert (devices(made), made.environment["ZPU_UNITS"]) == (["/dev/zpu0"], "16")


async def test_our_variables_replace_those_of_a_user(fake_node: FakeNode, runtime: Runtime) -> None:
    await runtime.start_agent()
    bind(fake_node, "a", {MEMORY: 4}, 1, units=4)
    made = await runtime.created("a", env=("ZPU_VISIBLE=0,1,2,3", "OTHER=kept"))
    assert made.environment == {"ZPU_VISIBLE": "1", "OTHER": "kept", "ZPU_UNITS": "4"}
    assert devices(made) == ["/dev/zpu1"]


async def test_forged_records_are_refused(fake_node: FakeNode, runtime: Runtime) -> None:
    """A pod that names its node itself has no card; nor has a pod that is recorded on a card without free capacity."""
    await runtime.start_agent()
    record = json.dumps({"acme": [{"index": 1, "id": "zpu1", "units": 4}]})
    spec = {"containers": [fake_node.container("c0", {MEMORY: 4})], "nodeName": NODE}
    metadata = {"name": "forged", "annotations": {assignment.OURS: record}}
    fake_node.api.store.create("pods", {"metadata": metadata, "spec": spec}, namespace="default")
    await fake_node.until(lambda: _says(runtime, "forged", "names its node itself"), "a clear refusal")
    # A pod that asks for nothing gets nothing, however much it claims.
    spec = {"containers": [fake_node.container("c0", {})], "nodeName": NODE}
    metadata = {"name": "claims", "annotations": {assignment.OURS: record}}
    fake_node.api.store.create("pods", {"metadata": metadata, "spec": spec}, namespace="default")
    assert (await runtime.created("claims")).environment == {}
    bind(fake_node, "full", {MEMORY: 14}, 1, units=14)
    await runtime.created("full")
    bind(fake_node, "late", {MEMORY: 4}, 1, units=4)
    await fake_node.until(lambda: _says(runtime, "late", "2 of 16 left"), "no room")
    bind(fake_node, "alone", {WHOLE: 1}, 1, whole=True)
    await fake_node.until(lambda: _says(runtime, "alone", "default/full"), "not alone")
    bind(fake_node, "far", {MEMORY: 4}, 9, units=4)
    await fake_node.until(lambda: _says(runtime, "far", "names no card"), "no such card")
    await fake_node.until(lambda: _counted(fake_node, "refused", 4), "four refusals are counted")


async def _counted(fake_node: FakeNode, outcome: str, least: int) -> bool:
    return await fake_node.metric(f'accelshare_deliveries_total{{outcome="{outcome}"}}') >= least


async def _says(runtime: Runtime, name: str, words: str) -> bool:
    return words in await runtime.refused(name)


async def test_while_the_agent_is_away_containers_with_cards_are_refused(fake_node: FakeNode, runtime: Runtime) -> None:
    await runtime.start_agent()
    assert fake_node.agent is not None
    fake_node.agent.kill()
    await runtime.real.until_plugins(0)
    bind(fake_node, "a", {MEMORY: 4}, 3, units=4)
    assert 'required plugin "accelshare" not present' in await runtime.refused("a")
    await runtime.start_agent()
    assert devices(await runtime.created("a")) == ["/dev/zpu3"]


async def test_the_next_agent_flags_a_served_pod_as_assigned(fake_node: FakeNode, runtime: Runtime) -> None:
    """Its agent died after its container got the card; the next agent sees the container and writes the flag."""
    await runtime.start_agent()
    bind(fake_node, "a", {MEMORY: 4}, 2, units=4)
    await runtime.created("a")
    flag = "acme.example/assigned"
    await fake_node.until(lambda: fake_node.read("a")["metadata"]["annotations"][flag] == "true", "the pod is marked as assigned")
    assert fake_node.agent is not None
    fake_node.agent.kill()
    await runtime.real.until_plugins(0)
    fake_node.api.store.patch("pods", "a", {"metadata": {"annotations": {flag: "false"}}})  # as if it had died a moment sooner
    bind(fake_node, "b", {MEMORY: 4}, 2, units=4)  # and this one had no container yet
    await runtime.start_agent()
    await fake_node.until(lambda: fake_node.read("a")["metadata"]["annotations"][flag] == "true", "it is marked again")
    assert fake_node.read("b")["metadata"]["annotations"][flag] == "false"


async def test_a_container_created_without_its_card_is_refused_or_its_pod_replaced(fake_node: FakeNode) -> None:
    """Without the validator a container created in our absence has no card: it may not start, or its pod is replaced."""
    fake_node.cards(2)
    async with open_runtime(fake_node, RuntimeFeatures(name="containerd", version="v2.4.2")) as runtime:
        for name in ("made", "runs"):
            bind(fake_node, name, {MEMORY: 4}, 1, units=4)
            assert (await runtime.create(name)).environment == {}
        await runtime.real.start_container("runs-c0")
        await runtime.start_agent()
        with pytest.raises(RuntimeRefusalError, match=r"container c0 of pod default/\S+ .*without its card"):
            await runtime.real.start_container("made-c0")

        def replaced() -> bool:
            return all("deletionTimestamp" in fake_node.read(name)["metadata"] for name in ("made", "runs"))

        await fake_node.until(replaced, "the pods are on their way out")
        await fake_node.until(lambda: _counted(fake_node, "replaced", 2), "two replacements are counted")
        assert not fake_node.entry().insists


@pytest.mark.parametrize(
    ("features", "wanted"),
    [
        (CONTAINERD, {Event.CREATE_CONTAINER, Event.VALIDATE_CONTAINER_ADJUSTMENT}),
        (
            RuntimeFeatures(name="containerd", version="v2.4.2"),
            {Event.CREATE_CONTAINER, Event.VALIDATE_CONTAINER_ADJUSTMENT, Event.START_CONTAINER},
        ),
        (
            RuntimeFeatures(name="containerd", version="v2.1.5", asks_validators=False),
            {Event.CREATE_CONTAINER, Event.START_CONTAINER},
        ),
    ],
    ids=["insists", "does-not-insist", "too-old"],
)
async def test_the_events_that_the_agent_subscribes_to_depend_on_the_runtime(
    fake_node: FakeNode, features: RuntimeFeatures, wanted: set[int]
) -> None:
    """Validation wherever the runtime has it; starts only where a container may have been created without us."""
    fake_node.cards(1)
    async with open_runtime(fake_node, features) as runtime:
        await runtime.start_agent()
        assert runtime.real.wanted == (wanted,)


async def test_without_a_validator_device_plugins_deliver_and_nri_corrects(fake_node: FakeNode) -> None:
    fake_node.cards(2)
    profile = (fake_node.profiles / "acme.toml").read_text()
    (fake_node.profiles / "acme.toml").write_text(profile.replace('["device-nodes"]', '["envvar"]'))
    async with open_runtime(fake_node, RuntimeFeatures(name="containerd", version="v2.4.2")) as runtime, fake_node.kubelet():
        await runtime.start_agent(delivery="auto")
        entry = fake_node.entry()
        assert (entry.delivery, entry.insists) == ("device-plugin+nri", False)
        await fake_node.place("a", 1, units=4)
        # kubelet is made to have given the other card.
        made = await runtime.create("a", env=("ZPU_VISIBLE=0", "ZPU_UNITS=4"))
        assert made.environment == {"ZPU_VISIBLE": "1", "ZPU_UNITS": "4"}
        await fake_node.until(lambda: _counted(fake_node, "corrected", 1), "one correction is counted")
        # A variable of the manifest, which the device plugin leaves to NRI.
        await fake_node.place("b", 0, units=4)
        made = await runtime.create("b", env=("ZPU_UNITS=4", "ZPU_VISIBLE=all"))
        assert made.environment == {"ZPU_VISIBLE": "0", "ZPU_UNITS": "4"}


async def test_any_unit_on_any_card(fake_node: FakeNode, runtime: Runtime) -> None:
    """With NRI, 65,536 MiB of four cards are no list of devices, only a number."""
    await runtime.start_agent("--memory-unit=MiB")
    await fake_node.until(lambda: fake_node.capacity().get(MEMORY) == "65536", "65536 units are shown")
    bind(fake_node, "a", {MEMORY: 16000}, 2, units=16000)
    assert (await runtime.created("a")).environment["ZPU_UNITS"] == "16000"


async def test_cards_by_cdi_names_and_the_file_behind_them(fake_node: FakeNode, runtime: Runtime) -> None:
    profile = (fake_node.profiles / "acme.toml").read_text()
    names = '[container.cdi]\nname = "acme.example/zpu={index}"\n'
    (fake_node.profiles / "acme.toml").write_text(profile.replace('["device-nodes"]', '["cdi"]') + names)
    await runtime.start_agent()
    file = fake_node.cdi / "accelshare-acme.json"
    found = json.loads(file.read_text())
    assert (found["kind"], [device["name"] for device in found["devices"]]) == ("acme.example/zpu", ["0", "1", "2", "3"])
    bind(fake_node, "a", {MEMORY: 4}, 2, units=4)
    made = await runtime.created("a")
    assert (made.cdi_devices, devices(made)) == (("acme.example/zpu=2",), [])
    (fake_node.dev / "zpu3").unlink()
    agent = fake_node.agent
    assert agent is not None
    await asyncio.to_thread(agent.stop, 40)
    assert file.exists()  # a pod here may still restart its container
    fake_node.api.store.delete("pods", "a", options={"gracePeriodSeconds": 0})
    await runtime.start_agent()
    assert [device["name"] for device in json.loads(file.read_text())["devices"]] == ["0", "1", "2"]
    agent = fake_node.agent
    assert agent is not None
    await asyncio.to_thread(agent.stop, 40)
    assert not file.exists()


async def test_two_agents_take_turns(fake_node: FakeNode, runtime: Runtime) -> None:
    await runtime.start_agent()
    first = fake_node.agent
    assert first is not None
    fake_node.begin_agent(*runtime.flags, "--delivery=nri", "--port=0")
    second = fake_node.agent
    assert second is not None
    await fake_node.until(lambda: "another instance" in second.last_lines(), "the second waits and says so")
    assert runtime.real.plugins == ("10-accelshare",)
    first.kill()
    await fake_node.until(lambda: "nri outcome=connected" in second.last_lines(), "the second is connected")
    bind(fake_node, "a", {MEMORY: 4}, 1, units=4)
    assert devices(await runtime.created("a")) == ["/dev/zpu1"]


async def test_a_runtime_that_comes_back_without_its_validator_makes_auto_decide_again(fake_node: FakeNode) -> None:
    fake_node.cards(1)
    async with open_runtime(fake_node, CONTAINERD) as runtime:
        await runtime.start_agent(delivery="auto")
        runtime.config.write_text("")
        runtime.real.cut()
        agent = fake_node.agent
        assert agent is not None
        await fake_node.until(lambda: not agent.running, "the agent ends to be started anew")
        assert "restarting" in agent.last_lines()


@pytest.mark.parametrize("insists", [True, False])
async def test_a_runtime_that_connects_late_changes_the_mode_by_its_validator(fake_node: FakeNode, insists: bool) -> None:
    """With a validator, NRI delivers from the next start on; without one, NRI corrects variables from now on."""
    fake_node.cards(1)
    runtime = Runtime(fake_node, RuntimeFeatures(name="containerd", version="v2.4.2", validator=insists))
    async with fake_node.kubelet():
        await runtime.start_agent(delivery="auto")
        assert fake_node.entry().delivery == "device-plugin"
        agent = fake_node.agent
        assert agent is not None
        async with runtime.real:
            if insists:
                await fake_node.until(lambda: not agent.running, "the agent ends to be started anew")
                assert "restarting" in agent.last_lines()
                assert waits(fake_node), "nobody may be bound between two agents"
            else:
                await fake_node.until(lambda: fake_node.entry().delivery == "device-plugin+nri", "it corrects")
    shutil.rmtree(runtime.directory)


def remember(fake_node: FakeNode, *holders: tuple[str, str], registered: bool = False) -> None:
    """kubelet's checkpoint: whether a device plugin was registered lately, and uids of pods that hold its ids."""
    directory = fake_node.kubelet_root / "device-plugins"
    directory.mkdir(exist_ok=True)
    entries = [{"PodUID": uid, "ContainerName": "c0", "ResourceName": MEMORY, "DeviceIDs": {"-1": [id_]}} for uid, id_ in holders]
    data = {"PodDeviceEntries": entries or None, "RegisteredDevices": {MEMORY: ["0-0"]} if registered else {}}
    (directory / "kubelet_internal_checkpoint").write_text(json.dumps({"Data": data, "Checksum": 1}))


def served_by_a_device_plugin(fake_node: FakeNode, kubelet: FakeKubelet, name: str) -> None:
    """A pod that a device plugin served before the runtime had a validator."""
    uid = fake_node.pod(name, {MEMORY: 1})
    fake_node.bind(name, 3, units=1)
    running = {"status": {"phase": "Running"}}
    fake_node.api.store.patch("pods", name, running, content_type="application/merge-patch+json", subresource="status")
    kubelet.admitted[uid] = Admitted(uid, f"default/{name}", ids={"c0": {MEMORY: ["3-0"]}})
    remember(fake_node, (uid, "3-0"))


def waits(fake_node: FakeNode) -> bool:
    return bool(fake_node.entry().cards) and not fake_node.entry().delivers


async def test_a_node_that_moves_from_device_plugins_waits_until_kubelet_has_dropped_them(
    fake_node: FakeNode, runtime: Runtime
) -> None:
    remember(fake_node, registered=True)
    fake_node.begin_agent(*runtime.flags, "--delivery=nri")
    await fake_node.until(lambda: waits(fake_node), "the cluster knows that it does not deliver")
    remember(fake_node)
    await fake_node.until(fake_node.delivers, "it delivers")


async def test_allocatable_is_restored_while_kubelet_still_knows_a_device_plugin(fake_node: FakeNode, runtime: Runtime) -> None:
    """kubelet shows no healthy device of a plugin that has gone: capacity stays and allocatable is 0. If kubelet restarts then,
    it rejects the pods that run by NRI, because it compares their requests with allocatable.
    """
    remember(fake_node, registered=True)
    fake_node.begin_agent(*runtime.flags, "--delivery=nri")
    await fake_node.until(lambda: waits(fake_node), "the cluster knows that it does not deliver")
    await fake_node.until(lambda: fake_node.allocatable().get(MEMORY) == "64", "all units are allocatable")
    none = {"status": {"allocatable": {MEMORY: "0"}}}
    fake_node.api.store.patch("nodes", NODE, none, content_type="application/merge-patch+json", subresource="status")
    assert fake_node.capacity()[MEMORY] == "64"
    await fake_node.until(lambda: fake_node.allocatable().get(MEMORY) == "64", "all units are allocatable again")


async def test_device_plugins_go_on_while_a_pod_lives_that_one_served(fake_node: FakeNode, runtime: Runtime) -> None:
    """kubelet requests a resource from a device plugin as long as one pod holds an id of it."""
    kubelet = fake_node.kubelet()
    served_by_a_device_plugin(fake_node, kubelet, "old")
    async with kubelet:
        await runtime.start_agent(delivery="auto")
        assert fake_node.entry().delivery == "device-plugin+nri"
        assert fake_node.agent is not None
        assert "waiting_for_pods=default/old" in fake_node.agent.last_lines()
        await fake_node.place("new", 1, units=4)
        assert kubelet.rejected == {}
        # The runtime goes and comes back: nothing has changed, and the agent stays.
        agent = fake_node.agent
        runtime.real.cut()
        words = "waiting_for_pods=default/old"
        await fake_node.until(lambda: words in agent.last_lines().partition("disconnected")[2], "it is judged again")
        assert agent.running


async def test_the_runtime_delivers_when_the_last_pod_of_a_device_plugin_has_ended(fake_node: FakeNode, runtime: Runtime) -> None:
    """kubelet keeps ended pods until PodResources is listed."""
    kubelet = fake_node.kubelet()
    served_by_a_device_plugin(fake_node, kubelet, "old")
    async with kubelet:
        fake_node.begin_agent(*runtime.flags, "--delivery=nri")
        await fake_node.until(lambda: waits(fake_node), "the cluster knows that it does not deliver")
        assert fake_node.agent is not None
        assert "until these pods end: default/old" in fake_node.agent.last_lines()
        asked = kubelet.list_calls
        fake_node.api.store.delete("pods", "old")
        await fake_node.until(fake_node.delivers, "it delivers")
        assert kubelet.list_calls == asked + 1


def record_of(fake_node: FakeNode, name: str) -> list[int]:
    annotations = fake_node.read(name)["metadata"].get("annotations") or {}
    return [entry["index"] for entry in json.loads(annotations.get(assignment.OURS, "{}")).get("acme", [])]


def rewrite(fake_node: FakeNode, name: str, card: int) -> None:
    """Write another card in our key and in the vendor's, as a user with the edit role can."""
    record = json.dumps({"acme": [{"index": card, "id": f"zpu{card}", "units": 4}]})
    fake_node.api.store.patch(
        "pods", name, {"metadata": {"annotations": {assignment.OURS: record, "acme.example/index": str(card)}}}
    )


async def _told_of_rewrite(fake_node: FakeNode, name: str, times: int = 1) -> bool:
    if record_of(fake_node, name) != [1] or fake_node.read(name)["metadata"]["annotations"].get("acme.example/index") != "1":
        return False
    reasons = [event.object["reason"] for event in fake_node.api.store.list("events").versions]
    return "AcceleratorRecordRewritten" in reasons and await fake_node.metric("accelshare_record_rewrites_total") >= times


async def test_a_rewritten_record_moves_no_container_and_is_restored(fake_node: FakeNode, runtime: Runtime) -> None:
    """Between the bind and the first container, between two containers, and with the record removed."""
    await runtime.start_agent()
    fake_node.pod("a", {MEMORY: 4}, {MEMORY: 0}, inits=[fake_node.container("init", {MEMORY: 4})])
    fake_node.bind("a", 1, units=4, more=assignment.require_plugin())
    await fake_node.until(lambda: _seen(fake_node), "the agent has seen the bind")
    rewrite(fake_node, "a", 3)
    await fake_node.until(lambda: _told_of_rewrite(fake_node, "a"), "the record is restored, and an event and a metric tell it")
    rewrite(fake_node, "a", 3)
    assert devices(await runtime.created("a", "init")) == ["/dev/zpu1"]
    await fake_node.until(lambda: _told_of_rewrite(fake_node, "a", 2), "the record is restored again")
    fake_node.api.store.patch("pods", "a", {"metadata": {"annotations": {assignment.OURS: None, "acme.example/index": "2"}}})
    assert devices(await runtime.created("a")) == ["/dev/zpu1"]
    await fake_node.until(lambda: _told_of_rewrite(fake_node, "a", 3), "a removed record is restored")


async def _seen(fake_node: FakeNode) -> bool:
    return await fake_node.metric("accelshare_waiting_pods") >= 1


async def test_nri_delivers_slices_beside_another_plugin_for_whole_cards(fake_node: FakeNode, runtime: Runtime) -> None:
    """kubelet's checkpoint of the other plugin must not block the kind, nor its pods NRI delivery."""
    directory = fake_node.kubelet_root / "device-plugins"
    directory.mkdir(exist_ok=True)
    held = fake_node.pod("theirs", {WHOLE: 1})
    fake_node.bind("theirs", 0, whole=True)
    entries = [{"PodUID": held, "ContainerName": "c0", "ResourceName": WHOLE, "DeviceIDs": {"-1": ["zpu0"]}}]
    data = {"PodDeviceEntries": entries, "RegisteredDevices": {WHOLE: ["zpu0", "zpu1"]}}
    (directory / "kubelet_internal_checkpoint").write_text(json.dumps({"Data": data, "Checksum": 1}))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(directory / "zpu.sock"))
        other.listen()
        await runtime.start_agent(delivery="auto")
        entry = fake_node.entry()
        assert (entry.delivery, entry.whole_by_others) == ("nri", True)
        assert WHOLE not in fake_node.capacity()
        fake_node.pod("ours", {MEMORY: 4})
        fake_node.bind("ours", 1, units=4)
        assert (await runtime.created("ours")).environment["ZPU_VISIBLE"] == "1"
        # What the other plugin gave stays as it is.
        assert "ZPU_VISIBLE" not in (await runtime.created("theirs")).environment


async def test_cards_that_containers_hold_count_before_a_record_rewritten_without_an_agent(
    fake_node: FakeNode, runtime: Runtime
) -> None:
    """An agent that starts trusts our annotation on the pod's first container."""
    await runtime.start_agent()
    fake_node.pod("a", {MEMORY: 4}, inits=[fake_node.container("init", {MEMORY: 4})])
    fake_node.bind("a", 1, units=4, more=assignment.require_plugin())
    assert devices(await runtime.created("a", "init")) == ["/dev/zpu1"]
    assert fake_node.agent is not None
    fake_node.agent.kill()
    await runtime.real.until_plugins(0)
    rewrite(fake_node, "a", 3)
    await runtime.start_agent()
    assert devices(await runtime.created("a")) == ["/dev/zpu1"]
    await fake_node.until(lambda: _told_of_rewrite(fake_node, "a"), "the record is restored, and an event and a metric tell it")
    node = fake_node.api.store.get("nodes", NODE).object["metadata"]["annotations"]
    (record,) = assignment.read_corrections(node[assignment.CORRECTED]).values()
    assert [slice_.index for slice_ in assignment.slices_of(record)] == [1]


async def test_each_container_has_its_own_whole_cards(fake_node: FakeNode, runtime: Runtime) -> None:
    """Containers that run side by side have different cards; an ordinary init container uses theirs."""
    await runtime.start_agent()
    inits = [fake_node.container("init", {WHOLE: 2}), fake_node.container("beside", {WHOLE: 1}, restartPolicy="Always")]
    fake_node.pod("many", {WHOLE: 1}, {WHOLE: 1}, {}, inits=inits)
    fake_node.bind("many", 3, 0, 2, whole=True, more=assignment.require_plugin())
    seen = {name: devices(await runtime.created("many", name)) for name in ("init", "beside", "c0", "c1", "c2")}
    assert seen == {
        "init": ["/dev/zpu0", "/dev/zpu3"],
        "beside": ["/dev/zpu3"],
        "c0": ["/dev/zpu0"],
        "c1": ["/dev/zpu2"],
        "c2": [],
    }


async def test_whole_cards_that_kubelet_distributed_right_stay(fake_node: FakeNode) -> None:
    """With device plugins that NRI corrects: another order of the recorded cards stays, another card does not."""
    fake_node.cards(4)
    profile = (fake_node.profiles / "acme.toml").read_text()
    (fake_node.profiles / "acme.toml").write_text(profile.replace('["device-nodes"]', '["envvar"]'))
    async with open_runtime(fake_node, RuntimeFeatures(name="containerd", version="v2.4.2")) as runtime, fake_node.kubelet():
        await runtime.start_agent(delivery="auto")
        fake_node.pod("a", {WHOLE: 1}, {WHOLE: 1}, {WHOLE: 1})
        fake_node.bind("a", 0, 1, 2, whole=True)
        await fake_node.settled("a")
        given = {"c0": "2", "c1": "1", "c2": "3"}
        made = {name: await runtime.create("a", name, env=(f"ZPU_VISIBLE={card}",)) for name, card in given.items()}
        assert {name: one.environment["ZPU_VISIBLE"] for name, one in made.items()} == {
            "c0": "2",
            "c1": "1",
            "c2": "0",
        }


SHADOWS = ("required-plugins.noderesource.dev/pod", "required-plugins.noderesource.dev/container.c0")


@pytest.mark.parametrize("shadow", SHADOWS)
async def test_an_annotation_that_overrides_the_required_plugin_is_refused(
    fake_node: FakeNode, runtime: Runtime, shadow: str
) -> None:
    """The bind writes every scope; a pod that loses one afterwards gets no container, with or without the agent."""
    await runtime.start_agent()
    fake_node.pod("a", {MEMORY: 4}, labels={shadow: "[]"})
    fake_node.bind("a", 1, units=4, more=assignment.require_plugin(["c0"], {shadow: "[]"}))
    assert devices(await runtime.created("a")) == ["/dev/zpu1"]
    fake_node.pod("b", {MEMORY: 4})
    fake_node.bind("b", 1, units=4, more=assignment.require_plugin(["c0"]))
    await runtime.created("b")
    fake_node.api.store.patch("pods", "b", {"metadata": {"annotations": {SHADOWS[1]: None} | {shadow: "[]"}}})
    await fake_node.until(lambda: _says(runtime, "b", "create the pod again"), "a clear refusal")


GUARDED = """
none = { ZPU_VISIBLE = "void" }
cdi_kinds = ["acme.example/zpu"]
vendor_annotations = ["cdi.acme.example/"]
other_resources = ["acme.example/"]
"""


def guard(fake_node: FakeNode) -> None:
    profile = (fake_node.profiles / "acme.toml").read_text()
    (fake_node.profiles / "acme.toml").write_text(profile.replace("[container]\n", f"[container]{GUARDED}", 1))


def on_node(fake_node: FakeNode, name: str, *limits: Mapping[str, int], namespace: str = "default", **more: Any) -> None:
    """A pod that a scheduler bound to this node, without cards or with those of another system."""
    spec = {"containers": [fake_node.container(f"c{number}", asked) for number, asked in enumerate(limits)], "nodeName": NODE}
    fake_node.api.store.create("pods", {"metadata": {"name": name, **more}, "spec": spec}, namespace=namespace)


async def test_containers_that_request_no_card_see_none(fake_node: FakeNode, runtime: Runtime) -> None:
    """An image that sets `all`, a sidecar of a pod with cards, and kubectl debug: each gets the profile's value for none."""
    guard(fake_node)
    await runtime.start_agent()
    on_node(fake_node, "image", {})
    made = await runtime.created("image", env=("ZPU_VISIBLE=all", "PATH=/bin"))
    assert made.environment == {"ZPU_VISIBLE": "void", "PATH": "/bin"}
    assert (await runtime.created("image", "quiet")).environment == {"ZPU_VISIBLE": "void"}
    fake_node.pod("cards", {MEMORY: 4}, {})
    fake_node.bind("cards", 1, units=4, more=assignment.require_plugin(["c0", "c1"]))
    assert (await runtime.created("cards", env=("ZPU_VISIBLE=all",))).environment["ZPU_VISIBLE"] == "1"
    for bystander in ("c1", "debugger"):
        made = await runtime.created("cards", bystander, env=("ZPU_VISIBLE=all",))
        assert (made.environment, devices(made)) == ({"ZPU_VISIBLE": "void"}, [])
    await fake_node.until(lambda: _guarded(fake_node, "withheld", 3, "AcceleratorWithheld"), "three are reported")


@pytest.mark.parametrize("tool", ['"sleep", "60"', '"false"'])
async def test_containers_see_no_card_before_discovery(fake_node: FakeNode, runtime: Runtime, tool: str) -> None:
    """The vendor's tool is slow when the agent starts, or fails; the cards may be there all the same."""
    guard(fake_node)
    profile = (fake_node.profiles / "acme.toml").read_text()
    by_tool = f"command = [{tool}]\npattern = '(?P<id>.+)'\n"
    (fake_node.profiles / "acme.toml").write_text(profile.replace('glob = "/dev/zpu[0-9]*"\n', by_tool))
    on_node(fake_node, "early", {})
    fake_node.begin_agent(*runtime.flags, "--delivery=nri")
    await runtime.real.until_plugins()
    made = await runtime.created("early", env=("ZPU_VISIBLE=all",))
    assert made.environment == {"ZPU_VISIBLE": "void"}
    if "false" in tool:
        await fake_node.until(lambda: fake_node.entry().problem != "", "the node says that its cards cannot be asked for")
        assert (await runtime.created("early", "later", env=("ZPU_VISIBLE=all",))).environment == {"ZPU_VISIBLE": "void"}


async def _guarded(fake_node: FakeNode, outcome: str, least: int, reason: str) -> bool:
    reasons = [event.object["reason"] for event in fake_node.api.store.list("events").versions]
    return reason in reasons and await fake_node.metric(f'accelshare_guard_total{{outcome="{outcome}"}}') >= least


INTRUSIONS = {
    "device": {"linux": LinuxContainer(devices=(LinuxDevice(path="/dev/zpu7", type="c", major=240, minor=7),))},
    "mark": {"annotations": {"cdi.k8s.io/x": "other/y=1, acme.example/zpu=all"}},
    "vendor": {"annotations": {"cdi.acme.example/container.c0": "0"}},
}


@pytest.mark.parametrize("intrusion", INTRUSIONS)
async def test_a_container_that_brings_cards_without_requesting_them_is_refused(
    fake_node: FakeNode, runtime: Runtime, intrusion: str
) -> None:
    guard(fake_node)
    await runtime.start_agent("--exempt-namespace=monitoring")
    on_node(fake_node, "brings", {})
    brought: Any = INTRUSIONS[intrusion]
    await fake_node.until(lambda: _refuses(runtime, "brings", "no ZPU and brings", **brought), "it is refused")
    await fake_node.until(lambda: _guarded(fake_node, "refused", 1, "AcceleratorNotRequested"), "it is reported")
    # Who asks may have what others than we deliver; privileged containers and exempt namespaces are not looked at.
    fake_node.api.store.patch("nodes", NODE, {"status": {"capacity": {"acme.example/zpu-part": "4"}}}, subresource="status")
    on_node(fake_node, "asks", {"acme.example/zpu-part": 1})
    await runtime.created("asks", **brought)
    on_node(fake_node, "invents", {"acme.example/no-such": 1})
    await fake_node.until(lambda: _refuses(runtime, "invents", "no ZPU and brings", **brought), "it is refused")
    linux = LinuxContainer(resources=LinuxResources(devices=[LinuxDeviceCgroup(allow=True)]))
    linux.MergeFrom(brought.get("linux", LinuxContainer()))
    await runtime.created("brings", "privileged", **{**brought, "linux": linux})


async def test_a_container_with_a_slice_brings_no_other_card_by_the_vendors_annotation(
    fake_node: FakeNode, runtime: Runtime
) -> None:
    """Only the agent delivers slices, so only our own edits may name a card."""
    guard(fake_node)
    await runtime.start_agent()
    fake_node.pod("greedy", {MEMORY: 4}, labels={"cdi.acme.example/container.c0": "acme.example/zpu=all"})
    fake_node.bind("greedy", 1, units=4, more=assignment.require_plugin(["c0"]))
    await fake_node.until(lambda: _says(runtime, "greedy", "brings annotation cdi.acme.example/container.c0"), "it is refused")


async def _refuses(runtime: Runtime, name: str, words: str, **more: Any) -> bool:
    with pytest.raises(RuntimeRefusalError) as refusal:
        await runtime.create(name, **more)
    return words in str(refusal.value)


class Generous:
    """Another plugin, which gives every container a card by its CDI name."""

    def synchronize(self, pods: object, containers: object) -> None: ...

    def create_container(self, _pod: PodSandbox, _container: Container) -> ContainerAdjustment:
        return adjustment(cdi_devices=["acme.example/zpu=0"])

    def validate_container(self, pod: PodSandbox, container: Container, adjust: ContainerAdjustment) -> None: ...

    def start_container(self, pod: PodSandbox, container: Container) -> None: ...


async def test_a_card_that_another_plugin_adds_without_a_request_is_refused(fake_node: FakeNode, runtime: Runtime) -> None:
    guard(fake_node)
    await runtime.start_agent("--exempt-namespace=monitoring", "--exempt-namespace=dcgm")
    on_node(fake_node, "quiet", {})
    await runtime.created("quiet")
    other = asyncio.create_task(serve(runtime.socket, "generous", 90, Generous()))
    try:
        await runtime.real.until_plugins(2)
        await fake_node.until(lambda: _refuses(runtime, "quiet", "brings CDI device acme.example/zpu=0"), "it is refused")
        bind(fake_node, "asks-other", {MEMORY: 4}, 1, units=4)
        await fake_node.until(lambda: _refuses(runtime, "asks-other", "which would give it others"), "another card is refused")
        bind(fake_node, "asks", {MEMORY: 4}, 0, units=4)
        assert (await runtime.created("asks")).cdi_devices == ("acme.example/zpu=0",)
        box = PodSandbox(id="box", name="exporter", uid="uid-of-nobody", namespace="dcgm")
        runtime.real.run_pod(box)
        await runtime.real.create_container("box", Container(id="exporter", name="c0"))
    finally:
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)


async def test_a_running_container_with_a_card_without_a_request_is_reported_and_not_ended(
    fake_node: FakeNode, runtime: Runtime
) -> None:
    guard(fake_node)
    on_node(fake_node, "runs", {})
    await runtime.create("runs", env=("ZPU_VISIBLE=all",))
    await runtime.real.start_container("runs-c0")
    await runtime.start_agent()
    await fake_node.until(lambda: _guarded(fake_node, "found", 1, "AcceleratorNotRequested"), "it is reported")
    assert "deletionTimestamp" not in fake_node.read("runs")["metadata"]


async def test_without_the_guard_containers_that_request_no_card_are_ignored(fake_node: FakeNode, runtime: Runtime) -> None:
    guard(fake_node)
    await runtime.start_agent("--no-guard")
    on_node(fake_node, "image", {})
    made = await runtime.created("image", env=("ZPU_VISIBLE=all",), annotations={"cdi.acme.example/x": "0"})
    assert made.environment == {"ZPU_VISIBLE": "all"}


async def test_variables_of_a_user_are_no_proof_of_delivered_cards(fake_node: FakeNode) -> None:
    """Created while no agent ran, with the values that we would have set: it has no card of ours and may not start."""
    fake_node.cards(2)
    profile = (fake_node.profiles / "acme.toml").read_text()
    (fake_node.profiles / "acme.toml").write_text(profile.replace('["device-nodes"]', '["envvar"]'))
    async with open_runtime(fake_node, RuntimeFeatures(name="containerd", version="v2.4.2")) as runtime:
        for name, env in (("right", ("ZPU_VISIBLE=1", "ZPU_UNITS=4")), ("other", ("ZPU_VISIBLE=7", "ZPU_UNITS=4"))):
            bind(fake_node, name, {MEMORY: 4}, 1, units=4)
            await runtime.create(name, env=env)
        await runtime.real.start_container("other-c0")
        await runtime.start_agent()
        with pytest.raises(RuntimeRefusalError, match=r"container c0 of pod default/\S+ .*without its card"):
            await runtime.real.start_container("right-c0")
        await fake_node.until(lambda: "deletionTimestamp" in fake_node.read("other")["metadata"], "a wrong card is replaced")
