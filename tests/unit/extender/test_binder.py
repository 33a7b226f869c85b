"""One bind after the other, before the watch has brought the first one's echo."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from accelshare.extender import binder as room_of_binder
from accelshare.extender.binder import Binder, Outcome
from accelshare.kube import binding
from accelshare.ledger.book import Ledger
from accelshare.ledger.facts import NodeSeen, PodSeen
from accelshare.ledger.nouns import Ask, Assignment, Card, Request
from accelshare.vendors.catalog import load
from accelshare.wire.scheduler import BindArguments
from tests.unit.kube.support import asking, hang_up, refusal

ASKED = BindArguments(pod_name="a", pod_namespace="ml", node="n1", pod_uid="u1")
CATALOG = load(())
PROFILE = CATALOG.profiles[0]
CARD = Card(PROFILE.name, 0, 16, id="first")
REQUEST: Request = (Ask(PROFILE.name, share=12),)
LIMIT_S = 60.0


class Server:
    """An API server with one pod; it can be silent about what it does, refuse, or answer late who looks."""

    def __init__(self) -> None:
        self.posts: list[Any] = []
        self.looks = 0
        self.bound: Any = None
        self.carries_out = True
        self.silent = False
        self.refuses: int | None = None
        self.may_look = asyncio.Event()
        self.may_look.set()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            self.posts.append(await request.json())
            return self._post(request, self.posts[-1])
        if self.silent:
            return hang_up(request)
        self.looks += 1
        seen = self._pod()
        await self.may_look.wait()
        return web.json_response(seen)

    def _post(self, request: web.BaseRequest, binding: Any) -> web.StreamResponse:
        if self.refuses is not None:
            return refusal(self.refuses)
        taken = self.bound is not None
        if self.carries_out and not taken:
            self.bound = binding
        if self.silent:
            return hang_up(request)
        return refusal(409, "Conflict") if taken else web.json_response({"kind": "Status", "status": "Success"}, status=201)

    def _pod(self) -> Any:
        limits = {PROFILE.resources.memory: "12"}
        metadata: Any = {"uid": "u1", "namespace": "ml", "name": "a", "resourceVersion": "9"}
        spec: Any = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
        if self.bound is not None:
            metadata["annotations"] = self.bound["metadata"]["annotations"]
            spec["nodeName"] = self.bound["target"]["name"]
        return {"metadata": metadata, "spec": spec}


class Scene:
    def __init__(self, server: Server, ledger: Ledger, binder: Binder, rooms: list[str]) -> None:
        self.server = server
        self.ledger = ledger
        self.binder = binder
        self.rooms = rooms

    async def bind(self, asked: BindArguments = ASKED) -> Outcome:
        return await self.binder.bind(asked)

    async def bind_in_doubt(self) -> None:
        """A bind of which nobody knows what became."""
        self.server.silent = True
        assert (await self.bind()).word == "unknown"
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
    server, ledger, rooms = Server(), Ledger(), list[str]()
    ledger.apply(NodeSeen(name="n1", version=1, cards=(CARD,)))
    ledger.apply(PodSeen(uid="u1", namespace="ml", name="a", request=REQUEST, version=2))
    times = iter(range(1, 100))
    async with asking(server) as client:
        binder = Binder(client, ledger, CATALOG, text=str, now_ns=lambda: next(times), room=rooms.append)
        try:
            yield Scene(server, ledger, binder, rooms)
        finally:
            await binder.stop()
    assert ledger.check() == []


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(binding, "bind", partial(binding.bind, deadline_s=0.5))
    monkeypatch.setattr(room_of_binder, "RETRY_S", 0.01)
    async with _scene() as made:
        yield made


async def test_the_same_bind_again_before_the_echo_is_the_same_bind(scene: Scene) -> None:
    """At once and later: one POST, no error, and the card stays held."""
    outcomes = await asyncio.gather(*(scene.bind() for _ in range(5)))
    outcomes.append(await scene.bind())
    assert [outcome.error for outcome in outcomes] == [""] * 6
    assert sorted(outcome.word for outcome in outcomes) == ["already"] * 5 + ["bound"]
    assert len(scene.server.posts) == 1
    assert scene.card_is_held


async def test_a_bind_that_was_carried_out_in_silence_is_found_when_it_is_asked_for_again(scene: Scene) -> None:
    """Its time of assignment is the first POST's, not the second's: it is bound all the same, and its card is taken."""
    await scene.bind_in_doubt()
    outcome = await scene.bind()
    assert (outcome.word, outcome.error) == ("already", "")
    assert scene.card_is_held


@pytest.mark.parametrize("code", [400, 403, 500])
async def test_a_refusal_does_not_free_the_card_of_an_earlier_bind_in_doubt(scene: Scene, code: int) -> None:
    """The API server took the first POST and says nothing more until the watch is back."""
    scene.server.carries_out = False  # it will, later
    await scene.bind_in_doubt()
    scene.server.refuses = code
    assert (await scene.bind()).word == "failed"
    assert scene.card_is_held
    assert scene.rooms == []


async def test_a_look_that_began_before_another_post_settles_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod was free when it was looked at, and is bound when the answer comes."""
    monkeypatch.setattr(room_of_binder, "SETTLED_S", 0.0)
    scene.server.carries_out = False
    scene.server.may_look.clear()
    await scene.bind_in_doubt()
    await scene.until_looked_at(1)
    scene.server.carries_out = True
    assert (await scene.bind()).word == "bound"
    scene.server.may_look.set()
    await scene.until_looked_at(3)
    assert scene.card_is_held


async def test_a_bind_that_never_happened_gives_its_card_back_and_says_where(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while kube-scheduler asks again and again and is refused."""
    scene.server.carries_out = False
    await scene.bind_in_doubt()
    scene.server.refuses = 403
    assert (await scene.bind()).word == "failed"
    monkeypatch.setattr(room_of_binder, "SETTLED_S", 0.0)
    await scene.until_free()
    assert scene.rooms == ["n1"]


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
async def test_a_bind_in_doubt_is_not_sent_again_to_cards_that_are_not_given_any_more(scene: Scene, now: NodeSeen) -> None:
    scene.server.carries_out = False
    await scene.bind_in_doubt()
    scene.ledger.apply(now)
    posts = len(scene.server.posts)
    assert (await scene.bind()).word == "in-doubt"
    assert len(scene.server.posts) == posts


async def test_a_bind_with_anothers_uid_holds_nothing(scene: Scene) -> None:
    for name in ("b", "../../nodes/n1"):
        outcome = await scene.bind(BindArguments(pod_name=name, pod_namespace="ml", node="n1", pod_uid="u1"))
        assert outcome.word == "gone"
    assert not scene.card_is_held
    assert scene.server.posts == []


async def test_a_record_that_no_pod_can_carry_is_refused_in_words_and_holds_nothing(scene: Scene) -> None:
    """A node may say anything of its cards, such as an id of 300 kB."""
    scene.ledger.apply(NodeSeen(name="n1", version=3, cards=(Card(CARD.kind, 0, 16, id="x" * 300_000),)))
    outcome = await scene.bind()
    assert outcome.word == "failed"
    assert "they must have at most" in outcome.error
    assert not scene.card_is_held
    assert scene.server.posts == []
