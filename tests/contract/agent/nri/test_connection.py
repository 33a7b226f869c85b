"""A real plugin against the fake runtime, over a real socket."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from accelshare.agent.nri.protocol import connection
from accelshare.agent.nri.protocol.connection import own_loop, run_on, serve
from accelshare.agent.nri.protocol.lock import exclusive_lock
from accelshare.agent.nri.protocol.nri_pb2 import Container, ContainerAdjustment, ContainerState, PodSandbox
from accelshare.agent.nri.protocol.plugin import EventSelector, creation_and_start
from accelshare.testing.fake_runtime import FakeContainer, FakeRuntime, RuntimeFeatures, RuntimeRefusalError
from tests.contract.agent.nri.cards import CARD, LIBRARY, Cards, Stuck
from tests.contract.agent.nri.plugins import WAIT_S, Plugins, creation_and_validation

POD = PodSandbox(id="p1", name="train-7", uid="uid-7", namespace="ml", annotations={"accelshare.io/card": "0"})
CAREFUL = PodSandbox(
    id="p2", name="train-8", uid="uid-8", namespace="ml", annotations={"required-plugins.noderesource.dev": '["accelshare"]'}
)


def container(name: str) -> Container:
    return Container(id=f"id-of-{name}", name=name, env=("CARD=7", "MODE=fast"))


def runtime(socket: Path, **features: object) -> FakeRuntime:
    made = FakeRuntime(socket, RuntimeFeatures(**{"request_timeout_s": WAIT_S, **features}))  # type: ignore[arg-type]
    made.run_pod(POD)
    made.run_pod(CAREFUL)
    return made


async def connected(one: FakeRuntime, count: int = 1) -> None:
    await asyncio.wait_for(one.until_plugins(count), WAIT_S)


async def test_a_container_gets_what_the_handler_gives(socket: Path, plugins: Plugins) -> None:
    cards = Cards()
    events = plugins.start(cards)
    async with runtime(socket, version="v2.4.2") as one:
        await connected(one)
        await events.until("connected fake v2.4.2")
        made = await one.create_container("p1", container("train"))
        assert made.environment == {"CARD": "0", "MODE": "fast"}
        assert made.devices == [CARD]
        assert made.mounts == (LIBRARY,)
        assert made.container.annotations == {"accelshare.io/given": "yes"}
        assert made.adjusted_by == ("10-accelshare",)

        started = await one.start_container("id-of-train")
        assert started.container.state == ContainerState.CONTAINER_RUNNING
        assert cards.started == [made.container]


async def test_a_refusal_reaches_kubelet_and_the_connection_stays(socket: Path, plugins: Plugins) -> None:
    events = plugins.start(Cards())
    async with runtime(socket) as one:
        await connected(one)
        words = "failed to get NRI adjustment for container: rpc error: code = Unknown desc = card 0 is not for ml/train-7"
        with pytest.raises(RuntimeRefusalError, match=words):
            await one.create_container("p1", container("refused"))
        assert (await one.create_container("p1", container("train"))).devices
        await events.until("connected fake v0.0.0")


async def test_a_bug_of_the_handler_refuses_the_container_and_the_connection_stays(socket: Path, plugins: Plugins) -> None:
    events = plugins.start(Cards())
    async with runtime(socket) as one:
        await connected(one)
        with pytest.raises(RuntimeRefusalError, match="ZeroDivisionError: a bug"):
            await one.create_container("p1", container("broken"))
        assert (await one.create_container("p1", container("train"))).devices
        await events.until("connected fake v0.0.0")


@pytest.mark.parametrize("select_events", [creation_and_start, creation_and_validation])
async def test_a_container_is_refused_in_time_while_its_handler_is_blocked(
    socket: Path, plugins: Plugins, select_events: EventSelector
) -> None:
    """A container without its card would be worse, and a lost connection would affect other containers."""
    stuck = Stuck()
    events = plugins.start(stuck, select_events=select_events)
    async with runtime(socket, request_timeout_s=6.0) as one:
        await connected(one)
        try:
            with pytest.raises(RuntimeRefusalError, match="accelshare: CreateContainer: no answer within"):
                await one.create_container("p1", container("train"))
        finally:
            stuck.go_on.set()
        made = await one.create_container("p1", container("next"))
        assert made.devices == [CARD]
        await events.until("connected fake v0.0.0")


async def test_a_blocked_main_loop_delays_no_container(socket: Path, plugins: Plugins) -> None:
    """The runtime is answered on another thread."""
    plugins.start(Cards())
    held_up = threading.Event()
    async with own_loop("runtime") as loop:

        async def elsewhere(hold_up: Callable[[], object]) -> FakeContainer:
            async with runtime(socket) as one:
                await connected(one)
                hold_up()
                try:
                    return await one.create_container("p1", container("train"))
                finally:
                    held_up.set()

        home = asyncio.get_running_loop()
        made = await run_on(loop, elsewhere(lambda: home.call_soon_threadsafe(held_up.wait, WAIT_S)))
    assert made.devices == [CARD]


async def test_a_list_in_parts_reaches_the_handler_as_one(socket: Path, plugins: Plugins) -> None:
    cards = Cards()
    async with runtime(socket, part=10) as one:
        names = [f"c{i}" for i in range(25)]
        for name in names:
            await one.create_container("p1", container(name))
        plugins.start(cards)
        await connected(one)
    assert cards.seen == [(("train-7", "train-8"), tuple(names))]


@pytest.mark.parametrize("size", [20_000, 1_000_000])
async def test_a_big_answer_arrives(socket: Path, plugins: Plugins, size: int) -> None:
    plugins.start(Cards())
    async with runtime(socket) as one:
        await connected(one)
        made = await one.create_container("p1", container(f"big-{size}"))
        assert len(made.container.annotations["big"]) == size


async def test_an_answer_beyond_all_limits_refuses_the_container(socket: Path, plugins: Plugins) -> None:
    plugins.start(Cards())
    async with runtime(socket) as one:
        await connected(one)
        with pytest.raises(RuntimeRefusalError, match="at most 4194304"):
            await one.create_container("p1", container("big-4194304"))
        assert (await one.create_container("p1", container("train"))).devices


class Cutting(Cards):
    """The runtime disconnects while it waits for the answer."""

    def __init__(self, one: FakeRuntime) -> None:
        super().__init__()
        self.one = one
        self.home = asyncio.get_running_loop()

    def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment:
        if container.name == "cut":
            self.cut()
        return super().create_container(pod, container)

    def cut(self) -> None:
        """Asked on the plugin's thread, done on the runtime's."""
        done = threading.Event()
        for step in (self.one.cut, done.set):
            self.home.call_soon_threadsafe(step)
        assert done.wait(WAIT_S)


async def test_a_runtime_that_goes_away_in_a_call_is_found_again(socket: Path, plugins: Plugins) -> None:
    """Like the real one, the runtime goes on without us; the next container has its card again."""
    async with runtime(socket) as one:
        events = plugins.start(Cutting(one))
        await connected(one)
        assert (await one.create_container("p1", container("cut"))).adjusted_by == ()
        await events.until("connected fake v0.0.0", "disconnected", "connected fake v0.0.0")
        await connected(one)
        assert (await one.create_container("p1", container("next"))).devices


async def test_a_runtime_that_starts_again_is_found_again(
    socket: Path, plugins: Plugins, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it is away, each problem is logged once."""
    monkeypatch.setattr(connection, "RETRY_S", 0.01)
    caplog.set_level(logging.INFO, "accelshare.agent.nri.protocol")
    dials = _counted_dials(monkeypatch)
    one = runtime(socket)
    events = plugins.start(Cards())
    await dials(10)
    async with one:
        await connected(one)
    await events.until("connected fake v0.0.0", "disconnected")
    await dials(10)
    async with one:
        await connected(one)
        assert (await one.create_container("p1", container("train"))).devices
    problems = [record.getMessage() for record in caplog.records if "outcome=disconnected" in record.getMessage()]
    missing = [problem for problem in problems if "No such file" in problem]
    assert len(missing) == 2, problems


