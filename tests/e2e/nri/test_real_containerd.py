"""The plugin in a real containerd with real containers and a stand-in for the card's device."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from accelshare.agent.discovery.device_inventory import DeviceInventory, InventoryCard, VendorCards
from accelshare.agent.nri.container_handler import ContainerHandler
from accelshare.agent.nri.guard import Guard
from accelshare.agent.nri.protocol.connection import serve
from accelshare.agent.nri.protocol.messages import adjustment, environment
from accelshare.agent.nri.protocol.nri_pb2 import Container, ContainerAdjustment, LinuxDevice, PodSandbox
from accelshare.agent.nri.protocol.plugin import EventSelector, Handler, creation_and_start
from accelshare.ledger.facts import PodSeen
from accelshare.runtimes.versions import asks_validators
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import HostCard
from accelshare.wire.assignment import require_plugin
from accelshare.wire.node_pods import NodePod
from tests.contract.agent.nri.cards import Cards, Stuck
from tests.contract.agent.nri.plugins import creation_and_validation
from tests.e2e.nri.containerd_alone import IMAGE, ContainerdAlone
from tests.e2e.nri.cri import Cri, CriError, Pod
from tests.unit.agent.builders import container_handler, pod_store

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="a real container runtime needs root on Linux"
)
WAIT_S = 120.0
ROOT = Path(__file__).parents[3]
Value = TypeVar("Value")


@pytest.fixture(scope="module")
def containerd() -> Iterator[ContainerdAlone]:
    """With more time for a plugin than by default, because this machine may be busy."""
    with ContainerdAlone(request_timeout="6s") as started:
        yield started


@pytest.fixture(scope="module")
def pod(containerd: ContainerdAlone) -> Pod:
    return cri(containerd).run_pod("train-7", cgroup=containerd.cgroup)


def cri(containerd: ContainerdAlone) -> Cri:
    assert containerd.cri is not None
    return containerd.cri


async def aside(act: Callable[[], Value]) -> Value:
    """Kubelet's calls wait for the runtime, and the runtime for our plugin, so they are made in another thread."""
    return await asyncio.wait_for(asyncio.to_thread(act), WAIT_S)


def need_validators(containerd: ContainerdAlone) -> None:
    if not asks_validators("containerd", containerd.version):
        pytest.skip(f"containerd {containerd.version} asks no plugin to validate")


class Connection:
    """How often the plugin was connected and disconnected."""

    def __init__(self) -> None:
        self.ups: list[tuple[str, str]] = []
        self.downs = 0

    async def until(self, *, ups: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.ups) < ups:
                await asyncio.sleep(0.02)

    def up(self, runtime: str, version: str) -> None:
        self.ups.append((runtime, version))

    def down(self) -> None:
        self.downs += 1


@contextlib.asynccontextmanager
async def plugin(
    containerd: ContainerdAlone, handler: Handler, select_events: EventSelector = creation_and_start
) -> AsyncIterator[Connection]:
    connection = Connection()
    work = serve(
        containerd.nri_socket,
        "accelshare",
        10,
        handler,
        select_events=select_events,
        on_connected=connection.up,
        on_disconnected=connection.down,
    )
    task = asyncio.create_task(work)
    try:
        await connection.until(ups=1)
        yield connection
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_container_has_its_card(containerd: ContainerdAlone, pod: Pod) -> None:
    """Variable, device node with the right to use it, mount; the pod's own value of the variable is replaced."""
    cards = Cards()
    async with plugin(containerd, cards) as connection:
        assert connection.ups[0][0] == "containerd"
        name = await aside(lambda: cri(containerd).create(pod, "train", image=IMAGE, env={"CARD": "7", "MODE": "fast"}))
        await aside(lambda: cri(containerd).start(name))

        def inside(command: str) -> str:
            return cri(containerd).run(name, "sh", "-c", command)

        variables = dict(line.split("=", 1) for line in (await aside(lambda: inside("env"))).splitlines())
        assert (variables["CARD"], variables["MODE"]) == ("0", "fast")
        assert (await aside(lambda: inside("stat -c %t:%T:%a /dev/card0"))).strip() == "a:e5:666"
        assert "not permitted" not in await aside(lambda: inside("(: < /dev/card0) 2>&1; true"))
        assert "bin" in await aside(lambda: inside("ls /opt/card"))
        assert environment(cards.created[0])["CARD"] == "7"
        assert environment(cards.started[0])["CARD"] == "0"


async def test_a_container_without_the_plugin_has_no_card_and_may_not_use_one(containerd: ContainerdAlone, pod: Pod) -> None:
    """The hole that the validator closes."""
    name = await aside(lambda: cri(containerd).create(pod, "bare", image=IMAGE, env={"CARD": "7"}))
    await aside(lambda: cri(containerd).start(name))
    said = await aside(
        lambda: cri(containerd).run(name, "sh", "-c", "echo $CARD; mknod /dev/own c 10 229; (: < /dev/own) 2>&1; true")
    )
    assert said.startswith("7\n")
    assert "not permitted" in said


