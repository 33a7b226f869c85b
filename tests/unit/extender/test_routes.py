"""The extender's HTTP paths: errors, and large responses that must not block the loop."""

import asyncio
import json
from collections.abc import Awaitable, Iterable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import orjson
import pytest

from accelshare.extender import routes as routes_room
from accelshare.extender.binder import Binder
from accelshare.extender.card_metrics import NODES_AT_ONCE
from accelshare.extender.decisions import Decisions
from accelshare.extender.metrics import Metrics
from accelshare.extender.promises.filter_wait import FilterWait
from accelshare.extender.requeue import Requeue
from accelshare.extender.routes import NEUTRAL, PROBE_PATHS, Routes, Standby
from accelshare.http.messages import HttpRequest, Response
from accelshare.ledger.ledger import Ledger
from accelshare.report import inspect_json
from accelshare.report.view import rows
from accelshare.vendors.catalog import load
from accelshare.vendors.value_types import OWN_PATHS, UrlPrefix
from accelshare.wire.pods import PodReader
from tests.builders import card, node, running, share

CATALOG = load(())
KIND = "nvidia"
NODES = 50


def routes_of(ledger: Ledger, binder: Any = None, filter_wait: Any = None) -> Routes:
    nobody: Any = None
    roomy: Any = SimpleNamespace(has_room=True)
    return Routes(
        ledger=ledger,
        catalog=CATALOG,
        decisions=Decisions(ledger, CATALOG, PodReader(CATALOG), shortlist=1),
        binder=binder or roomy,
        metrics=Metrics(),
        not_ready=lambda: None,
        requeue=Mock(Requeue) if binder or filter_wait else nobody,
        filter_wait=filter_wait,
    )


class Turns:
    """How often another task ran meanwhile."""

    async def __aenter__(self) -> "Turns":
        self.taken = 0
        self._task = asyncio.create_task(self._take())
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._task.cancel()

    async def _take(self) -> None:
        while True:
            self.taken += 1
            await asyncio.sleep(0)


def full_nodes(count: int) -> Ledger:
    ledger = Ledger()
    for number in range(count):
        ledger.apply(node(f"n{number:03}", cards=(card(0, 16, kind=KIND),)))
        ledger.apply(running(f"p{number:03}", on=f"n{number:03}/0", request=share(16, kind=KIND)))
    return ledger


