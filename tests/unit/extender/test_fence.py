"""The fence: after an extender has started, Bindings of an earlier one cannot bind pending pods."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from accelshare.extender import fence as fence_module
from accelshare.extender.fence import AT_ONCE, CONDITION, Fence
from accelshare.ledger.facts import NodeSeen, PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Ask, Assignment, Card, Request, Slice
from accelshare.vendors.catalog import load
from accelshare.wire.pods import PodReader
from tests.unit.kube.support import asking, refusal

CATALOG = load(())
PROFILE = CATALOG.profiles[0]
REQUEST: Request = (Ask(PROFILE.name, share=12),)
LIMIT_S = 60.0


class Server:
    """An API server that has every pod, at version 20 after its change."""

    def __init__(self, *, minor: str = "36", status: int = 200) -> None:
        self.minor = minor
        self.status = status
        self.calls: list[str] = []
        self.patches: list[Any] = []
        self.bound: set[str] = set()
        self.at_once = self.most_at_once = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/version":
            return web.json_response({"major": "1", "minor": self.minor})
        self.calls.append(request.method)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            body = json.loads(await request.read() or b"{}")
            await asyncio.sleep(0)
            if request.method == "PATCH" and self.status != 200:
                return refusal(self.status)
            self.patches += [body] if request.method == "PATCH" else []
            return web.json_response(self._pod(request.path.split("/")[6]))
        finally:
            self.at_once -= 1

    def _pod(self, name: str) -> Any:
        spec: Any = {"containers": [{"name": "main", "resources": {"limits": {PROFILE.resources.memory: "12"}}}]}
        metadata: Any = {"uid": f"u-{name}", "namespace": "ml", "name": name, "resourceVersion": "20"}
        if name in self.bound:
            spec["nodeName"] = "n1"
        return {"metadata": metadata, "spec": spec}


def waiting(name: str, *, on: str = "") -> PodSeen:
    return PodSeen(uid=f"u-{name}", namespace="ml", name=name, request=REQUEST, version=2, node=on)


@asynccontextmanager
async def fencing(server: Server, *pods: PodSeen) -> AsyncIterator[tuple[Ledger, Fence]]:
    ledger = Ledger()
    ledger.apply(NodeSeen(name="n1", version=1, cards=(Card(PROFILE.name, 0, 16, id="first"),)))
    for pod in pods:
        ledger.apply(pod)
    async with asking(server) as client:
        yield ledger, Fence(client, ledger, PodReader(CATALOG), on_free_capacity=lambda _node: None)
    assert ledger.check() == []


async def test_every_pending_pod_is_changed_and_no_other() -> None:
    """Each by its uid, each time with another message: the API server does not write a patch without a change."""
    server = Server()
    async with fencing(server, waiting("a"), waiting("b"), waiting("bound", on="n2")) as (ledger, fence):
        before = fence.unfenced
        await fence.fence_pending()
        await fence.fence_pending()
        assert (before, fence.unfenced) == (None, 0)
        assert {pod.seen.name: pod.seen.version for pod in ledger.pods()} == {"a": 20, "b": 20, "bound": 2}
    assert sorted(patch["metadata"]["uid"] for patch in server.patches) == ["u-a", "u-a", "u-b", "u-b"]
    (conditions,) = {len(patch["status"]["conditions"]) for patch in server.patches}
    assert conditions == 1
    assert {patch["status"]["conditions"][0]["type"] for patch in server.patches} == {CONDITION}
    assert len({patch["status"]["conditions"][0]["message"] for patch in server.patches}) > 1


async def test_of_the_pods_that_the_lease_named_those_without_a_node_are_changed() -> None:
    server = Server()
    async with fencing(server, waiting("a"), waiting("b"), waiting("bound", on="n2")) as (_, fence):
        await fence.fence_pending({"u-b", "u-bound", "u-gone"})
        assert fence.unfenced == 0
    assert [patch["metadata"]["uid"] for patch in server.patches] == ["u-b"]


async def test_a_pod_for_which_no_card_has_room_is_left_alone() -> None:
    """No earlier extender can have sent it anywhere. A card that is unhealthy or paused now may be back soon."""
    server = Server()
    full = replace(waiting("full", on="n1"), slices=(Slice(PROFILE.name, 0, 12, id="first"),))
    async with fencing(server, full, waiting("a")) as (ledger, fence):
        await fence.fence_pending()
        assert server.patches == []
        ill = (Card(PROFILE.name, 0, 16, id="second", healthy=False),)
        ledger.apply(NodeSeen(name="n2", version=3, cards=ill, paused=frozenset({PROFILE.name})))
        await fence.fence_pending()
        assert [patch["metadata"]["uid"] for patch in server.patches] == ["u-a"]


@pytest.mark.parametrize(("taken", "fenced"), [(False, ["u-a"]), (True, [])])
async def test_a_request_for_a_whole_card_needs_an_empty_card(taken: bool, fenced: list[str]) -> None:
    server = Server()
    whole = replace(waiting("a"), request=(Ask(PROFILE.name, whole=True),))
    other = replace(waiting("other", on="n1"), request=(Ask(PROFILE.name, share=1),))
    other = replace(other, slices=(Slice(PROFILE.name, 0, 1, id="first"),))
    async with fencing(server, whole, *([other] if taken else [])) as (_, fence):
        await fence.fence_pending()
    assert [patch["metadata"]["uid"] for patch in server.patches] == fenced


async def test_a_pod_that_was_bound_meanwhile_is_counted_before_the_first_bind() -> None:
    """A late Binding came between the list and the change, and the watch has not shown it yet."""
    server = Server()
    server.bound.add("a")
    async with fencing(server, waiting("a")) as (ledger, fence):
        await fence.fence_pending()
        assert not isinstance(ledger.offer("n1", REQUEST), Assignment)


async def test_thousands_are_changed_a_few_at_a_time() -> None:
    server = Server()
    async with fencing(server, *(waiting(f"p{number}") for number in range(300))) as (_, fence):
        await fence.fence_pending()
    assert len(server.patches) == 300
    assert 1 < server.most_at_once <= AT_ONCE


async def test_a_deleted_pod_delays_no_other() -> None:
    async with fencing(Server(status=404), waiting("a")) as (_, fence):
        await fence.fence_pending()
        assert fence.unfenced == 0


@pytest.mark.parametrize(("minor", "status"), [("22", 200), ("18+", 200), ("36", 403), ("36", 422), ("36", 500)])
async def test_a_pod_that_cannot_be_fenced_is_settled_after_a_time(
    minor: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server ignores a Binding's version, or refuses the change: the pod is settled only after the time is over."""
    monkeypatch.setattr(fence_module, "RETRY_S", 0.01)
    server = Server(minor=minor, status=status)
    async with fencing(server, waiting("a")) as (_, fence):
        task = asyncio.ensure_future(fence.fence_pending())
        async with asyncio.timeout(LIMIT_S):
            while server.calls.count("GET") < 3:
                await asyncio.sleep(0.01)
            assert fence.unfenced == 1
            monkeypatch.setattr(fence_module, "SETTLED_S", 0.0)
            await task
        assert fence.unfenced == 0
    assert not server.patches


