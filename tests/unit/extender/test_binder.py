"""Repeated, concurrent and lost binds of one pod."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from accelshare.extender import binder as binder_module
from accelshare.extender import fence as fence_module
from accelshare.extender.binder import Binder, BindOutcome
from accelshare.extender.fence import Fence
from accelshare.extender.gangs import GangHolds
from accelshare.kube import binding
from accelshare.ledger.facts import NodeSeen, PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Ask, Assignment, Card, Request
from accelshare.vendors.catalog import load
from accelshare.wire.pods import PodReader
from accelshare.wire.scheduler import BindArguments
from tests.unit.kube.support import asking, hang_up, refusal

ASKED = BindArguments(pod_name="a", pod_namespace="ml", node="n1", pod_uid="u1")
CATALOG = load(())
PROFILE = next(one for one in CATALOG if one.annotations.assign_time and not one.request.shapes)  # two POSTs differ in their time
CARD = Card(PROFILE.name, 0, 16, id="first")
REQUEST: Request = (Ask(PROFILE.name, share=12),)
LIMIT_S = 60.0


class Server:
    """An API server with one pod; it can lose a response, refuse, or delay the response to a GET.

    It is older than Kubernetes 1.23, unless a test says otherwise: a Binding's version is ignored.
    """

    def __init__(self) -> None:
        self.minor = "22+"
        self.version = 9
        self.patches = 0
        self.posts: list[Any] = []
        self.looks = 0
        self.bound: Any = None
        self.carries_out = True
        self.silent = False
        self.labels: Any = None
        self.refuses: int | None = None
        self.on_post: Callable[[], object] = lambda: None
        self.may_look = asyncio.Event()
        self.may_look.set()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            self.on_post()
            self.posts.append(await request.json())
            return self._post(request, self.posts[-1])
        if self.silent:
            return hang_up(request)
        if request.path == "/version":
            return web.json_response({"major": "1", "minor": self.minor})
        if request.method == "PATCH":
            self.patches += 1
            self.version += 1
            return web.json_response(self._pod())
        self.looks += 1
        seen = self._pod()
        await self.may_look.wait()
        return web.json_response(seen)

    def _post(self, request: web.BaseRequest, binding: Any) -> web.StreamResponse:
        if self.refuses is not None:
            return refusal(self.refuses)
        asked = int(binding["metadata"]["resourceVersion"])
        taken = self.bound is not None or (self.minor != "22+" and asked != self.version)
        if self.carries_out and not taken:
            self.bound = binding
        if self.silent:
            return hang_up(request)
        return refusal(409, "Conflict") if taken else web.json_response({"kind": "Status", "status": "Success"}, status=201)

    def _pod(self) -> Any:
        limits = {PROFILE.resources.memory: "12"}
        metadata: Any = {"uid": "u1", "namespace": "ml", "name": "a", "resourceVersion": str(self.version), "labels": self.labels}
        spec: Any = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
        if self.bound is not None:
            metadata["annotations"] = self.bound["metadata"]["annotations"]
            spec["nodeName"] = self.bound["target"]["name"]
        return {"metadata": metadata, "spec": spec}


class Announcements(binding.AlwaysPermit):
    """A permit that keeps the pods whose Binding may be in flight."""

    def __init__(self) -> None:
        self.uids: set[str] = set()

    async def announce(self, uid: str) -> bool:
        self.uids.add(uid)
        return True

    def withdraw(self, uid: str) -> None:
        self.uids.discard(uid)


class Scene:
    def __init__(
        self, server: Server, ledger: Ledger, binder: Binder, freed_nodes: list[str], announcements: Announcements
    ) -> None:
        self.announced = announcements.uids
        self.server = server
        self.ledger = ledger
        self.binder = binder
        self.freed_nodes = freed_nodes

    async def bind(self, asked: BindArguments = ASKED) -> BindOutcome:
        return await self.binder.bind(asked)

    async def bind_in_doubt(self) -> None:
        """A bind whose result is unknown."""
        self.server.silent = True
        assert (await self.bind()).name == "unknown"
        self.server.silent = False

    @property
    def card_is_held(self) -> bool:
        return not isinstance(self.ledger.offer("n1", REQUEST), Assignment)

    async def until_looked_at(self, times: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while self.server.looks < times:
                await asyncio.sleep(0.01)

    async def until_free(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            while self.card_is_held:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def _scene() -> AsyncIterator[Scene]:
    server, ledger, freed_nodes, announcements = Server(), Ledger(), list[str](), Announcements()
    reader = PodReader(CATALOG)
    ledger.apply(NodeSeen(name="n1", version=1, cards=(CARD,)))
    ledger.apply(PodSeen(uid="u1", namespace="ml", name="a", request=REQUEST, version=2))
    times = iter(range(1, 100))
    async with asking(server) as client:
        fence = Fence(client, ledger, reader, on_free_capacity=freed_nodes.append)
        binder = Binder(
            client,
            ledger,
            CATALOG,
            reader,
            fence=fence,
            text=str,
            now_ns=lambda: next(times),
            on_free_capacity=freed_nodes.append,
            permit=announcements,
            gangs=GangHolds(ledger, clock=lambda: 0.0, on_free_capacity=freed_nodes.append),
        )
        try:
            yield Scene(server, ledger, binder, freed_nodes, announcements)
        finally:
            await binder.stop(within_s=0.0)
    assert ledger.check() == []


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(binding, "bind", partial(binding.bind, deadline_s=2.0))
    monkeypatch.setattr(binder_module, "RETRY_S", 0.01)
    async with _scene() as made:
        yield made


async def test_the_same_bind_again_before_the_echo_is_the_same_bind(scene: Scene) -> None:
    """Concurrently and later: one POST, no error, and the card stays held."""
    outcomes = await asyncio.gather(*(scene.bind() for _ in range(5)))
    outcomes.append(await scene.bind())
    assert [outcome.error for outcome in outcomes] == [""] * 6
    assert sorted(outcome.name for outcome in outcomes) == ["already"] * 5 + ["bound"]
    assert len(scene.server.posts) == 1
    assert scene.card_is_held


@pytest.mark.parametrize("refuses", [None, 403])
async def test_a_bind_is_announced_until_its_response_has_come(scene: Scene, refuses: int | None) -> None:
    scene.server.refuses = refuses
    scene.server.on_post = lambda: seen.append(set(scene.announced))
    seen: list[set[str]] = []
    await scene.bind()
    assert seen == [{"u1"}]
    assert scene.announced == set()


async def test_a_rush_of_binds_opens_few_connections_to_a_slow_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait with their cards held, and one that waits too long is refused and frees them."""
    monkeypatch.setattr(binder_module, "POST_TURN_S", 0.2)
    at_once = most = 0
    slow = asyncio.Event()

    async def bind(*_: object, **__: object) -> binding.Bound:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await slow.wait()
        at_once -= 1
        return binding.Bound()

    monkeypatch.setattr(binding, "bind", bind)
    async with _scene() as scene:
        calls = [BindArguments(pod_name=f"p{n}", pod_namespace="ml", node="n2", pod_uid=f"uid{n}") for n in range(80)]
        scene.ledger.apply(NodeSeen(name="n2", version=1, cards=tuple(Card(PROFILE.name, n, 16, id=f"c{n}") for n in range(100))))
        for call in calls:
            scene.ledger.apply(PodSeen(uid=call.pod_uid, namespace="ml", name=call.pod_name, request=REQUEST, version=2))
        binds = [asyncio.ensure_future(scene.bind(call)) for call in calls]
        refused = 80 - binder_module.POSTS_AT_ONCE
        async with asyncio.timeout(LIMIT_S):
            while sum(each.done() for each in binds) < refused:
                await asyncio.sleep(0.01)
        slow.set()
        outcomes = [outcome.name for outcome in await asyncio.gather(*binds)]
        assert (outcomes.count("bound"), outcomes.count("unreachable"), most) == (64, refused, binder_module.POSTS_AT_ONCE)
        assert scene.freed_nodes == ["n2"] * refused


