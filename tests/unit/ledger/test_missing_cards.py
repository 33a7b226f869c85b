"""Records that name a card which the node has lost: they count for one card at most."""

from dataclasses import replace

import pytest

from accelshare.ledger.facts import PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Assignment, Request, Slice
from accelshare.ledger.preemption import victims
from accelshare.ledger.refusals import Refusal
from tests.builders import KIND, card, gone, node, running, share, whole

GAP = (card(0, 16, id="A"), card(2, 16, id="C"))  # card 1 is missing


def pod(name: str, units: int, *slices: tuple[int, str]) -> PodSeen:
    """A running pod with so many units on each of these cards (index, id)."""
    request = share(units, cards=len(slices))
    return replace(
        running(name, on="n1", request=request), slices=tuple(Slice(KIND, index, units, id=id) for index, id in slices)
    )


def whole_pod(name: str, *slices: tuple[int, str]) -> PodSeen:
    record = tuple(Slice(KIND, index, whole=True, id=id) for index, id in slices)
    return replace(running(name, on="n1", request=whole(len(slices))), slices=record)


def on_missing_cards(ledger: Ledger) -> dict[str, dict[str, int]]:
    node_ledger = ledger.node("n1")
    assert node_ledger is not None
    return {missing.card.id: missing.holders for missing in node_ledger.missing.values()}


def unplaced(ledger: Ledger) -> list[str]:
    node_ledger = ledger.node("n1")
    assert node_ledger is not None
    return sorted(node_ledger.unplaced)


def offers(ledger: Ledger, request: Request) -> bool:
    return isinstance(ledger.offer("n1", request), Assignment)


def test_pods_of_one_lost_card_are_counted_on_it(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=GAP))
    ledger.apply(pod("a", 10, (1, "B")))
    ledger.apply(pod("b", 6, (1, "B")))
    assert (on_missing_cards(ledger), unplaced(ledger)) == ({"B": {"a": 10, "b": 6}}, [])
    assert offers(ledger, share(16, cards=2))


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param((pod("a", 16, (1, "X")), pod("c", 16, (1, "Y"))), id="two ids for one card"),
        pytest.param((pod("a", 16, (1, "X")), pod("c", 16, (1, "X"))), id="more than a card has"),
        pytest.param((whole_pod("a", (1, "X")), whole_pod("c", (1, "X"))), id="whole by two pods"),
        pytest.param((whole_pod("a", (1, "X")), pod("c", 16, (1, "X"))), id="whole and shared at once"),
        pytest.param((whole_pod("both", (1, "X"), (1, "X")),), id="twice by one pod"),
        pytest.param((pod("both", 16, (1, "X"), (1, "X")),), id="two slices of one pod"),
    ],
)
@pytest.mark.parametrize("backwards", [False, True])
def test_forged_records_of_a_lost_card_free_no_real_card(ledger: Ledger, forged: tuple[PodSeen, ...], backwards: bool) -> None:
    """Both cards are full. The extender restarts, and finds the records of their pods rewritten to the index that is missing."""
    ledger.apply(node("n1", cards=GAP))
    for fact in reversed(forged) if backwards else forged:
        ledger.apply(fact)
    assert (on_missing_cards(ledger), unplaced(ledger)) == ({}, sorted(fact.uid for fact in forged))
    assert not offers(ledger, share(1))
    assert not offers(ledger, whole())


def test_one_id_is_one_lost_card(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=(card(0, 16, id="A"), card(3, 16, id="D"))))
    ledger.apply(pod("a", 16, (1, "X")))
    assert on_missing_cards(ledger) == {"X": {"a": 16}}
    ledger.apply(pod("d", 16, (2, "X")))
    assert (on_missing_cards(ledger), unplaced(ledger)) == ({}, ["a", "d"])
    assert not offers(ledger, share(1))


def test_each_of_several_lost_cards_is_judged_for_itself(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=(card(0, 16, id="A"), card(3, 16, id="D"))))
    for fact in (pod("b", 12, (1, "B")), pod("x", 12, (2, "X")), pod("y", 12, (2, "Y"))):
        ledger.apply(fact)
    assert (on_missing_cards(ledger), unplaced(ledger)) == ({"B": {"b": 12}}, ["x", "y"])


def test_what_is_believed_follows_the_pods_that_are_there(ledger: Ledger) -> None:
    """When the forged claim is gone, the honest pod is on its lost card again."""
    ledger.apply(node("n1", cards=GAP))
    ledger.apply(pod("honest", 12, (1, "B")))
    ledger.apply(pod("forged", 12, (1, "X")))
    assert (on_missing_cards(ledger), unplaced(ledger)) == ({}, ["forged", "honest"])
    assert not offers(ledger, share(5))
    assert ledger.apply(gone("forged")) == "n1"
    assert (on_missing_cards(ledger), unplaced(ledger)) == ({"B": {"honest": 12}}, [])
    assert offers(ledger, share(16, cards=2))
    ledger.apply(node("n1", cards=(*GAP, card(1, 16, id="B"))))
    assert on_missing_cards(ledger) == {}
    assert ledger.offer("n1", share(4)) == Assignment("n1", (Slice(KIND, 1, 4, id="B"),))


def test_a_pod_with_a_card_that_is_not_believed_is_of_unknown_card_as_a_whole(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=GAP))
    ledger.apply(pod("wide", 10, (0, "A"), (1, "B")))
    assert on_missing_cards(ledger) == {"B": {"wide": 10}}
    assert ledger.offer("n1", share(6)) == Assignment("n1", (Slice(KIND, 0, 6, id="A"),))
    ledger.apply(pod("forged", 4, (1, "X")))
    assert (on_missing_cards(ledger), unplaced(ledger)) == ({}, ["forged", "wide"])
    assert ledger.offer("n1", share(2)) == Assignment("n1", (Slice(KIND, 0, 2, id="A"),))
    assert not offers(ledger, share(3))


def test_a_record_with_the_id_of_a_lost_card_at_another_index_is_not_on_it(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=GAP))
    ledger.apply(pod("b", 8, (1, "B")))
    ledger.apply(pod("other", 8, (0, "B")))
    assert (on_missing_cards(ledger), unplaced(ledger)) == ({"B": {"b": 8}}, ["other"])


def test_preemption_sees_what_is_believed_after_the_victims_are_gone(ledger: Ledger) -> None:
    """Without the one pod the claim of the other is believed, and both cards are free."""
    ledger.apply(node("n1", cards=GAP))
    ledger.apply(pod("a", 16, (1, "X")))
    ledger.apply(pod("c", 16, (1, "Y")))
    assert isinstance(ledger.offer("n1", share(8)), Refusal)
    chosen = victims(ledger, "n1", share(8), priority=10, proposed=["a"])
    assert chosen == ["a"]
    assert unplaced(ledger) == ["a", "c"], "the ledger itself is unchanged"
