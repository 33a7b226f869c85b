"""The shadow of the ledger: promised pods count there, and nowhere else."""

from collections.abc import Callable

import pytest

from accelshare.ledger.facts import Fact
from accelshare.ledger.ledger import CannotHoldError, Ledger
from accelshare.ledger.nouns import Assignment
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.ledger.shadow import Promise, Shadow
from tests.builders import card, given, gone, node, node_gone, pending, place, running, share, whole


@pytest.fixture
def shadow(ledger: Ledger) -> Shadow:
    ledger.apply(node("n1", 16, 16))
    ledger.apply(node("n2", 16))
    return Shadow(ledger)


def promised(shadow: Shadow, name: str, units: int, on: str) -> Assignment:
    promise = shadow.add(name, share(units), on)
    assert isinstance(promise, Promise), promise
    return promise.assignment


def test_promised_cards_are_taken_in_the_shadow_and_free_in_the_ledger(ledger: Ledger, shadow: Shadow) -> None:
    assert promised(shadow, "a", 12, "n2") == given("n2/0", 12)
    assert shadow.add("b", share(12), "n2") == Refusal(Reason.NO_CARD_HAS_ROOM, "gpu")
    assert list(shadow.ranking(share(12)).in_order({"n1", "n2"})) == ["n1"]
    assert ledger.offer("n2", share(12)) == given("n2/0", 12)
    assert shadow.check() == []


def test_a_pod_bound_to_its_promised_cards_changes_nothing(ledger: Ledger, shadow: Shadow) -> None:
    ledger.apply(pending("a", share(12)))
    assignment = promised(shadow, "a", 12, "n1")
    promised(shadow, "b", 4, "n1")
    ledger.hold("a", assignment)
    assert shadow.broken() == []
    assert shadow.check() == []
    shadow.remove("a")
    assert shadow.check() == []
    assert shadow.add("c", share(4), "n1") == Promise("c", share(4), given("n1/1", 4))


def test_a_pod_can_hold_its_promised_cards_though_others_are_offered_first(ledger: Ledger, shadow: Shadow) -> None:
    for name in ("a", "b"):
        ledger.apply(pending(name, share(12)))
    promised(shadow, "a", 12, "n1")
    second = promised(shadow, "b", 12, "n1")
    assert second == given("n1/1", 12) != ledger.offer("n1", share(12))
    ledger.hold("b", second)
    assert ledger.offer("n1", share(12)) == given("n1/0", 12)


def test_cards_that_are_taken_cannot_be_held(ledger: Ledger, shadow: Shadow) -> None:
    ledger.apply(pending("a", share(12)))
    assignment = promised(shadow, "a", 12, "n1")
    place(ledger, "stranger", share(12), on="n1")
    with pytest.raises(CannotHoldError):
        ledger.hold("a", assignment)


def test_a_stranger_on_the_promised_card_breaks_the_promise(ledger: Ledger, shadow: Shadow) -> None:
    assignment = promised(shadow, "a", 12, "n2")
    place(ledger, "stranger", share(8), on="n2")
    assert shadow.broken() == [Promise("a", share(12), assignment)]
    assert "a" not in shadow
    assert shadow.broken() == []


def test_the_oldest_promise_of_a_card_is_kept(ledger: Ledger, shadow: Shadow) -> None:
    for name in ("a", "b", "c"):
        promised(shadow, name, 5, "n2")
    place(ledger, "stranger", share(4), on="n2")
    assert [promise.uid for promise in shadow.broken()] == ["c"]
    assert shadow.check() == []


@pytest.mark.parametrize(
    "change",
    [lambda: node("n2", cards=(card(0, 16, healthy=False),)), lambda: node("n2", 8), lambda: node_gone("n2")],
    ids=["ill", "smaller", "gone"],
)
def test_a_card_that_is_ill_smaller_or_gone_breaks_its_promises(
    ledger: Ledger, shadow: Shadow, change: Callable[[], Fact]
) -> None:
    promised(shadow, "a", 12, "n2")
    ledger.apply(change())
    assert [promise.uid for promise in shadow.broken()] == ["a"]


def test_a_withdrawn_promise_frees_its_cards(ledger: Ledger, shadow: Shadow) -> None:
    promised(shadow, "a", 16, "n2")
    shadow.remove("a")
    assert shadow.add("b", whole(), "n2") == Promise("b", whole(), given("n2/0", whole=True))
    assert shadow.check() == []


def test_a_pod_that_ended_frees_its_card_in_the_shadow_too(ledger: Ledger, shadow: Shadow) -> None:
    ledger.apply(running("old", on="n2/0", request=share(16)))
    assert isinstance(shadow.add("a", share(4), "n2"), Refusal)
    ledger.apply(gone("old"))
    assert isinstance(shadow.add("a", share(4), "n2"), Promise)
    assert shadow.check() == []


def test_a_pod_on_an_unknown_card_counts_on_each_card(ledger: Ledger, shadow: Shadow) -> None:
    promised(shadow, "a", 12, "n1")
    ledger.apply(running("direct", on="n1", request=share(8)))
    assert [promise.uid for promise in shadow.broken()] == ["a"]
    assert shadow.check() == []


def test_many_changes_between_two_calls_are_not_lost(ledger: Ledger, shadow: Shadow) -> None:
    promised(shadow, "a", 12, "n2")
    shadow.ranking(share(4))
    for _ in range(9_000):
        ledger.set_rejecting("n1", True)
        ledger.set_rejecting("n1", False)
    place(ledger, "stranger", share(8), on="n2")
    assert [promise.uid for promise in shadow.broken()] == ["a"]
    assert shadow.check() == []


def test_a_pod_that_has_its_cards_leaves_no_copy_of_a_node_behind(ledger: Ledger, shadow: Shadow) -> None:
    """A bind whose response was lost holds cards on n1, which kube-scheduler does not name any more."""
    ledger.apply(pending("a", share(16)))
    offer = ledger.offer("n1", share(16))
    assert isinstance(offer, Assignment)
    ledger.hold("a", offer)
    assert isinstance(shadow.add("a", share(16), "n2"), Refusal)
    place(ledger, "b", share(16), on="n2")
    assert "n2" not in shadow.ranking(share(16)).best(ledger.known_nodes, 2)
    assert shadow.check() == []
