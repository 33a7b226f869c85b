"""Which cards a node gives, and the reason when it gives none."""

from dataclasses import replace

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from accelshare.ledger.ledger import Ledger
from accelshare.ledger.node_ledger import CardLedger
from accelshare.ledger.nouns import Ask, Card, Request, Slice
from accelshare.ledger.placing import UnplacedPods
from accelshare.ledger.refusals import Reason, Refusal
from tests.builders import KIND, card, given, node, pending, place, running, share, whole


def refused(reason: Reason, kind: str = KIND) -> Refusal:
    return Refusal(reason, kind)


def test_the_tightest_card_that_fits_is_chosen(ledger: Ledger) -> None:
    """The original systems' own example: 4, 8 and 12 of 16 are placed on cards 0, 0 and 1, and 20 on none."""
    ledger.apply(node("n1", *[16] * 8))
    assert place(ledger, "a", share(4), on="n1") == given("n1/0", 4)
    assert place(ledger, "b", share(8), on="n1") == given("n1/0", 8)
    assert place(ledger, "c", share(12), on="n1") == given("n1/1", 12)
    assert ledger.offer("n1", share(20)) == refused(Reason.LARGER_THAN_ANY_CARD)


def test_ties_go_to_the_lowest_index(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=(card(3, 16), card(1, 16), card(2, 16))))
    assert ledger.offer("n1", share(4)) == given("n1/1", 4)


def test_unequal_cards_each_count_with_their_own_size(ledger: Ledger) -> None:
    ledger.apply(node("n1", 24, 16, 8))
    assert ledger.offer("n1", share(8)) == given("n1/2", 8)
    assert ledger.offer("n1", share(9)) == given("n1/1", 9)
    assert ledger.offer("n1", share(17)) == given("n1/0", 17)
    assert ledger.offer("n1", share(25)) == refused(Reason.LARGER_THAN_ANY_CARD)


def test_several_cards_are_distinct_and_share_equally(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16, 16, 16))
    place(ledger, "a", share(12), on="n1")
    assert ledger.offer("n1", share(4, cards=2)) == given("n1/0,1", 4)
    assert ledger.offer("n1", share(8, cards=2)) == given("n1/1,2", 8)
    assert ledger.offer("n1", share(8, cards=3)) == refused(Reason.TOO_FEW_CARDS_HAVE_ROOM)
    assert ledger.offer("n1", share(1, cards=4)) == refused(Reason.TOO_FEW_CARDS)


def test_a_whole_card_has_nobody_else_on_it(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16, 16))
    place(ledger, "small", share(1), on="n1")
    assert place(ledger, "alone", whole(), on="n1") == given("n1/1", whole=True)
    assert ledger.offer("n1", whole()) == refused(Reason.NO_CARD_IS_EMPTY)
    assert ledger.offer("n1", share(15)) == given("n1/0", 15)
    assert ledger.offer("n1", share(16)) == refused(Reason.NO_CARD_HAS_ROOM)


def test_whole_cards_take_the_smallest_that_are_empty(ledger: Ledger) -> None:
    ledger.apply(node("n1", 32, 16, 16))
    assert ledger.offer("n1", whole(2)) == given("n1/1,2", whole=True)
    place(ledger, "a", whole(), on="n1")
    assert ledger.offer("n1", whole(3)) == refused(Reason.TOO_FEW_CARDS_ARE_EMPTY)
    assert ledger.offer("n1", whole(4)) == refused(Reason.TOO_FEW_CARDS)


def test_a_card_without_memory_is_allocated_whole_or_not_at_all(ledger: Ledger) -> None:
    ledger.apply(node("n1", 0, 0))
    assert ledger.offer("n1", share(1)) == refused(Reason.LARGER_THAN_ANY_CARD)
    assert place(ledger, "a", whole(), on="n1") == given("n1/0", whole=True)
    assert place(ledger, "b", whole(), on="n1") == given("n1/1", whole=True)
    assert ledger.offer("n1", whole()) == refused(Reason.NO_CARD_IS_EMPTY)