async def test_kubelet_is_told_why_a_container_is_refused(containerd: ContainerdAlone, pod: Pod) -> None:
    async with plugin(containerd, Cards()) as connection:
        for name, words in (
            ("refused", "desc = card 0 is not for tests/train-7"),
            ("broken", "desc = CreateContainer: ZeroDivisionError: a bug"),
        ):
            with pytest.raises(CriError, match=words):
                await aside(lambda name=name: cri(containerd).create(pod, name, image=IMAGE))  # type: ignore[misc]
        unstartable = await aside(lambda: cri(containerd).create(pod, "unstartable", image=IMAGE))
        with pytest.raises(CriError, match="it has no card"):
            await aside(lambda: cri(containerd).start(unstartable))
        assert connection.downs == 0


@pytest.mark.parametrize("select_events", [creation_and_start, creation_and_validation])
async def test_a_plugin_that_is_held_up_refuses_instead_of_letting_through(
    containerd: ContainerdAlone, pod: Pod, select_events: EventSelector
) -> None:
    """The runtime would wait 6 s and then make the container without its card."""
    if select_events is creation_and_validation:
        need_validators(containerd)
    stuck = Stuck()

    def create_then_release() -> None:
        try:
            cri(containerd).create(pod, f"waits-{select_events.__name__}", image=IMAGE)
        finally:
            stuck.go_on.set()

    async with plugin(containerd, stuck, select_events) as connection:
        with pytest.raises(CriError, match=r"accelshare: CreateContainer: no answer within 4\.\d+ s"):
            await aside(create_then_release)
        name = await aside(lambda: cri(containerd).create(pod, f"next-{select_events.__name__}", image=IMAGE))
        await aside(lambda: cri(containerd).start(name))
        assert (await aside(lambda: cri(containerd).run(name, "sh", "-c", "echo $CARD"))).strip() == "0"
        assert connection.downs == 0


@pytest.mark.parametrize("size", [20_000, 1_000_000])
async def test_a_big_answer_arrives(containerd: ContainerdAlone, pod: Pod, size: int) -> None:
    """The real runtime closes the connection if a message's first frame is more than 4096 bytes."""
    cards = Cards()
    async with plugin(containerd, cards) as connection:
        name = await aside(lambda: cri(containerd).create(pod, f"big-{size}", image=IMAGE))
        await aside(lambda: cri(containerd).start(name))
        assert len(cards.started[0].annotations["big"]) == size
        assert connection.downs == 0


async def test_a_runtime_that_crashes_is_found_again(containerd: ContainerdAlone, pod: Pod) -> None:
    """Its containers go on, and it tells of them with what they were given."""
    cards = Cards()
    async with plugin(containerd, cards) as connection:
        name = await aside(lambda: cri(containerd).create(pod, "stays", image=IMAGE))
        await aside(lambda: cri(containerd).start(name))
        await aside(containerd.kill)
        await aside(containerd.start)
        await connection.until(ups=2)
        assert connection.downs == 1
        pods, containers = cards.seen[-1]
        assert "train-7" in pods
        assert "stays" in containers
        assert (await aside(lambda: cri(containerd).run(name, "sh", "-c", "echo $CARD"))).strip() == "0"
        later = await aside(lambda: cri(containerd).create(pod, "later", image=IMAGE))
        await aside(lambda: cri(containerd).start(later))
        assert environment(cards.started[-1])["CARD"] == "0"


@contextlib.asynccontextmanager
async def mortal(containerd: ContainerdAlone, when: str) -> AsyncIterator["subprocess.Popen[bytes]"]:
    """A plugin as a process of its own, connected; it dies when its time has come."""
    command = [sys.executable, "-m", "tests.e2e.nri.mortal", str(containerd.nri_socket), when]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert await aside(process.stdout.readline), "the plugin has ended"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("when", ["create", "validate", "stop-create"])
async def test_no_container_is_made_when_the_plugin_dies_or_stops_while_it_is_made(
    containerd: ContainerdAlone, pod: Pod, when: str
) -> None:
    """The runtime would go on without it, if it did not ask it a last time. Others are made when it is gone, as ever."""
    need_validators(containerd)
    async with mortal(containerd, when):
        with pytest.raises(CriError, match="validator plugin 10-accelshare failed"):
            await aside(lambda: cri(containerd).create(pod, f"dies-{when}", image=IMAGE))
        assert await aside(lambda: cri(containerd).create(pod, f"after-{when}", image=IMAGE))
    async with mortal(containerd, "never"):
        name = await aside(lambda: cri(containerd).create(pod, f"dies-{when}", image=IMAGE))
        await aside(lambda: cri(containerd).start(name))
        assert (await aside(lambda: cri(containerd).run(name, "sh", "-c", "echo $CARD"))).strip() == "0"


