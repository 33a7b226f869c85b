"""The order of nodes for each request, cached and updated by changes."""

import pytest

from accelshare.ledger import ledger as book_module
from accelshare.ledger import rankings as rankings_module
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.node_ledger import NodeLedger
from accelshare.ledger.nouns import Request
from accelshare.ledger.placing import POLICIES, Fit, Policy, fit
from accelshare.ledger.rankings import CHANGES_REMEMBERED
from accelshare.ledger.refusals import Reason, Refusal
from tests.builders import gone, node, node_gone, place, running, share

ALL = frozenset({"n1", "n2", "n3"})


def test_the_tightest_card_of_the_cluster_comes_first(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16, 16))
    ledger.apply(node("n2", 16, 8))
    ledger.apply(node("n3", 4))
    ranking = ledger.ranking(share(8))
    assert ranking.best(ALL) == ["n2", "n1"]
    assert {refusal.reason: nodes for refusal, nodes in ranking.refused.items()} == {Reason.LARGER_THAN_ANY_CARD: {"n3"}}


def test_among_equals_untouched_cards_are_spared_then_names_decide(ledger: Ledger) -> None:
    ledger.apply(node("n2", 16, 16))
    ledger.apply(node("n1", 16, 16))
    ledger.apply(node("n3", 16, 16))
    ledger.apply(running("a", on="n3/1", request=share(2)))
    assert ledger.ranking(share(16)).best(ALL) == ["n3", "n1", "n2"]


def test_only_the_queried_nodes_are_ranked(ledger: Ledger) -> None:
    for name in ALL:
        ledger.apply(node(name, 16))
    assert ledger.ranking(share(4)).best(frozenset({"n2", "n3"}), 1) == ["n2"]
    assert ledger.ranking(share(4)).best(frozenset({"unheard"})) == []


def test_spread_takes_the_emptiest() -> None:
    ledger = Ledger(POLICIES["spread"])
    ledger.apply(node("n1", 16, 16))
    ledger.apply(node("n2", 24))
    assert ledger.ranking(share(4)).best(ALL) == ["n2", "n1"]
    place(ledger, "a", share(4), on="n1")
    offer = ledger.offer("n1", share(4))
    assert offer == place(ledger, "b", share(4), on="n1")
    assert ledger.check() == []


def test_cached_rankings_follow_every_change(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    ledger.apply(node("n2", 16))
    assert ledger.ranking(share(8)).best(ALL) == ["n1", "n2"]
    place(ledger, "a", share(8), on="n2")
    assert ledger.ranking(share(8)).best(ALL) == ["n2", "n1"]
    ledger.apply(node("n3", 8))
    assert ledger.ranking(share(8)).best(ALL) == ["n2", "n3", "n1"]
    ledger.apply(node_gone("n3"))
    ledger.release("a")
    assert ledger.ranking(share(8)).best(ALL) == ["n1", "n2"]
    ledger.apply(running("b", on="n1/0", request=share(12)))
    assert ledger.ranking(share(8)).best(ALL) == ["n2"]
    ledger.apply(gone("b"))
    assert ledger.ranking(share(8)).best(ALL) == ["n1", "n2"]


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    looked: list[str] = []

    def looking(node: NodeLedger, request: Request, policy: Policy) -> Fit | Refusal:
        looked.append(node.name)
        return fit(node, request, policy)

    monkeypatch.setattr(book_module, "fit", looking)
    return looked


def test_a_repeated_ranking_evaluates_only_changed_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An offer over thousands of nodes must not evaluate thousands of nodes each time."""
    ledger = Ledger()
    names = frozenset(f"n{number}" for number in range(1000))
    for name in names:
        ledger.apply(node(name, 16, 16))
    looked = count_looks(monkeypatch)
    ledger.ranking(share(4))
    assert len(looked) == 1000
    looked.clear()
    for number in range(50):
        (best,) = ledger.ranking(share(4)).best(names, 1)
        place(ledger, f"p{number}", share(4), on=best)
    # For each pod: one offer by the test, one to check the hold, one to bring the ranking up to date.
    assert len(looked) <= 3 * 50


def asked_anew(ledger: Ledger, requests: int) -> int:
    """How many of these requests, asked in turn, are no longer cached in the next round."""
    for units in range(1, requests + 1):
        ledger.ranking(share(units))
    remembered = set(ledger._rankings._rankings)
    return sum(share(units) not in remembered for units in range(1, requests + 1))


def test_more_requests_are_cached_if_there_are_few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rankings_module, "ANSWERS_REMEMBERED", 1_000)
    monkeypatch.setattr(rankings_module, "FEWEST_REQUESTS", 3)
    ledger = Ledger()
    for number in range(10):
        ledger.apply(node(f"n{number}", 16))
    assert asked_anew(ledger, 100) == 0
    assert asked_anew(ledger, 101) == 1
    for number in range(10, 1_000):
        ledger.apply(node(f"n{number}", 16))
    assert asked_anew(ledger, 10) == 7


def test_the_cache_of_requests_is_bounded() -> None:
    ledger = Ledger(cached_requests=4)
    ledger.apply(node("n1", 64))
    for units in range(1, 33):
        assert ledger.ranking(share(units)).best({"n1"}) == ["n1"]
    assert len(ledger._rankings._rankings) == 4
    assert ledger.check() == []


def test_a_request_unused_for_a_long_history_is_evaluated_again(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    ledger.ranking(share(8))
    for number in range(CHANGES_REMEMBERED + 1):
        ledger.apply(running(f"p{number}", on="n1/0", request=share(1)))
        ledger.apply(gone(f"p{number}"))
    ledger.apply(running("last", on="n1/0", request=share(12)))
    assert ledger.ranking(share(8)).best({"n1"}) == []
    assert len(ledger._rankings._log) <= 2 * CHANGES_REMEMBERED
