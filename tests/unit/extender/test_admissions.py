"""Pods that are bound and that kubelet has not acknowledged yet, where device plugins deliver."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from accelshare.extender.admissions import PLACES, Admissions
from accelshare.ledger.facts import AgentSeen, Fact, NodeSeen, PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Assignment
from accelshare.ledger.refusals import Reason, Refusal
from tests.builders import KIND, again, ended, gone, node, pending, share

LIMIT_S = 60.0


class Scene:
    """A ledger with one node of many cards, and the binds that wait for it."""

    def __init__(self, wait_s: float = LIMIT_S) -> None:
        self.ledger = Ledger()
        self.freed_nodes: list[str] = []
        self.admissions = Admissions(self.ledger, on_free_capacity=self.freed_nodes.append, wait_s=wait_s)
        self.tell(replace(node("n1", *[16] * 8), by_device_plugin=frozenset({KIND})))

    def tell(self, fact: Fact) -> None:
        self.ledger.apply(fact)
        self.admissions.seen(fact)

    def come(self, *names: str) -> list[asyncio.Task[bool]]:
        """Binds of these pods, one after the other, each with its hold."""
        binds = []
        for name in names:
            pod = pending(name, share(2))
            self.tell(pod)
            offer = self.ledger.offer("n1", pod.request)
            assert isinstance(offer, Assignment)
            self.ledger.hold(name, offer)
            binds.append(asyncio.create_task(self.admissions.enter("n1", name)))
        return binds

    def echo(self, name: str, *, started: bool = False, ended: bool = False, rejected: bool = False) -> None:
        """The watch shows a bound pod."""
        pod = self.ledger.pod(name)
        assert pod is not None
        assert pod.place is not None
        bound = replace(pod.seen, node="n1", slices=pod.place[1])
        self.tell(again(replace(bound, started=started, ended=ended, rejected=rejected)))

    def name_numbers(self, numbers: range) -> list[str]:
        return [f"p{number}" for number in numbers]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    yield scene
    scene.admissions.stop()
    assert scene.ledger.check() == []


async def entered(binds: list[asyncio.Task[bool]]) -> int:
    """How many of them were admitted, after every task had a turn."""
    for _ in range(5):
        await asyncio.sleep(0)
    return sum(bind.done() for bind in binds)


async def end(binds: list[asyncio.Task[bool]]) -> None:
    for bind in binds:
        bind.cancel()
    await asyncio.gather(*binds, return_exceptions=True)


async def test_only_a_few_pods_are_bound_before_kubelet_acknowledges_them(scene: Scene) -> None:
    """The others wait, in the order of their binds; each acknowledgement admits one more."""
    binds = scene.come(*scene.name_numbers(range(PLACES + 3)))
    assert await entered(binds) == PLACES
    scene.echo("p1")
    assert await entered(binds) == PLACES
    scene.echo("p1", started=True)
    assert await entered(binds) == PLACES + 1
    assert binds[PLACES].done()
    scene.tell(gone("p0"))
    pod = scene.ledger.pod("p2")
    assert pod is not None
    scene.tell(ended(replace(pod.seen, node="n1")))
    assert await entered(binds) == PLACES + 3
    assert all(bind.result() for bind in binds)


async def test_a_failed_bind_frees_its_place(scene: Scene) -> None:
    binds = scene.come(*scene.name_numbers(range(PLACES + 1)))
    assert await entered(binds) == PLACES
    scene.ledger.release("p0")
    scene.admissions.leave("p0")
    assert await entered(binds) == PLACES + 1


async def test_a_node_whose_runtime_delivers_takes_all(scene: Scene) -> None:
    seen = scene.ledger.node("n1")
    assert seen is not None
    assert seen.fact is not None
    runtime = frozenset({KIND})
    scene.tell(replace(seen.fact, version=seen.fact.version + 1000, by_device_plugin=frozenset(), by_runtime=runtime))
    binds = scene.come(*scene.name_numbers(range(3 * PLACES)))
    assert await entered(binds) == 3 * PLACES


async def test_pods_that_were_bound_before_this_process_started_count(scene: Scene) -> None:
    for name in scene.name_numbers(range(PLACES)):
        scene.tell(replace(pending(name, share(2)), node="n1"))
    binds = scene.come("late")
    assert await entered(binds) == 0
    scene.tell(gone("p0"))
    assert await entered(binds) == 1


async def test_a_wait_that_takes_too_long_is_refused() -> None:
    """The refusal comes before kube-scheduler's timeout of a bind."""
    scene = Scene(wait_s=0.01)
    binds = scene.come(*scene.name_numbers(range(PLACES + 1)))
    assert await asyncio.wait_for(asyncio.gather(*binds), LIMIT_S) == [True] * PLACES + [False]