def filter_call(names: bytes) -> HttpRequest:
    limits = {CATALOG[KIND].resources.memory: "16"}
    pod = {
        "metadata": {"name": "p", "namespace": "ml", "uid": "u"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }
    return HttpRequest("POST", "/accelshare/filter", b'{"Pod":' + orjson.dumps(pod) + b',"NodeNames":' + names + b"}")


async def test_a_filter_that_waited_for_binds_decides_by_what_they_left() -> None:
    """kube-scheduler does not wait for a bind; its filter does, so that binds do not pile up before the API server."""
    room = asyncio.Event()
    ledger = Ledger()
    ledger.apply(node("n1", cards=(card(0, 16, kind=KIND),)))
    routes = routes_of(ledger, Mock(Binder, has_room=False, wait_for_room=room.wait))
    answer = routes.handle(filter_call(b'["n1"]'))
    assert isinstance(answer, Awaitable)
    waiting = asyncio.ensure_future(answer)
    await asyncio.sleep(0)
    assert not waiting.done()
    ledger.apply(running("other", on="n1/0", request=share(16, kind=KIND)))
    room.set()
    assert json.loads((await waiting).body)["NodeNames"] == []


async def test_a_filter_that_waited_for_nominations_decides_by_what_happened_meanwhile() -> None:
    seen = asyncio.Event()

    async def wait(uid: str) -> None:
        assert uid == "u"
        await seen.wait()

    ledger = Ledger()
    ledger.apply(node("n1", cards=(card(0, 16, kind=KIND),)))
    routes = routes_of(ledger, filter_wait=Mock(FilterWait, called=lambda uid, nodes: (uid, nodes) == ("u", 1), wait=wait))
    answer = routes.handle(filter_call(b'["n1"]'))
    assert isinstance(answer, Awaitable)
    waiting = asyncio.ensure_future(answer)
    await asyncio.sleep(0)
    assert not waiting.done()
    ledger.apply(running("other", on="n1/0", request=share(16, kind=KIND)))
    seen.set()
    assert json.loads((await waiting).body)["NodeNames"] == []


async def test_a_filter_that_waited_and_cannot_be_read_gets_its_error() -> None:
    """The names are read only when they are needed."""
    room = asyncio.Event()
    room.set()
    ledger = Ledger()
    ledger.apply(node("n1", cards=(card(0, 16, kind=KIND),)))
    answer = routes_of(ledger, Mock(Binder, has_room=False, wait_for_room=room.wait)).handle(filter_call(b'["n1",7]'))
    assert isinstance(answer, Awaitable)
    assert "cannot be read" in json.loads((await answer).body)["Error"]


async def test_a_standby_answers_a_filter_at_once_while_binds_wait() -> None:
    routes = routes_of(Ledger(), Mock(Binder, has_room=False))
    routes._not_ready = lambda: Standby("other")
    assert isinstance(routes.handle(filter_call(b'["n1"]')), Response)


@pytest.mark.parametrize("verb", ["filter", "bind"])
@pytest.mark.parametrize(
    "body", [b'{"Pod": {"metadata": {"name": "\xff"}}, "PodName": "\xff"}', b'{"Pod":' + b"[" * 30_000, b"\xff", b""]
)
async def test_the_error_of_an_unreadable_call_is_where_kube_scheduler_reads_it(verb: str, body: bytes) -> None:
    """Text that is not UTF-8, deep or no JSON: status 200, because kube-scheduler reads no other body."""
    answer = routes_of(Ledger()).handle(HttpRequest("POST", f"/accelshare/{verb}", body))
    assert isinstance(answer, Response)
    assert answer.status == 200
    assert "cannot be read" in json.loads(answer.body)["Error"]


async def test_between_two_nodes_of_a_preemption_others_have_their_turn() -> None:
    container = {"name": "c", "resources": {"limits": {CATALOG[KIND].resources.memory: "16"}}}
    pod = {"metadata": {"name": "a", "uid": "a"}, "spec": {"priority": 10, "containers": [container]}}
    victims = {f"n{number:03}": {"Pods": [{"UID": f"p{number:03}"}], "NumPDBViolations": number} for number in range(NODES)}
    body = json.dumps({"Pod": pod, "NodeNameToMetaVictims": victims}).encode()
    async with Turns() as turns:
        answer = routes_of(full_nodes(NODES)).handle(HttpRequest("POST", "/accelshare/preempt", body))
        assert isinstance(answer, Awaitable)
        answered: Response = await answer
    assert json.loads(answered.body)["NodeNameToMetaVictims"] == victims
    assert turns.taken >= NODES - 1


@pytest.mark.parametrize("prefix", ["/accelshare", CATALOG[KIND].http.prefix, CATALOG["kunlun"].http.prefix])
async def test_between_some_nodes_of_a_large_inspect_others_have_their_turn(prefix: str) -> None:
    """The response is the same as for all of them at once."""
    ledger = full_nodes(10 * NODES_AT_ONCE + 1)
    async with Turns() as turns:
        answer = routes_of(ledger).handle(HttpRequest("GET", f"{prefix}/inspect", b""))
        assert isinstance(answer, Awaitable)
        answered: Response = await answer
    profile = next((profile for profile in CATALOG if profile.http.prefix == prefix), None)
    at_once = inspect_json.neutral(rows(ledger)) if profile is None else inspect_json.dialect(rows(ledger), profile)
    assert answered.body + b"".join(answered.more) == orjson.dumps(at_once)
    assert turns.taken >= 10


def test_no_profile_can_take_a_path_of_our_own() -> None:
    """A profile with the prefix /accelshare would replace the neutral paths."""
    own = {NEUTRAL, "/metrics", *routes_of(Ledger())._pages}
    assert own == set(OWN_PATHS)
    assert set(PROBE_PATHS) <= set(OWN_PATHS)
    for path in own:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(path, UrlPrefix)


def asked_for(ledger: Ledger, name: str) -> str:
    answer = routes_of(ledger).handle(HttpRequest("GET", f"/accelshare/inspect/{name}", b""))
    assert isinstance(answer, Response)
    assert answer.status == 404
    return str(json.loads(answer.body)["error"])


def test_the_error_for_an_unknown_node_suggests_a_similar_name() -> None:
    ledger = full_nodes(3)
    assert "did you mean n001?" in asked_for(ledger, "n0011")
    assert "did you mean" not in asked_for(ledger, "quite-another")
    assert "did you mean" not in asked_for(ledger, "n" * 100_000)


def test_of_thousands_of_nodes_few_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def count(_word: str, names: Iterable[str], n: int) -> list[str]:
        compared.append(len(list(names)))
        return []

    monkeypatch.setattr(routes_room, "get_close_matches", count)
    ledger = Ledger()
    for number in range(2_000):
        ledger.apply(node(f"{'a' * 200}-{number:05}", 16))
    asked_for(ledger, "a" * 206)
    assert compared == [routes_room.MAX_COMPARED_NAMES]


async def test_a_standby_counts_no_call_of_kube_scheduler() -> None:
    """Its plan would take the pod for one that kube-scheduler has tried."""
    called = Mock(return_value=False)
    routes = routes_of(Ledger(), filter_wait=Mock(FilterWait, called=called))
    routes._not_ready = lambda: Standby("other")
    assert isinstance(routes.handle(filter_call(b'["n1"]')), Response)
    called.assert_not_called()


async def test_the_time_that_filter_waits_for_nominations_is_no_time_of_the_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """AccelshareFilterSlow would say that the extender is short of CPU."""
    now = [0.0]

    async def wait(_uid: str) -> None:
        now[0] += 0.9

    monkeypatch.setattr(routes_room, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    ledger = Ledger()
    ledger.apply(node("n1", cards=(card(0, 16, kind=KIND),)))
    routes = routes_of(ledger, filter_wait=Mock(FilterWait, called=lambda *_: True, wait=wait))
    took: list[float] = []
    monkeypatch.setattr(routes._metrics, "took", lambda _verb, seconds: took.append(seconds))
    answer = routes.handle(filter_call(b'["n1"]'))
    assert isinstance(answer, Awaitable)
    await answer
    assert took == [0.0]
