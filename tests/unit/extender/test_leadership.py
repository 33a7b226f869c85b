"""The holder names on the Lease the pods whose Binding it sends, so that the next holder knows which pods to fence."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

from accelshare.extender import leadership as leadership_module
from accelshare.extender.leadership import Leadership
from accelshare.kube.client import Client
from accelshare.kube.election import ANY_POD, DURATION_S, IN_FLIGHT, MOST_IN_FLIGHT, Election, in_flight_text, in_flight_uids
from accelshare.kube.errors import Conflict, KubeError, Unreachable

LIMIT_S = 60.0


class LeaseServer:
    """The API server's Lease: a write succeeds only at the version that it names. `delay` is awaited before each request."""

    def __init__(self, *, dice: random.Random | None = None) -> None:
        self.stored: dict[str, Any] | None = None
        self.version = 0
        self.writes = 0
        self.fails = False
        self._dice = dice or random.Random(0)
        self.losses = 0.0  # the part of writes whose response is lost
        self.delay: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)

    @property
    def named(self) -> frozenset[str] | None:
        assert self.stored is not None
        return in_flight_uids(self.stored["metadata"]["annotations"].get(IN_FLIGHT), self.stored["spec"]["leaseTransitions"])

    async def read(self, _path: str, decoder: Any) -> Any:
        await self.delay()
        return decoder.decode(json.dumps(self.stored)) if self.stored is not None else None

    async def request(self, _method: str, _path: str, *, body: bytes, **_: object) -> bytes:
        await self.delay()
        if self.fails:
            raise Unreachable("the API server is away")
        change = json.loads(body)
        expected = change["metadata"].pop("resourceVersion", None)
        if expected != (self.stored["metadata"]["resourceVersion"] if self.stored is not None else None):
            raise Conflict(409, "Conflict", "not this version")
        self.version += 1
        self.writes += 1
        before = self.stored or {"metadata": {"annotations": {}}, "spec": {}}
        notes = before["metadata"]["annotations"] | change["metadata"]["annotations"]
        metadata = {"resourceVersion": str(self.version), "annotations": notes}
        self.stored = {"metadata": metadata, "spec": before["spec"] | change["spec"]}
        await self.delay()
        if self._dice.random() < self.losses:
            raise Unreachable("the response was lost")
        return json.dumps(self.stored).encode()


def leader(server: LeaseServer, name: str = "a", *, clock: Callable[[], float] = lambda: 0.0) -> Leadership:
    return Leadership(cast(Client, server), Election(name), namespace="kube-system", name="lease", clock=clock)


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for wait in ("RENEW_EVERY_S", "POLL_EVERY_S", "ANNOUNCE_EVERY_S"):
        monkeypatch.setattr(leadership_module, wait, 0.0)


async def holding(server: LeaseServer, name: str = "a") -> Leadership:
    """One that has taken the Lease and renews it only when it announces something."""
    leadership = leader(server, name)
    running = asyncio.ensure_future(leadership.run())
    async with asyncio.timeout(LIMIT_S):
        await leadership.taken.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    leadership.fenced()
    return leadership


async def test_a_pod_is_on_the_lease_before_its_binding_may_be_sent() -> None:
    server = LeaseServer()
    leadership = await holding(server)
    assert await leadership.announce("u1")
    assert server.named == frozenset({"u1"})
    assert await leadership.announce("u2")
    assert server.named == frozenset({"u1", "u2"})


async def test_many_pods_are_named_by_few_writes() -> None:
    server = LeaseServer()
    leadership = await holding(server)
    before = server.writes
    uids = {f"u{number}" for number in range(100)}
    assert all(await asyncio.gather(*map(leadership.announce, uids)))
    assert server.named == frozenset(uids)
    assert server.writes - before <= 2