async def test_one_rejected_pod_pauses_its_node_until_the_agent_has_restarted(scene: Scene) -> None:
    """No pod is bound there meanwhile, and refused pods are requeued afterwards."""
    scene.tell(AgentSeen("agent", "n1", ready=True, version=1))
    binds = scene.come(*scene.name_numbers(range(PLACES + 2)))
    await entered(binds)
    scene.echo("p0", ended=True, started=True, rejected=True)
    assert await entered(binds) == PLACES + 2
    assert [bind.result() for bind in binds[PLACES:]] == [False, False]
    for name in scene.name_numbers(range(PLACES, PLACES + 2)):
        scene.ledger.release(name)
    assert scene.ledger.offer("n1", share(2)) == Refusal(Reason.DELIVERY_PAUSED, KIND)
    scene.tell(AgentSeen("agent", "n1", ready=False, version=2))
    assert scene.freed_nodes == []
    scene.tell(AgentSeen("agent", "n1", ready=True, version=3))
    assert scene.freed_nodes == ["n1"]
    assert isinstance(scene.ledger.offer("n1", share(2)), Assignment)


async def test_an_agent_that_is_no_pod_ends_the_pause_by_its_node(scene: Scene) -> None:
    """A restarted agent writes on its node that it does not deliver yet, and later that it does."""
    binds = scene.come("p0")
    await entered(binds)
    scene.echo("p0", ended=True, rejected=True)
    book = scene.ledger.node("n1")
    assert book is not None
    assert isinstance(book.fact, NodeSeen)
    scene.tell(replace(book.fact, version=book.fact.version + 1, paused=frozenset({KIND})))
    assert isinstance(scene.ledger.offer("n1", share(2)), Refusal)
    scene.tell(replace(book.fact, version=book.fact.version + 2, paused=frozenset()))
    assert isinstance(scene.ledger.offer("n1", share(2)), Assignment)
    assert scene.freed_nodes == ["n1"]


async def test_a_pod_that_named_its_node_itself_pauses_nothing(scene: Scene) -> None:
    """Users can have any number of those rejected."""
    by_hand = replace(pending("by-hand", share(2)), node="n1")
    scene.tell(by_hand)
    scene.tell(replace(ended(by_hand), rejected=True))
    assert isinstance(scene.ledger.offer("n1", share(2)), Assignment)


async def test_a_pod_bound_before_this_extender_started_pauses_its_node_when_it_is_rejected(scene: Scene) -> None:
    bound = replace(pending("before", share(2)), node="n1", scheduled=True)
    scene.tell(bound)
    scene.tell(replace(ended(bound), rejected=True))
    assert scene.ledger.offer("n1", share(2)) == Refusal(Reason.DELIVERY_PAUSED, KIND)


async def test_without_a_restart_one_pod_is_tried_after_a_while(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rejection with another cause does not exclude a node with a working agent for ever."""
    monkeypatch.setattr("accelshare.extender.admissions.MAX_PAUSE_S", 0.0)
    binds = scene.come("p0")
    await entered(binds)
    scene.echo("p0", ended=True, rejected=True)
    async with asyncio.timeout(LIMIT_S):
        while not scene.freed_nodes:
            await asyncio.sleep(0)
    binds = scene.come("p1", "p2")
    assert await entered(binds) == 1
    scene.echo("p1", started=True)
    assert await entered(binds) == 2
    binds += scene.come(*scene.name_numbers(range(3, 8)))
    assert await entered(binds) == 1 + PLACES
    await end(binds)


def test_a_pod_is_read_as_kubelet_writes_it() -> None:
    """startTime is the acknowledgement; a rejection has its own reason."""
    from accelshare.vendors.catalog import load
    from accelshare.wire.pods import PodReader

    reader = PodReader(load())

    def read(status: str) -> PodSeen:
        spec = '{"nodeName":"n1","containers":[{"resources":{"limits":{"aliyun.com/gpu-mem":"2"}}}]}'
        fact = reader.decode(f'{{"metadata":{{"name":"a","uid":"u"}},"spec":{spec},"status":{status}}}'.encode())
        assert isinstance(fact, PodSeen)
        return fact

    assert not read('{"phase":"Pending"}').started
    assert read('{"phase":"Pending","startTime":"2026-01-01T00:00:00Z"}').started
    assert read('{"phase":"Failed","reason":"UnexpectedAdmissionError"}').rejected
    assert not read('{"phase":"Failed","reason":"Evicted"}').rejected


@pytest.mark.parametrize("ours", [True, False], ids=["bound by us", "names its node itself"])
async def test_pods_that_kubelet_never_acknowledges_do_not_block_their_node(ours: bool) -> None:
    """A user can make such pods: a mirror pod without its static pod, kept by a finalizer."""
    scene = Scene()
    scene.admissions = Admissions(
        scene.ledger, on_free_capacity=scene.freed_nodes.append, wait_s=LIMIT_S, acknowledged_within_s=0.2
    )
    names = scene.name_numbers(range(PLACES))
    if ours:
        assert await entered(scene.come(*names)) == PLACES
        for name in names:
            scene.echo(name)
    else:
        for name in names:
            scene.tell(replace(pending(name, share(2)), node="n1"))
    (bind,) = scene.come("late")
    assert await entered([bind]) == 0
    assert await bind
    # However often the owner of these pods changes them, they stay out.
    for name in names:
        pod = scene.ledger.pod(name)
        assert pod is not None
        scene.tell(again(pod.seen))
    others = scene.come(*scene.name_numbers(range(10, 10 + PLACES - 1)))
    assert all(await asyncio.wait_for(asyncio.gather(*others), LIMIT_S))  # the last of them may be due a moment later
    scene.admissions.stop()
