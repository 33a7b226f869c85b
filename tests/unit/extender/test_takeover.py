"""Taking over from another extender, and what a restored etcd means for holder and standby."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from accelshare.extender.binder import Binder
from accelshare.extender.feed import Feed, HistoryWentBackError
from accelshare.extender.fence import Fence
from accelshare.extender.leadership import Leadership
from accelshare.extender.metrics import Metrics
from accelshare.extender.takeover import take_over
from accelshare.kube.client import Client, Page
from accelshare.kube.config import Cluster
from accelshare.kube.election import Election
from accelshare.kube.errors import Unreachable
from accelshare.kube.events import Events
from accelshare.ledger.facts import NodeSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Card
from accelshare.testing.api_server import FakeApiServer
from accelshare.vendors.catalog import load
from accelshare.wire.pods import PodReader
from accelshare.wire.scheduler import BindArguments

CATALOG = load(())
PROFILE = CATALOG["nvidia"]
SPEC = {"containers": [{"name": "main", "image": "none", "resources": {"limits": {PROFILE.resources.memory: "12"}}}]}
LIMIT_S = 60.0


class Extender:
    """Feed, fence, Lease and binder over one ledger, which has a node with one card of 16 units."""

    def __init__(self, client: Client) -> None:
        self.ledger = Ledger()
        self.ledger.apply(NodeSeen(name="n1", version=1, cards=(Card(PROFILE.name, 0, 16, id="first"),)))
        reader = PodReader(CATALOG)
        events = Events(client, component="test", clock=lambda: 0.0)
        self.leadership = Leadership(client, Election("x"), namespace="default", name="lease")
        self.feed = Feed(client, self.ledger, CATALOG, reader, events, Metrics(), text=str, on_free_capacity=_ignore)
        self.fence = Fence(client, self.ledger, reader, on_free_capacity=_ignore)
        self.binder = Binder(
            *(client, self.ledger, CATALOG, reader),
            fence=self.fence,
            text=str,
            now_ns=lambda: 1,
            on_free_capacity=_ignore,
            permit=self.leadership,
        )


def _ignore(_node: str) -> None:
    pass


@asynccontextmanager
async def following(extender: Extender, *, elects: bool) -> AsyncIterator[None]:
    runs = [extender.feed.run(), *([extender.leadership.run()] if elects else [])]
    tasks = [asyncio.ensure_future(run) for run in runs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await extender.binder.stop(within_s=0.0)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.01)


def backup(server: FakeApiServer) -> Callable[[], None]:
    """Returns what puts the store back to what it is now, with its revision."""
    store = server.store
    revision, kept = store._revision, {one: (dict(one.now), list(one._changes)) for one in store._collections.values()}

    def restore() -> None:
        store._revision = revision
        for one, (now, changes) in kept.items():
            one.now, one._changes, one._sorted = now, changes, None

    return restore


async def test_a_holder_sells_no_card_twice_after_a_restore() -> None:
    """Pod a was deleted after the backup, so it is back on its card; the watches cannot tell, the Lease can."""
    async with FakeApiServer() as server, Client(Cluster(server.url), user_agent="test") as client:
        extender = Extender(client)
        ledger, leadership = extender.ledger, extender.leadership

        def create(name: str) -> str:
            made = server.store.create("pods", {"metadata": {"name": name}, "spec": SPEC}, namespace="default")
            return str(made.object["metadata"]["uid"])

        def node_of(name: str) -> str:
            return str(server.store.get("pods", name).object["spec"].get("nodeName", ""))

        async with following(extender, elects=True):
            await until(lambda: extender.feed.complete.is_set() and leadership.taken.is_set())
            leadership.fenced()
            a, b = create("a"), create("b")
            await until(lambda: ledger.pod(a) and ledger.pod(b))
            assert (await extender.binder.bind(BindArguments("a", "default", "n1", a))).name == "bound"
            await until(lambda: (pod := ledger.pod(a)) is not None and pod.seen.node)
            restore = backup(server)
            assert await leadership.confirm()
            server.store.delete("pods", "a", options={"gracePeriodSeconds": 0})
            await until(lambda: ledger.pod(a) is None)
            server.faults.answer(503, method="GET", path=r"watch=", times=1000)
            server.end_watches()
            restore()
            outcome = await extender.binder.bind(BindArguments("b", "default", "n1", b))
            assert outcome.name != "bound"
            assert (node_of("a"), node_of("b")) == ("n1", "")


class Restored:
    """An API server that was listed at version 1010 and has gone back since. It answers no watch."""

    async def pages(self, _path: str, **_options: object) -> AsyncIterator[Page]:
        yield Page([], "1010")

    async def watch(self, path: str, **_options: object) -> AsyncIterator[Any]:
        if path:
            raise Unreachable("the API server is away")
        yield

    async def request(self, _method: str, _path: str, **_options: object) -> bytes:
        metadata = {"name": "me", "uid": "me", "resourceVersion": "1004"}
        return json.dumps({"metadata": metadata, "spec": {}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}}).encode()


async def test_a_standby_that_knows_a_later_history_takes_nothing_over() -> None:
    """Its own pod is changed at an older version than its watch has shown, so no watch will show what the ledger lacks."""
    client = cast(Client, Restored())
    extender = Extender(client)
    async with following(extender, elects=False), asyncio.timeout(LIMIT_S):
        await extender.feed.complete.wait()
        with pytest.raises(HistoryWentBackError):
            await take_over(client, extender.feed, extender.fence, extender.leadership, namespace="d", pod="me")
        assert extender.fence.unfenced is None
