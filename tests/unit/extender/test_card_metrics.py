"""The metrics of nodes, cards and pods: each series once, written without blocking other requests."""

import asyncio
import itertools
from collections.abc import Collection

import pytest
from prometheus_client.parser import text_string_to_metric_families

from accelshare.extender import card_metrics
from accelshare.ledger.facts import AgentSeen, NodeSeen, PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Card, Slice
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.vendors.catalog import load
from tests.builders import card, limited, node, node_gone, pending, place, running, share, whole

Labels = tuple[tuple[str, str], ...]


async def text(ledger: Ledger) -> str:
    return b"".join(await card_metrics.page(ledger, profiles=load().profiles)).decode()


async def read(ledger: Ledger, *, only_whole: Collection[str] = ()) -> dict[tuple[str, Labels], float]:
    """The page as the reference parser reads it; a duplicate series is an error."""
    found: dict[tuple[str, Labels], float] = {}
    for family in text_string_to_metric_families(b"".join(await card_metrics.page(ledger, only_whole=only_whole)).decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


def at(name: str, **labels: str) -> tuple[str, Labels]:
    return f"accelshare_{name}", tuple(sorted(labels.items()))


async def test_every_card_has_its_size_held_units_and_health() -> None:
    ledger = Ledger()
    ledger.apply(node("n1", cards=(card(0, 16), card(1, 8, healthy=False))))
    place(ledger, "a", share(4), on="n1")
    page = await read(ledger)
    for index, size, held, healthy in (("0", 16, 4, 1), ("1", 8, 0, 0)):
        where = {"node": "n1", "vendor": "gpu", "card": index}
        assert page[at("card_units", **where)] == size
        assert page[at("card_held_units", **where)] == held
        assert page[at("card_healthy", **where)] == healthy
    assert page[at("pod_held_units", node="n1", vendor="gpu", card="0", namespace="default", pod="a")] == 4


async def test_a_card_that_is_only_assigned_whole_is_one_unit() -> None:
    ledger = Ledger()
    ledger.apply(node("n1", 0, 0))
    place(ledger, "a", whole(), on="n1")
    page = await read(ledger)
    assert page[at("card_units", node="n1", vendor="gpu", card="0")] == 1
    assert page[at("card_held_units", node="n1", vendor="gpu", card="0")] == 1
    assert page[at("card_held_units", node="n1", vendor="gpu", card="1")] == 0
    assert page[at("pod_held_units", node="n1", vendor="gpu", card="0", namespace="default", pod="a")] == 1


async def test_a_card_that_is_only_assigned_whole_is_one_unit_even_if_its_node_reports_its_memory() -> None:
    ledger = Ledger()
    ledger.apply(node("n1", 16))
    place(ledger, "a", whole(), on="n1")
    page = await read(ledger, only_whole={"gpu"})
    where = {"node": "n1", "vendor": "gpu", "card": "0"}
    assert (page[at("card_units", **where)], page[at("card_held_units", **where)]) == (1, 1)
    assert page[at("pod_held_units", **where, namespace="default", pod="a")] == 1


async def test_a_pods_share_of_its_card_is_a_ratio_whatever_the_unit() -> None:
    """So that shares of different vendors' cards can be added up as cards."""
    ledger = Ledger()
    ledger.apply(node("n1", cards=(card(0, 16), card(1, 16), card(0, 0, kind="npu"))))
    place(ledger, "slice", share(4), on="n1")
    place(ledger, "whole", whole(), on="n1")
    place(ledger, "npu", whole(kind="npu"), on="n1")
    page = await read(ledger)
    ratios = {dict(labels)["pod"]: value for (name, labels), value in page.items() if name == "accelshare_pod_held_ratio"}
    assert ratios == {"slice": 0.25, "whole": 1, "npu": 1}


async def test_a_pod_on_a_missing_or_unknown_card_has_no_ratio() -> None:
    ledger = Ledger()
    ledger.apply(NodeSeen("n1", 1, (Card("gpu", 1, 16, id="new"),)))
    ledger.apply(PodSeen("a", "default", "a", share(6), 2, node="n1", slices=(Slice("gpu", 0, 6, id="old"),)))
    ledger.apply(running("b", on="n1", request=share(5)))
    assert "accelshare_pod_held_ratio{" not in await text(ledger)


async def test_pods_that_wait_for_cards_are_counted_by_namespace_and_vendor() -> None:
    """A pod whose request is wrong waits, too; one that is held for a bind does not."""
    ledger = Ledger()
    ledger.apply(node("n1", 16))
    place(ledger, "bound", share(4), on="n1")
    for name in ("a", "b"):
        ledger.apply(pending(name, (*share(40), *whole(kind="npu"))))
    ledger.apply(PodSeen("c", "team", "c", (), 1, refusal=Refusal(Reason.AMOUNT_UNREADABLE, "gpu")))
    page = {key: value for key, value in (await read(ledger)).items() if "pending" in key[0]}
    assert page == {
        at("pending_pods", namespace="default", vendor="gpu"): 2,
        at("pending_pods", namespace="default", vendor="npu"): 2,
        at("pending_pods", namespace="team", vendor="gpu"): 1,
    }


async def test_every_card_with_shares_has_one_series_with_the_way_that_enforces_them() -> None:
    ledger = Ledger()
    ledger.apply(node("n1", cards=(limited(0, 16), card(1, 16), card(2, 0), card(0, 16, kind="npu"))))
    page = {key: value for key, value in (await read(ledger, only_whole={"npu"})).items() if "enforcement" in key[0]}
    where = {"node": "n1", "vendor": "gpu"}
    assert page == {
        at("card_enforcement", **where, card="0", way="driver"): 1,
        at("card_enforcement", **where, card="1", way="nobody"): 0,
    }


async def test_what_a_way_does_not_limit_is_a_series_each() -> None:
    page = b"".join(await card_metrics.page(Ledger(), profiles=load().profiles)).decode()
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    found = {(sample.labels["vendor"], sample.labels["way"], sample.labels["what"]): sample.value for sample in samples}
    assert found[("nvidia", "nvml", "compute")] == found[("amd", "dmem", "host memory that the card uses (GTT)")] == 1
    assert not any(vendor == "stream" for vendor, _, _ in found)


async def test_a_missing_card_has_no_series_of_enforcement() -> None:
    ledger = Ledger()
    ledger.apply(NodeSeen("n1", 1, (Card("gpu", 1, 16, id="new"),)))
    ledger.apply(PodSeen("a", "default", "a", share(6), 2, node="n1", slices=(Slice("gpu", 0, 6, id="old"),)))
    assert (await text(ledger)).count("accelshare_card_enforcement{") == 1


async def test_a_pod_with_an_unknown_card_has_the_card_label_unknown() -> None:
    ledger = Ledger()
    ledger.apply(node("n1", 16))
    ledger.apply(running("a", on="n1", request=share(5)))
    page = await read(ledger)
    assert page[at("card_held_units", node="n1", vendor="gpu", card="0")] == 0
    assert page[at("pod_held_units", node="n1", vendor="gpu", card="unknown", namespace="default", pod="a")] == 5


async def test_a_missing_card_is_labelled_with_its_id() -> None:
    """Any user can write its id, so it is escaped and has no control characters."""
    ledger = Ledger()
    ledger.apply(NodeSeen("n1", 1, (Card("gpu", 1, 16, id="new"),)))
    record = (Slice("gpu", 0, 6, id='o"l\\d\n\x1b\u202e'),)
    ledger.apply(PodSeen("a", "default", "a", share(6), 2, node="n1", slices=record))
    page = await read(ledger)
    assert page[at("card_units", node="n1", vendor="gpu", card="1")] == 16
    missing = {"node": "n1", "vendor": "gpu", "card": 'missing o"l\\d\\n\\x1b\\u202e'}
    assert (page[at("card_units", **missing)], page[at("card_healthy", **missing)]) == (0, 0)
    assert page[at("card_held_units", **missing)] == 6


async def test_a_node_has_its_delivery_state_and_its_ready_agents() -> None:
    ledger = Ledger()
    for name, ready in (("n1", True), ("n2", False)):
        ledger.apply(node(name, 16))
        ledger.apply(AgentSeen(f"agent-{name}", name, ready))
    ledger.apply(NodeSeen("n3", 1, (card(0, 16),), paused=frozenset({"gpu"})))
    ledger.apply(node("bare"))
    page = await read(ledger)
    values = [
        (page[at("node_delivers", node=name, vendor="gpu")], page[at("node_ready_agents", node=name)])
        for name in ("n1", "n2", "n3")
    ]
    assert values == [(1, 1), (0, 0), (0, 0)]
    assert at("node_ready_agents", node="bare") not in page, "a node without cards needs no agent"


async def test_every_family_has_its_help_even_in_an_empty_cluster() -> None:
    families = {family.name: family for family in text_string_to_metric_families(await text(Ledger()))}
    assert list(families) == list(card_metrics.FAMILIES)
    assert all(family.type == "gauge" and family.documentation for family in families.values())


async def test_other_tasks_run_while_the_page_is_written() -> None:
    """A scrape of many nodes yields after every few nodes; a node that is deleted meanwhile is left out."""
    ledger = Ledger()
    for number in range(5 * card_metrics.NODES_AT_ONCE):
        ledger.apply(node(f"n{number:03d}", 16))
    scrape = asyncio.ensure_future(card_metrics.page(ledger))
    turns = 0
    for turns in itertools.count():
        if scrape.done():
            break
        if turns == 1:
            ledger.apply(node_gone("n079"))
        await asyncio.sleep(0)
    assert turns >= 5
    page = b"".join(scrape.result())
    assert b'node="n078"' in page
    assert b'node="n079"' not in page


@pytest.mark.parametrize("family", card_metrics.FAMILIES)
async def test_the_lines_of_a_family_stand_together(family: str) -> None:
    """Prometheus' text format requires that."""
    ledger = Ledger()
    for number in range(3 * card_metrics.NODES_AT_ONCE):
        ledger.apply(node(f"n{number}", 16))
        place(ledger, f"p{number}", share(4), on=f"n{number}")
    ledger.apply(pending("waits", share(4)))
    names = [line.partition("{")[0] for line in (await text(ledger)).splitlines() if not line.startswith("#")]
    assert [name for name, _ in itertools.groupby(names)].count(family) == 1