async def test_a_pod_whose_response_came_is_not_named_any_more_and_is_announced_again_for_its_next_bind() -> None:
    server = LeaseServer()
    leadership = await holding(server)
    assert await leadership.announce("u1")
    leadership.withdraw("u1")
    assert await leadership.announce("u2")
    assert server.named == frozenset({"u2"})
    assert await leadership.announce("u1")
    assert server.named == frozenset({"u1", "u2"})


async def test_a_lost_write_may_have_removed_a_name() -> None:
    """The pod is bound again after it was withdrawn; the Lease may have been written without it meanwhile."""
    server = LeaseServer()
    leadership = await holding(server)
    assert await leadership.announce("u1")
    leadership.withdraw("u1")
    server.losses = 1.0
    assert not await leadership.confirm()
    server.losses, server.fails = 0.0, True
    asking = asyncio.ensure_future(leadership.announce("u1"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not asking.done()
    server.fails = False
    assert await asking
    assert server.named == frozenset({"u1"})


async def test_without_a_written_lease_nothing_may_be_sent() -> None:
    now = [0.0]
    server = LeaseServer()
    leadership = leader(server, clock=lambda: now[0])
    assert not await leadership.announce("u1")  # it does not hold it
    leadership = await holding(server)
    server.fails = True
    asking = asyncio.ensure_future(leadership.announce("u1"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not asking.done()
    server.fails = False
    assert await asking
    assert server.named == frozenset({"u1"})


async def test_an_extender_whose_own_lease_has_lapsed_is_not_named_as_the_one_that_decides() -> None:
    """kube-scheduler copies the name into the pod's event, and nobody would look for the problem at that extender."""
    now = [0.0]
    leadership = leader(LeaseServer(), clock=lambda: now[0])
    assert await leadership.confirm()
    now[0] += DURATION_S
    assert not leadership.granted()
    assert leadership.holder == ""


async def test_a_standby_names_the_holder() -> None:
    server = LeaseServer()
    await holding(server, "a")
    standby = leader(server, "b")
    assert not await standby.confirm()
    assert standby.holder == "a"


async def test_until_the_earlier_holders_pods_are_fenced_the_lease_still_names_them() -> None:
    server = LeaseServer()
    first = await holding(server)
    assert await first.announce("u1")
    await first.release(lambda: False)
    second = leader(server, "b")
    assert await second.confirm()
    assert second.in_flight_before == frozenset({"u1"})
    assert await second.announce("u2")
    assert server.named == frozenset({"u1", "u2"})
    second.fenced()
    assert await second.announce("u3")
    assert server.named == frozenset({"u2", "u3"})


async def test_a_holder_that_left_nothing_in_flight_leaves_nothing_to_fence() -> None:
    server = LeaseServer()
    first = await holding(server)
    assert await first.announce("u1")
    first.withdraw("u1")
    await first.release(lambda: True)
    second = leader(server, "b")
    assert await second.confirm()
    assert (second.settled_before, second.in_flight_before) == (True, frozenset())


async def test_a_lease_of_a_version_that_names_no_pods_says_nothing_about_them() -> None:
    """Also if an annotation of an earlier term is still there: merge patches keep it."""
    server = LeaseServer()
    first = await holding(server)
    assert server.stored is not None
    assert first.in_flight_before is None  # the Lease is new
    server.stored["spec"] |= {"holderIdentity": "", "leaseTransitions": 7}
    second = leader(server, "b")
    assert await second.confirm()
    assert second.in_flight_before is None
    assert server.named is None


@pytest.mark.parametrize("text", [None, "", "x", "3", "3 u1", "4 *", "4 u1 *", "4x u1", " 4 u1", "4 " + "u " * MOST_IN_FLIGHT])
def test_an_annotation_that_is_not_of_this_term_or_not_ours_means_any_pod(text: str | None) -> None:
    assert in_flight_uids(text, 4) is None


def test_what_is_written_is_read() -> None:
    for uids in (frozenset[str](), frozenset({"a"}), frozenset({"a", "b"})):
        assert in_flight_uids(in_flight_text(4, uids), 4) == uids
    many = {f"u{number}" for number in range(MOST_IN_FLIGHT + 1)}
    assert in_flight_text(4, many) == in_flight_text(4, None) == f"4 {ANY_POD}"


class Cluster:
    """Extenders that take over from each other. A Binding is in the air from its POST until its response or its fence."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now = 0.0
        self.server = LeaseServer(dice=self.dice)
        self.server.delay = self.turns
        self.server.losses = 0.1
        self.in_the_air: set[tuple[str, str]] = set()  # extender and uid
        self.fenced: dict[str, frozenset[str] | None] = {}  # extender → the pods that the holder after it fences
        self.takeovers = 0

    async def turns(self) -> None:
        """Some of the loop's turns, in which others work."""
        for _ in range(self.dice.randrange(6)):
            await asyncio.sleep(0)

    async def extender(self, name: str) -> None:
        """Until it is cancelled, at any of its steps: SIGKILL."""
        leadership = leader(self.server, name, clock=lambda: self.now)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run(leadership))
            await leadership.taken.wait()
            self.takeovers += 1
            left = {uid for other, uid in self.in_the_air if other != name}
            before = leadership.in_flight_before
            assert before is None or left <= before, (name, left, before)
            self.fenced |= dict.fromkeys({other for other, _ in self.in_the_air} - {name}, before)
            await self.turns()
            self.in_the_air = {(other, uid) for other, uid in self.in_the_air if other == name}
            leadership.fenced()
            for number in range(5):
                tasks.create_task(self._bind_for_ever(name, leadership, (f"u{number}", f"v{number}")))

    async def _run(self, leadership: Leadership) -> None:
        while True:
            try:
                await leadership.run()
            except leadership_module.LeaseLostError:
                await asyncio.Event().wait()  # its process ends; the other tasks show that they can do no harm

    async def _bind_for_ever(self, name: str, leadership: Leadership, uids: tuple[str, ...]) -> None:
        while True:
            uid = self.dice.choice(uids)
            if await leadership.announce(uid):
                await self.turns()  # as if it were paused
                # It may have lost the Lease since: then the holder after it has fenced, or will fence, this pod.
                after = self.fenced.get(name, frozenset((uid,)))
                assert after is None or uid in after, (name, uid, after)
                if name not in self.fenced:
                    self.in_the_air.add((name, uid))
                await self.turns()
                self.in_the_air.discard((name, uid))
                leadership.withdraw(uid)
            else:
                await asyncio.sleep(0)


def _steps(dice: random.Random) -> Iterator[float]:
    for _ in range(400):
        yield dice.choice((0.0, 0.0, 0.01, 0.1, 0.7, 2.0, 4.0))


@pytest.mark.parametrize("seed", range(30))
async def test_every_binding_that_may_still_arrive_is_of_a_pod_that_the_next_holder_fences(seed: int) -> None:
    """Extenders are killed at any moment, are slow, and lose responses to their writes of the Lease."""
    cluster = Cluster(seed)
    names = (f"extender-{number}" for number in range(10**6))
    running = [asyncio.ensure_future(cluster.extender(next(names))) for _ in range(2)]
    try:
        for step in _steps(cluster.dice):
            cluster.now += step
            await cluster.turns()
            if cluster.dice.random() < 0.05:
                killed = running.pop(cluster.dice.randrange(2))
                killed.cancel()
                await asyncio.wait([killed])
                _raise_error(killed)
                running.append(asyncio.ensure_future(cluster.extender(next(names))))
    finally:
        for each in running:
            each.cancel()
        await asyncio.wait(running)
    for each in running:
        _raise_error(each)
    assert cluster.takeovers > 2


def _raise_error(ended: "asyncio.Future[None]") -> None:
    if not ended.cancelled() and (error := ended.exception()) is not None and not isinstance(error, KubeError):
        raise error