async def test_a_pod_that_the_lease_names_is_changed_although_no_known_card_has_room() -> None:
    """The card that it is being bound to can be on a node that the watch of nodes has not shown yet."""
    server = Server()
    full = replace(waiting("full", on="n1"), slices=(Slice(PROFILE.name, 0, 12, id="first"),))
    async with fencing(server, full, waiting("late"), waiting("other")) as (ledger, fence):
        await fence.fence_pending({"u-late"})
        assert fence.unfenced == 0
        ledger.apply(NodeSeen(name="n2", version=3, cards=(Card(PROFILE.name, 0, 16, id="second"),)))
        assert isinstance(ledger.offer("n2", REQUEST), Assignment), "another pod can get the card of the named one"
    assert [patch["metadata"]["uid"] for patch in server.patches] == ["u-late"]


async def test_an_answer_that_is_no_pod_fences_nothing() -> None:
    """The pod may have a node that the ledger does not know."""

    class Torn(Server):
        async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
            if request.path == "/version":
                return await super().__call__(request)
            return web.Response(body=b'{"metadata":{"uid":"u-a","na', content_type="application/json")

    async with fencing(Torn(), waiting("a")) as (_, fence):
        assert not await fence.refuses("ml", "a", "u-a", sent_at=asyncio.get_running_loop().time())