async def test_every_end_of_a_connection_is_logged(socket: Path, plugins: Plugins, caplog: pytest.LogCaptureFixture) -> None:
    """The same problem is logged again if there was a connection in between."""
    events = plugins.start(Cards())
    words: list[str] = []
    async with runtime(socket) as one:
        for _ in range(2):
            await connected(one)
            words += ["connected fake v0.0.0", "disconnected"]
            one.cut()
            await connected(one, 0)
            # The next connection may be there already.
            async with asyncio.timeout(WAIT_S):
                while events.names[: len(words)] != words:
                    await asyncio.sleep(0.01)
    assert caplog.text.count("the runtime has closed the connection") >= 2


def _counted_dials(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Awaitable[None]]:
    """Wait until the plugin has dialled so many times more."""
    dialled = 0
    once = connection.NriConnection.connect_once

    async def counted(self: connection.NriConnection) -> None:
        nonlocal dialled
        dialled += 1
        await once(self)

    async def until(more: int) -> None:
        wanted = dialled + more
        async with asyncio.timeout(WAIT_S):
            while dialled < wanted:
                await asyncio.sleep(0.01)

    monkeypatch.setattr(connection.NriConnection, "connect_once", counted)
    return until


async def test_old_runtimes_report_a_start_as_a_state_change(socket: Path, plugins: Plugins) -> None:
    plugins.start(Cards())
    for call_per_event in (True, False):
        async with runtime(socket, call_per_event=call_per_event) as one:
            await connected(one)
            await one.create_container("p1", container("unstartable"))
            with pytest.raises(RuntimeRefusalError, match=r"NRI container start failed: .* it has no card"):
                await one.start_container("id-of-unstartable")
            assert one.containers["id-of-unstartable"].container.state == ContainerState.CONTAINER_STOPPED


