"""A snapshot has what the ledger has, in bounds, and other tasks run while it is built."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

from accelshare.dashboard.cluster_watch import ClusterWatch
from accelshare.dashboard.history import History
from accelshare.dashboard.snapshot import LONGEST_TEXT, NODES_AT_ONCE, SnapshotBuilder
from accelshare.ledger.ledger import Ledger
from accelshare.vendors.catalog import load
from accelshare.wire.inventory import CardEntry, KindEntry
from accelshare.wire.quotas import QuotaReader
from tests.builders import card, node, pending, running, share, whole

KIND = "nvidia"
WHOLE_KIND = "stream"
CATALOG = load([])


def builder(ledger: Ledger, *, now: float = 1000.0, history: History | None = None, **known: Any) -> SnapshotBuilder:
    watch = SimpleNamespace(ledger=ledger, inventories={}, quotas=[], interrupted={})
    watch.__dict__.update(known)
    return SnapshotBuilder(cast(ClusterWatch, watch), CATALOG, History() if history is None else history, clock=lambda: now)


def cards(*sizes: int) -> Any:
    return tuple(card(index, size, kind=KIND, id=f"id-{index}") for index, size in enumerate(sizes))


async def read(built: SnapshotBuilder) -> dict[str, Any]:
    snapshot = await built.build()
    sections = {name: json.loads(part) for name, part in snapshot.sections.items()}
    return {"nodes": {name: json.loads(part) for name, part in snapshot.nodes.items()}, **sections}


async def test_it_has_what_the_ledger_has() -> None:
    ledger = Ledger()
    ledger.apply(node("n1", cards=cards(16, 16)))
    ledger.apply(node("without-cards"))
    ledger.apply(running("a", on="n1/0", request=share(10, kind=KIND)))
    ledger.apply(running("b", on="n1/1", request=whole(kind=KIND)))
    ledger.apply(running("c", on="n1", request=share(2, kind=KIND)))
    ledger.apply(pending("p", share(8, kind=KIND)))
    snapshot = await read(builder(ledger))
    assert list(snapshot["nodes"]) == ["n1"]
    first, second = snapshot["nodes"]["n1"]["cards"]
    assert ([(pod["name"], pod["units"], pod["whole"]) for pod in first["pods"]], first["used"]) == ([("a", 10, False)], 10)
    assert [(pod["name"], pod["units"], pod["whole"]) for pod in second["pods"]] == [("b", 16, True)]
    assert [pod["name"] for pod in snapshot["nodes"]["n1"]["unplaced"]] == ["c"]
    assert [pod["name"] for pod in snapshot["waiting"]] == ["p"]
    totals = snapshot["totals"]
    assert (totals["nodes"], totals["cards"], totals["waiting"]) == (1, 2, 1)
    assert totals["vendors"][0]["used"] == 28
    assert snapshot["namespaces"] == [{"name": "default", "pods": 3, "held": {KIND: 28}, "quotas": []}]
    assert snapshot["history"] == [[1000, totals["fill"], totals["fragmentation"], 1]]


async def test_a_namespace_holds_cards_of_a_vendor_that_is_counted_in_cards() -> None:
    """Whatever memory such a card has: the vendor's total and unit are cards, too."""
    ledger = Ledger()
    ledger.apply(node("n1", cards=tuple(card(index, 16, kind=WHOLE_KIND, id=f"id-{index}") for index in range(2))))
    ledger.apply(running("a", on="n1/0", request=whole(kind=WHOLE_KIND)))
    snapshot = await read(builder(ledger))
    (vendor,) = snapshot["totals"]["vendors"]
    assert (vendor["used"], vendor["size"], vendor["unit"]) == (1, 2, "card")
    assert snapshot["namespaces"][0]["held"] == {WHOLE_KIND: 1}


async def test_texts_of_others_are_visible_and_short() -> None:
    ledger = Ledger()
    ledger.apply(node("n1", cards=cards(16)))
    entry = CardEntry(0, 16, id="id-0", model="\u202eevil\x1b" + "m" * 9_000, healthy=False, problem="p" * 9_000)
    snapshot = await read(builder(ledger, inventories={"n1": {KIND: KindEntry([entry], unit="GiB", delivery="d" * 9_000)}}))
    shown = snapshot["nodes"]["n1"]
    (shown_card,) = shown["cards"]
    assert len(shown_card["model"]) == len(shown_card["problem"]) == len(shown["delivery"][KIND]["way"]) == LONGEST_TEXT
    assert "\u202e" not in shown_card["model"]
    assert "\x1b" not in shown_card["model"]


async def test_other_tasks_run_while_it_is_built() -> None:
    """In the extender kube-scheduler waits for them."""
    ledger = Ledger()
    for number in range(NODES_AT_ONCE * 4):
        ledger.apply(node(f"n{number}", cards=cards(16)))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await builder(ledger).build()
    counting.cancel()
    assert turns >= 4


async def test_the_same_cluster_gives_the_same_bytes() -> None:
    """So that nothing is sent while nothing changes."""
    ledger = Ledger()
    ledger.apply(node("n1", cards=cards(16)))
    ledger.apply(running("a", on="n1/0", request=share(10, kind=KIND)))
    history = History()
    first = await builder(ledger, now=1000.0, history=history).build()
    second = await builder(ledger, now=1010.0, history=history).build()
    assert first == second


def quota(hard: dict[str, object], used: dict[str, object] | None = None) -> bytes:
    metadata = {"name": "q", "namespace": "ml", "uid": "u"}
    return json.dumps({"metadata": metadata, "status": {"hard": hard, "used": used or {}}}).encode()


def test_only_quotas_of_managed_resources_count() -> None:
    read = QuotaReader(CATALOG).decode
    assert read(quota({"pods": "4", "requests.cpu": "2", "requests.other.io/x": "1"})) is None
    assert read(b'{"metadata": {"name": "q", "uid": "u"}}') is None
    found = read(quota({"requests.aliyun.com/gpu-mem": "64", "aliyun.com/gpu-mem": "1"}, {"requests.aliyun.com/gpu-mem": 8}))
    assert found is not None
    assert [(row.namespace, row.kind, row.resource, row.hard, row.used) for row in found.rows] == [
        ("ml", KIND, "aliyun.com/gpu-mem", 64, 8)
    ]
    assert read(quota({"requests.aliyun.com/gpu-mem": "many"})) is None