def test_several_kinds_are_allocated_together_or_not_at_all(ledger: Ledger) -> None:
    both: Request = (Ask("gpu", share=4), Ask("npu", whole=True))
    ledger.apply(node("n1", cards=(card(0, 16), Card("npu", 0, 0))))
    ledger.apply(node("n2", 16))
    assert place(ledger, "a", both, on="n1").slices[0].kind == "npu"
    assert ledger.offer("n1", both) == refused(Reason.NO_CARD_IS_EMPTY, "npu")
    assert ledger.offer("n2", both) == refused(Reason.NO_CARDS, "npu")
    assert ledger.offer("n1", share(12)) == given("n1/0", 12)


def test_a_pod_that_requests_a_whole_card_and_a_slice_gets_two_cards(ledger: Ledger) -> None:
    both: Request = (Ask(KIND, share=4), Ask(KIND, whole=True))
    ledger.apply(node("n1", 16, 16))
    slices = place(ledger, "a", both, on="n1").slices
    assert {slice_.index: slice_.whole for slice_ in slices} == {0: True, 1: False}
    ledger.apply(node("n2", 16))
    assert ledger.offer("n2", both) == refused(Reason.TOO_FEW_CARDS)  # it has one to share, only not for this pod


def test_an_unhealthy_card_gets_no_new_pods(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=(card(0, 16, healthy=False), card(1, 8))))
    assert ledger.offer("n1", share(4)) == given("n1/1", 4)
    assert ledger.offer("n1", share(12)) == refused(Reason.CARDS_UNHEALTHY)
    place(ledger, "a", share(1), on="n1")
    assert ledger.offer("n1", whole()) == refused(Reason.NO_CARD_IS_EMPTY)
    assert ledger.offer("n1", whole(2)) == refused(Reason.CARDS_UNHEALTHY)


def test_an_unknown_node_is_not_offered(ledger: Ledger) -> None:
    assert ledger.offer("nowhere", share(1)) == refused(Reason.UNKNOWN_NODE)


def test_a_pod_of_unknown_card_is_counted_in_the_worst_place(ledger: Ledger) -> None:
    """The card of the other pod is not known, so a new pod is placed only where it fits beside it."""
    ledger.apply(node("n1", 16, 16))
    ledger.apply(running("stranger", on="n1", request=share(10)))
    assert ledger.offer("n1", share(6)) == given("n1/0", 6)
    assert ledger.offer("n1", share(7)) == refused(Reason.NO_CARD_HAS_ROOM)
    assert ledger.offer("n1", whole()) == refused(Reason.NO_CARD_IS_EMPTY)

    ledger.apply(running("stranger", on="n1/1", request=share(10)))
    assert ledger.offer("n1", share(7)) == refused(Reason.NO_CARD_HAS_ROOM), "anybody could have written that"
    ledger.apply(replace(node("n1", 16, 16), corrected={"stranger": (Slice(KIND, 1, 10),)}))
    assert ledger.offer("n1", share(7)) == given("n1/0", 7)
    assert ledger.offer("n1", whole()) == given("n1/0", whole=True)


def test_pods_of_unknown_card_count_only_on_cards_where_they_fit(ledger: Ledger) -> None:
    """Two strangers of 10 cannot be on one card of 16, and neither on a card that has 8 left."""
    ledger.apply(node("n1", 16, 16, 16))
    ledger.apply(running("known", on="n1/0", request=share(8)))
    ledger.apply(running("s1", on="n1", request=share(10)))
    ledger.apply(running("s2", on="n1", request=share(10)))
    assert ledger.offer("n1", share(8)) == given("n1/0", 8)
    assert ledger.offer("n1", share(9)) == refused(Reason.NO_CARD_HAS_ROOM)


def test_an_unplaced_pod_with_a_whole_card_may_be_on_any_empty_one(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16, 16, 16))
    ledger.apply(running("known", on="n1/0", request=share(8)))
    ledger.apply(running("stranger", on="n1", request=whole()))
    assert ledger.offer("n1", share(8)) == given("n1/0", 8)
    assert ledger.offer("n1", share(9)) == refused(Reason.NO_CARD_HAS_ROOM)
    assert ledger.offer("n1", whole()) == refused(Reason.NO_CARD_IS_EMPTY)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_states_whether_eviction_could_help(reason: Reason) -> None:
    full = {
        *("no-card-has-room", "too-few-cards-have-room", "no-card-is-empty", "too-few-cards-are-empty"),
        "cards-have-most-slices",
    }
    assert reason.eviction_could_help == (reason.value in full)
    assert not (reason.eviction_could_help and reason.about_the_request)