async def test_a_plugin_that_died_before_a_container_is_made_holds_up_one_at_most(containerd: ContainerdAlone, pod: Pod) -> None:
    """The runtime may notice only when it asks; then it has forgotten it."""
    need_validators(containerd)
    async with mortal(containerd, "never") as process:
        process.kill()
        await aside(process.wait)
        with contextlib.suppress(CriError):
            await aside(lambda: cri(containerd).create(pod, "first-after", image=IMAGE))
        assert await aside(lambda: cri(containerd).create(pod, "second-after", image=IMAGE))


async def test_a_pod_that_requires_the_plugin_waits_for_it() -> None:
    """With the validator on, and the annotation that a bind writes."""
    with ContainerdAlone(validator=True, request_timeout="6s") as containerd:
        need_validators(containerd)
        required = {"required-plugins.noderesource.dev": '["accelshare"]'}
        careful = await aside(lambda: cri(containerd).run_pod("careful", cgroup=containerd.cgroup, annotations=required))
        with pytest.raises(CriError, match='required plugin "accelshare" not present'):
            await aside(lambda: cri(containerd).create(careful, "train", image=IMAGE))
        cards = Cards()
        async with plugin(containerd, cards):
            name = await aside(lambda: cri(containerd).create(careful, "train", image=IMAGE))
            await aside(lambda: cri(containerd).start(name))
        assert environment(cards.started[0])["CARD"] == "0"


PLAIN = "required-plugins.noderesource.dev"


async def test_no_annotation_of_a_pod_shadows_those_of_a_bind() -> None:
    """The validator looks at the narrowest scope only. A bind that writes the plain key alone could be undone by the pod."""
    with ContainerdAlone(validator=True, request_timeout="6s") as containerd:
        need_validators(containerd)
        for number, key in enumerate((f"{PLAIN}/pod", f"{PLAIN}/container.train")):
            shadowed = {PLAIN: '["accelshare"]', key: "[]"}
            bare = await aside(partial(cri(containerd).run_pod, f"bare-{number}", cgroup=containerd.cgroup, annotations=shadowed))
            assert await aside(partial(cri(containerd).create, bare, "train", image=IMAGE)), "the fault that is to be avoided"
            whole = {key: "[]"} | require_plugin(["train"], {key: "[]"})
            pod = await aside(partial(cri(containerd).run_pod, f"bound-{number}", cgroup=containerd.cgroup, annotations=whole))
            with pytest.raises(CriError, match='required plugin "accelshare" not present'):
                await aside(partial(cri(containerd).create, pod, "train", image=IMAGE))


class Generous(Cards):
    """Another plugin, which gives every container a card by its device file."""

    def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment:
        return adjustment(devices=[LinuxDevice(path="/dev/card7", type="c", major=10, minor=229)])


def guarded(*pods: NodePod) -> ContainerHandler:
    """A node with one card, /dev/card7, and the guard on."""
    base = load()["enflame"]
    hardware = msgspec.structs.replace(base.hardware, device_nodes=("/dev/card{index}",))
    rules = msgspec.structs.replace(base.container, none={"CARD": "void", "OTHER": "-"})
    profile = msgspec.structs.replace(base, hardware=hardware, container=rules)
    devices = DeviceInventory()
    devices.put(VendorCards(profile, "1", 1024, {7: InventoryCard(HostCard(7, "id7", 16384, minor=7), 16)}))
    guard = Guard([profile], exempt=["kube-system"], on_host=Path)
    return container_handler(devices, pod_store(*pods), guard=guard)


async def test_the_last_word_on_a_container_is_that_nobody_has_a_card_who_did_not_ask(
    containerd: ContainerdAlone, pod: Pod
) -> None:
    """Variables of the image are replaced or emptied; what another plugin adds is refused at the end, with the reason."""
    need_validators(containerd)
    quiet = NodePod(PodSeen("uid-of-train-7", "tests", "train-7", request=()), (), {}, "Pending", terminating=False)
    async with plugin(containerd, guarded(quiet), creation_and_validation):
        asks = {"CARD": "all", "OTHER": "x", "MODE": "fast"}
        name = await aside(partial(cri(containerd).create, pod, "quiet", image=IMAGE, env=asks))
        await aside(lambda: cri(containerd).start(name))
        told = await aside(lambda: cri(containerd).run(name, "sh", "-c", "echo $CARD,$OTHER,$MODE"))
        assert told.strip() == "void,,fast"
        there = asyncio.Event()
        work = serve(containerd.nri_socket, "generous", 90, Generous(), on_connected=lambda *_: there.set())
        other = asyncio.create_task(work)
        try:
            await asyncio.wait_for(there.wait(), WAIT_S)
            with pytest.raises(CriError, match=r"requests no GCU and brings device /dev/card7 \(10:229\)"):
                await aside(partial(cri(containerd).create, pod, "brings", image=IMAGE))
        finally:
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)