@pytest.mark.parametrize("ends", [True, False], ids=["a bind ends", "no bind ends"])
async def test_a_filter_waits_while_as_many_binds_as_may_be_are_sent(monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    """Until one of them ends, but not so long that kube-scheduler gives the filter up."""
    monkeypatch.setattr(binder_module, "POSTS_AT_ONCE", 2)
    monkeypatch.setattr(binder_module, "ROOM_S", LIMIT_S if ends else 0.05)
    slow = asyncio.Event()

    async def bind(*_: object, **__: object) -> binding.Bound:
        await slow.wait()
        return binding.Bound()

    monkeypatch.setattr(binding, "bind", bind)
    async with _scene() as scene:
        calls = [BindArguments(pod_name=f"p{n}", pod_namespace="ml", node="n2", pod_uid=f"uid{n}") for n in range(2)]
        scene.ledger.apply(NodeSeen(name="n2", version=1, cards=tuple(Card(PROFILE.name, n, 16, id=f"c{n}") for n in range(2))))
        for call in calls:
            scene.ledger.apply(PodSeen(uid=call.pod_uid, namespace="ml", name=call.pod_name, request=REQUEST, version=2))
        binds = [asyncio.ensure_future(scene.bind(call)) for call in calls]
        async with asyncio.timeout(LIMIT_S):
            while scene.binder.has_room:
                await asyncio.sleep(0.01)
        waiting = asyncio.ensure_future(scene.binder.wait_for_room())
        await asyncio.sleep(0)
        assert not waiting.done()
        if ends:
            slow.set()
        async with asyncio.timeout(LIMIT_S):
            await waiting
        assert scene.binder.has_room is ends
        slow.set()
        assert {outcome.name for outcome in await asyncio.gather(*binds)} == {"bound"}
        assert scene.binder.has_room


async def test_a_bind_in_doubt_stays_announced_until_it_can_no_longer_succeed(scene: Scene) -> None:
    """Also while the same bind is repeated and refused."""
    scene.server.minor, scene.server.carries_out, scene.server.version = "36", False, 2
    scene.server.may_look.clear()
    await scene.bind_in_doubt()
    assert scene.announced == {"u1"}
    scene.server.refuses = 403
    assert (await scene.bind()).name == "failed"
    assert scene.announced == {"u1"}
    await scene.until_free()
    assert scene.server.patches
    assert scene.announced == set()


async def test_a_repeated_bind_reports_that_the_lost_one_was_carried_out(scene: Scene) -> None:
    """Its assignment time is the first POST's, not the second's; the pod is bound and its card is held."""
    await scene.bind_in_doubt()
    outcome = await scene.bind()
    assert (outcome.name, outcome.error) == ("already", "")
    assert scene.card_is_held


async def test_a_bound_pod_that_cannot_be_read_keeps_its_card(scene: Scene) -> None:
    """The second POST is refused because the pod has a node, and a field of the pod has the wrong type."""
    await scene.bind_in_doubt()
    scene.server.labels = "none"
    outcome = await scene.bind()
    assert outcome.name == "failed"
    assert "cannot be decoded" in outcome.error
    assert scene.card_is_held


@pytest.mark.parametrize("code", [400, 403, 500])
async def test_a_refusal_does_not_free_the_card_of_an_earlier_bind_in_doubt(scene: Scene, code: int) -> None:
    """The API server carried out the first POST and sends nothing until the watch is back."""
    scene.server.carries_out = False  # it will, later
    await scene.bind_in_doubt()
    scene.server.refuses = code
    assert (await scene.bind()).name == "failed"
    assert scene.card_is_held
    assert scene.freed_nodes == []


async def test_a_read_that_began_before_another_post_settles_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod had no node when it was read, and is bound when the response arrives."""
    monkeypatch.setattr(fence_module, "SETTLED_S", 0.0)
    scene.server.carries_out = False
    scene.server.may_look.clear()
    await scene.bind_in_doubt()
    await scene.until_looked_at(1)
    scene.server.carries_out = True
    assert (await scene.bind()).name == "bound"
    scene.server.may_look.set()
    await scene.until_looked_at(2)
    assert scene.card_is_held


async def test_a_bind_that_never_happened_releases_its_card_and_reports_the_node(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while kube-scheduler repeats the bind and is refused."""
    scene.server.carries_out = False
    await scene.bind_in_doubt()
    scene.server.refuses = 403
    assert (await scene.bind()).name == "failed"
    monkeypatch.setattr(fence_module, "SETTLED_S", 0.0)
    await scene.until_free()
    assert scene.freed_nodes == ["n1"]


@pytest.mark.parametrize(
    "now",
    [
        NodeSeen(name="n1", version=3, cards=()),
        NodeSeen(name="n1", version=3, cards=(Card(CARD.kind, 0, 16, healthy=False, id="first"),)),
        NodeSeen(name="n1", version=3, cards=(Card(CARD.kind, 0, 16, id="second"),)),
        NodeSeen(name="n1", version=3, cards=(CARD,), paused=frozenset({CARD.kind})),
    ],
    ids=["gone", "ill", "renumbered", "paused"],
)
async def test_a_bind_in_doubt_is_not_repeated_for_unavailable_cards(scene: Scene, now: NodeSeen) -> None:
    scene.server.carries_out = False
    await scene.bind_in_doubt()
    scene.ledger.apply(now)
    posts = len(scene.server.posts)
    assert (await scene.bind()).name == "in-doubt"
    assert len(scene.server.posts) == posts


async def test_a_bind_with_anothers_uid_holds_nothing(scene: Scene) -> None:
    for name in ("b", "../../nodes/n1"):
        outcome = await scene.bind(BindArguments(pod_name=name, pod_namespace="ml", node="n1", pod_uid="u1"))
        assert outcome.name == "gone"
    assert not scene.card_is_held
    assert scene.server.posts == []


async def test_a_member_of_a_gang_whose_cards_are_not_held_is_not_bound(scene: Scene) -> None:
    """The extender that held them has ended. The cards of other members may be taken, so kube-scheduler has to ask again."""
    scene.ledger.apply(PodSeen(uid="u1", namespace="ml", name="a", request=REQUEST, version=3, in_gang=True))
    outcome = await scene.bind()
    assert outcome.name == "refused"
    assert "ml/a" in outcome.error
    assert scene.server.posts == []
    assert not scene.card_is_held


async def test_a_record_larger_than_a_pod_can_have_is_refused_and_holds_nothing(scene: Scene) -> None:
    """A node's inventory may contain anything, such as an id of 300 kB."""
    scene.ledger.apply(NodeSeen(name="n1", version=3, cards=(Card(CARD.kind, 0, 16, id="x" * 300_000),)))
    outcome = await scene.bind()
    assert outcome.name == "failed"
    assert "they must have at most" in outcome.error
    assert not scene.card_is_held
    assert scene.server.posts == []


@pytest.mark.parametrize(
    ("why", "word"), [(binding.BindRefusalReason.NO_SUCH_POD, "gone"), (binding.BindRefusalReason.NOT_SENT, "unreachable")]
)
async def test_failures_that_are_not_the_nodes_are_not_failed_binds(
    scene: Scene, why: binding.BindRefusalReason, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node with failed binds is offered last; deleted pods and an unreachable API server do not count."""

    async def refused(*_: object, **__: object) -> binding.BindRefused:
        return binding.BindRefused(why, "in its words")

    monkeypatch.setattr(binding, "bind", refused)
    assert await scene.bind() == BindOutcome(word, "in its words")
    assert not scene.card_is_held


async def test_a_binding_names_the_ledgers_version_of_the_pod(scene: Scene) -> None:
    """The pod is not read for it: kube-scheduler decided by the state that the watch showed last."""
    assert (await scene.bind()).name == "bound"
    assert [post["metadata"]["resourceVersion"] for post in scene.server.posts] == ["2"]
    assert scene.server.looks == 0


async def test_a_bind_in_doubt_is_settled_at_once_by_changing_the_pod(scene: Scene) -> None:
    """Its Binding is refused from then on, so the card is free; kube-scheduler's next bind has the new version."""
    scene.server.minor = "23"
    scene.server.carries_out = False
    await scene.bind_in_doubt()
    await scene.until_free()
    assert scene.server.patches == 1
    assert scene.freed_nodes == ["n1"]
    posts = len(scene.server.posts)
    scene.server.carries_out = True
    assert (await scene.bind()).name == "bound"
    assert [post["metadata"]["resourceVersion"] for post in scene.server.posts[posts:]] == ["10"]


async def test_the_response_to_the_fence_shows_that_a_bind_in_doubt_was_carried_out(scene: Scene) -> None:
    """The watch is not needed for that."""
    scene.server.minor = "36"
    scene.server.version = 2
    await scene.bind_in_doubt()
    async with asyncio.timeout(LIMIT_S):
        while (pod := scene.ledger.pod("u1")) is None or not pod.seen.node:
            await asyncio.sleep(0.01)
    assert scene.card_is_held
    assert scene.freed_nodes == []


async def test_a_card_is_not_released_during_another_bind_of_its_pod(scene: Scene) -> None:
    """The other bind may have read the pod after the change, so its Binding is valid."""
    scene.server.minor = "36"
    scene.server.carries_out = False
    await scene.bind_in_doubt()
    # What bind() keeps while it waits for the API server.
    under_way = scene.binder._under_way["u1"] = asyncio.get_running_loop().create_future()
    patches = scene.server.patches
    async with asyncio.timeout(LIMIT_S):
        while scene.server.patches < patches + 2:
            await asyncio.sleep(0.01)
    assert scene.card_is_held
    del scene.binder._under_way["u1"]
    under_way.set_result(None)
    await scene.until_free()


async def test_stopping_waits_for_binds_in_doubt_and_logs_what_is_left(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """For a limited time: an unreachable API server cannot keep the process running."""
    caplog.set_level("INFO")
    scene.server.carries_out = False
    await scene.bind_in_doubt()
    scene.server.silent = True
    await scene.binder.stop(within_s=0.05)
    assert "binds_in_doubt=1 waiting_s=0" in caplog.text
    assert "uids=u1 outcome=left-to-next-start" in caplog.text
    assert scene.card_is_held


async def test_stopping_ends_as_soon_as_no_bind_is_in_doubt(scene: Scene) -> None:
    scene.server.minor = "36"
    scene.server.carries_out = False
    await scene.bind_in_doubt()
    async with asyncio.timeout(LIMIT_S):
        await scene.binder.stop(within_s=10 * LIMIT_S)
    assert not scene.card_is_held


async def test_a_bind_in_doubt_keeps_its_card_while_answers_are_no_pods(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lost Binding was carried out, and the watch has not shown it yet."""
    scene.server.minor, scene.server.version = "36", 2
    await scene.bind_in_doubt()
    with monkeypatch.context() as torn:
        torn.setattr(scene.server, "_pod", lambda: "half a po")
        before = scene.server.patches
        async with asyncio.timeout(LIMIT_S):
            while scene.server.patches < before + 2:
                await asyncio.sleep(0.01)
        assert scene.card_is_held


@pytest.mark.parametrize("code", [409, 500])
async def test_a_binding_that_the_storage_may_still_carry_out_keeps_its_card(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """kube-apiserver answers so, too, if it does not know whether etcd has written the pod."""
    server = scene.server
    server.minor, server.version = "36", 2

    def in_flight(_request: object, _binding: object) -> web.StreamResponse:
        return refusal(code, "Conflict", "rpc error: code = Unavailable desc = error reading from server: EOF")

    monkeypatch.setattr(server, "_post", in_flight)
    assert (await scene.bind()).name != "bound"
    if server.version == 2:  # nothing has changed the pod since, so etcd can write it now
        server.bound = server.posts[0]
        assert scene.card_is_held
    else:
        await scene.until_free()