async def test_without_a_plugin_a_container_is_created_unadjusted_unless_its_pod_requires_one(
    socket: Path, plugins: Plugins
) -> None:
    async with runtime(socket, validator=True) as one:
        assert (await one.create_container("p1", container("train"))).adjusted_by == ()
        with pytest.raises(RuntimeRefusalError, match='required plugin "accelshare" not present'):
            await one.create_container("p2", container("train"))
        plugins.start(Cards())
        await connected(one)
        assert (await one.create_container("p2", container("train"))).adjusted_by == ("10-accelshare",)
    async with runtime(socket) as one:
        await connected(one)
        plugins.tasks.pop().cancel()
        await connected(one, 0)
        assert (await one.create_container("p2", container("train"))).adjusted_by == (), "nobody validates"


async def test_a_runtime_that_knows_the_failure_policy_refuses_when_we_die_in_the_call(socket: Path, plugins: Plugins) -> None:
    async with runtime(socket, reads_failure_policy=True) as one:
        plugins.start(Cutting(one))
        await connected(one)
        with pytest.raises(RuntimeRefusalError, match="the connection was closed"):
            await one.create_container("p1", container("cut"))


async def test_a_runtime_that_calls_validators_creates_nothing_when_we_die_in_the_call(socket: Path, plugins: Plugins) -> None:
    async with runtime(socket) as one:
        events = plugins.start(Cutting(one), select_events=creation_and_validation)
        await connected(one)
        with pytest.raises(RuntimeRefusalError, match="validator plugin 10-accelshare failed"):
            await one.create_container("p1", container("cut"))
        assert one.containers == {}
        await events.until("connected fake v0.0.0", "disconnected", "connected fake v0.0.0")


async def test_a_runtime_that_calls_validators_creates_nothing_when_we_die_after_our_answer(
    socket: Path, plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin that adjusted the container must also answer the validation."""
    async with runtime(socket) as one:
        cards = Cutting(one)
        monkeypatch.setattr(cards, "validate_container", lambda *_: cards.cut())
        plugins.start(cards, select_events=creation_and_validation)
        await connected(one)
        with pytest.raises(RuntimeRefusalError, match="validator plugin 10-accelshare failed"):
            await one.create_container("p1", container("train"))
        assert [made.name for made in cards.created] == ["train"]
        assert one.containers == {}


async def test_a_runtime_without_validators_disconnects_a_plugin_that_subscribes_to_validation(
    socket: Path, plugins: Plugins, caplog: pytest.LogCaptureFixture
) -> None:
    """So the events that we subscribe to depend on the runtime's version."""
    caplog.set_level(logging.INFO, "accelshare")
    plugins.start(Cards(), select_events=creation_and_validation)
    async with runtime(socket, asks_validators=False) as one:
        async with asyncio.timeout(WAIT_S):
            while "invalid plugin events: 0x2000" not in caplog.text:
                await asyncio.sleep(0.01)
        assert one.plugins == ()


async def test_two_plugins_of_one_name_block_every_pod(socket: Path, plugins: Plugins) -> None:
    """So there is a lock."""
    plugins.start(Cards())
    plugins.start(Cards())
    async with runtime(socket) as one:
        await connected(one, 2)
        assert one.plugins == ("10-accelshare", "10-accelshare")
        with pytest.raises(RuntimeRefusalError, match='plugins "10-accelshare" and "10-accelshare" both tried to set'):
            await one.create_container("p1", container("train"))


async def test_a_second_instance_waits_for_the_end_of_the_first(socket: Path) -> None:
    async def instance(cards: Cards) -> None:
        async with exclusive_lock(socket.with_name("accelshare.lock")):
            await serve(socket, "accelshare", 10, cards)

    first, second = Cards(), Cards()
    async with runtime(socket) as one:
        tasks = [asyncio.create_task(instance(first))]
        await connected(one)
        tasks.append(asyncio.create_task(instance(second)))
        assert (await one.create_container("p1", container("a"))).adjusted_by == ("10-accelshare",)
        tasks[0].cancel()
        async with asyncio.timeout(WAIT_S):
            while not second.seen:
                await asyncio.sleep(0.01)
        await connected(one)
        assert (await one.create_container("p1", container("b"))).adjusted_by == ("10-accelshare",)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert (len(first.created), len(second.created)) == (1, 1)


@pytest.mark.parametrize(
    ("name", "index", "path", "words"),
    [
        ("accel share", 10, "/run/nri.sock", "the NRI plugin name is 'accel share'; it may have letters, digits and _ . [+] -"),
        ("accelshare", 100, "/run/nri.sock", "the NRI plugin index is 100; it must be 0 to 99"),
        ("accelshare", 10, "/" + "x" * 107, "is longer than 107 bytes"),
    ],
)
async def test_a_wrong_setting_is_named_at_once(name: str, index: int, path: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        await asyncio.wait_for(serve(Path(path), name, index, Cards()), WAIT_S)