def test_an_offer_changes_nothing(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    ledger.apply(pending("a", share(16)))
    assert [ledger.offer("n1", share(16)) for _ in range(3)] == [given("n1/0", 16)] * 3


def the_worst(free_units: int, shares: list[int]) -> int:
    """Every sum that some of them make, the largest that fits."""
    sums = {0}
    for each in shares:
        sums |= {sum_ + each for sum_ in sums if sum_ + each <= free_units}
    return max(sums)


@for_all(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    unplaced_pods=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 5)), min_size=1, max_size=5),
)
def test_pods_of_unknown_card_are_evaluated_once_for_all_cards(sizes: list[int], unplaced_pods: list[tuple[int, int]]) -> None:
    asks = [Ask(KIND, cards, each) for each, cards in unplaced_pods]
    shares = [each for each, cards in unplaced_pods for _ in range(cards)]
    worst = UnplacedPods(asks, sizes)
    for size in sizes:
        assert worst.most_on(CardLedger(card(0, size))) == the_worst(size, shares)


def test_a_node_with_too_many_unplaced_pods_is_estimated_conservatively() -> None:
    size = 1 << 24
    asks = [Ask(KIND, 255, 1000 + number) for number in range(60)]
    held = sum(ask.units for ask in asks)
    assert UnplacedPods(asks, [size]).most_on(CardLedger(card(0, size))) == min(size, held)
    assert UnplacedPods(asks, [size]).most_on(CardLedger(card(0, 1030))) == 1030
    assert UnplacedPods(asks, [size]).most_on(CardLedger(card(0, 500))) == 0, "none of them fits"


def test_reading_the_sums_of_many_large_cards_is_bounded_too() -> None:
    """One pod of unknown card has few sums, but each of 256 cards would read all of them."""
    size = 1 << 20
    ask = Ask(KIND, 16, (1 << 19) + 1)
    exact = UnplacedPods([ask], [size]).most_on(CardLedger(card(0, size)))
    assert exact == ask.share, "two of them do not fit"
    assert UnplacedPods([ask], [size] * 256).most_on(CardLedger(card(0, size))) == size


def with_most(most: int, *sizes: int) -> tuple[Card, ...]:
    return tuple(replace(card(index, size), max_slices=most) for index, size in enumerate(sizes))


def test_a_card_has_no_more_slices_than_it_can_have(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=with_most(2, 16, 16)))
    place(ledger, "a", share(4), on="n1")
    place(ledger, "b", share(4), on="n1")
    assert place(ledger, "c", share(4), on="n1") == given("n1/1", 4)
    place(ledger, "d", share(4), on="n1")
    assert ledger.offer("n1", share(4)) == refused(Reason.CARDS_HAVE_MOST_SLICES)
    assert ledger.offer("n1", share(4, cards=2)) == refused(Reason.CARDS_HAVE_MOST_SLICES)
    assert ledger.offer("n1", share(9)) == refused(Reason.NO_CARD_HAS_ROOM)
    assert ledger.offer("n1", share(17)) == refused(Reason.LARGER_THAN_ANY_CARD)


def test_a_pod_of_unknown_card_may_have_the_last_slice(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=with_most(2, 16)))
    ledger.apply(running("known", on="n1/0", request=share(1)))
    assert ledger.offer("n1", share(1)) == given("n1/0", 1)
    ledger.apply(running("stranger", on="n1", request=share(1)))
    assert ledger.offer("n1", share(1)) == refused(Reason.CARDS_HAVE_MOST_SLICES)


def test_too_many_slices_are_reported() -> None:
    """Facts can add up to more than a card can have: pods that were placed before the limit was known."""
    ledger = Ledger()
    ledger.apply(node("n1", cards=with_most(1, 16)))
    ledger.apply(running("a", on="n1/0", request=share(1)))
    ledger.apply(running("b", on="n1/0", request=share(1)))
    (problem,) = ledger.check()
    assert "2 slices of at most 1" in problem
