"""One bind after the other, before the watch has brought the first one's echo."""

import asyncio
from typing import Any

from aiohttp import web

from accelshare.extender.binder import Binder
from accelshare.ledger.book import Ledger
from accelshare.ledger.facts import NodeSeen, PodSeen
from accelshare.ledger.nouns import Ask, Card
from accelshare.vendors.catalog import load
from accelshare.wire.scheduler import BindArguments
from tests.unit.kube.support import asking

ASKED = BindArguments(pod_name="a", pod_namespace="ml", node="n1", pod_uid="u1")


async def test_the_same_bind_again_before_the_echo_is_the_same_bind() -> None:
    """At once and later: one POST, no error, and the card stays held."""
    posts: list[Any] = []

    async def bound(request: web.BaseRequest) -> web.StreamResponse:
        posts.append(await request.json())
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    catalog = load(())
    kind = catalog.profiles[0].name
    ledger = Ledger()
    ledger.apply(NodeSeen(name="n1", version=1, cards=(Card(kind, 0, 16),)))
    ledger.apply(PodSeen(uid="u1", namespace="ml", name="a", request=(Ask(kind, share=4),), version=2))
    times = iter(range(1, 100))
    async with asking(bound) as client:
        binder = Binder(client, ledger, catalog, text=str, now_ns=lambda: next(times))
        outcomes = await asyncio.gather(*(binder.bind(ASKED) for _ in range(5)))
        outcomes.append(await binder.bind(ASKED))
    assert [outcome.error for outcome in outcomes] == [""] * 6
    assert sorted(outcome.word for outcome in outcomes) == ["already"] * 5 + ["bound"]
    assert len(posts) == 1
    pod = ledger.pod("u1")
    assert pod is not None
    assert pod.hold is not None
