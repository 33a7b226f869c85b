"""Pods that require or prefer cards with limits, and the smallest share that a limited card can serve."""

from dataclasses import replace

import pytest

from accelshare.ledger.ledger import CannotHoldError, Ledger
from accelshare.ledger.nouns import Ask, Assignment, LimitNeed, Request, Slice
from accelshare.ledger.preemption import victims
from accelshare.ledger.refusals import Reason, Refusal
from tests.builders import KIND, again, card, given, limited, node, pending, place, running, share, whole

REQUIRED, PREFERRED = LimitNeed.REQUIRED, LimitNeed.PREFERRED


def refused(reason: Reason) -> Refusal:
    return Refusal(reason, KIND)


def test_a_pod_that_requires_a_limit_gets_only_cards_with_one(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=(card(0, 8), limited(1, 16))))
    assert ledger.offer("n1", share(4)) == given("n1/0", 4)
    assert ledger.offer("n1", share(4, limits=REQUIRED)) == given("n1/1", 4)
    assert ledger.offer("n1", share(4, cards=2, limits=REQUIRED)) == refused(Reason.LIMITS_NOT_ENFORCED)


def test_a_node_without_limits_refuses_it_and_no_eviction_helps(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16, 16))
    ledger.apply(running("there", on="n1/0", request=share(16)))
    reason = Reason.LIMITS_NOT_ENFORCED
    assert ledger.offer("n1", share(4, limits=REQUIRED)) == refused(reason)
    assert not reason.eviction_could_help
    assert not reason.about_the_request
    assert victims(ledger, "n1", share(4, limits=REQUIRED), priority=9, proposed=["there"]) is None


def test_a_size_that_no_card_has_is_named_before_the_limit(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    assert ledger.offer("n1", share(17, limits=REQUIRED)) == refused(Reason.LARGER_THAN_ANY_CARD)


def test_eviction_helps_where_the_cards_with_limits_are_full(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=(card(0, 16), limited(1, 16))))
    ledger.apply(running("elsewhere", on="n1/0", request=share(16)))
    ledger.apply(running("there", on="n1/1", request=share(16)))
    assert ledger.offer("n1", share(4, limits=REQUIRED)) == refused(Reason.NO_CARD_HAS_ROOM)
    assert victims(ledger, "n1", share(4, limits=REQUIRED), priority=9, proposed=["elsewhere"]) == ["there"]


def test_unhealthy_cards_with_limits_are_named_as_the_reason(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=(card(0, 16), limited(1, 16, healthy=False))))
    assert ledger.offer("n1", share(4, limits=REQUIRED)) == refused(Reason.CARDS_UNHEALTHY)


def test_preferred_takes_cards_with_limits_first_and_others_too(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=(card(0, 4), limited(1, 16), limited(2, 8))))
    assert ledger.offer("n1", share(4, limits=PREFERRED)) == given("n1/2", 4)
    assert ledger.offer("n1", share(4, cards=3, limits=PREFERRED)) == Assignment(
        "n1", (Slice(KIND, 2, 4), Slice(KIND, 1, 4), Slice(KIND, 0, 4))
    )
    ledger.apply(node("n2", 16))
    assert ledger.offer("n2", share(4, limits=PREFERRED)) == given("n2/0", 4)


def test_preferred_ranks_nodes_by_cards_without_a_limit_then_by_the_policy(ledger: Ledger) -> None:
    ledger.apply(node("tight", 4))
    ledger.apply(node("loose", cards=(limited(0, 32),)))
    ledger.apply(node("middle", cards=(limited(0, 16),)))
    everywhere = ("tight", "loose", "middle")
    assert ledger.ranking(share(4)).best(everywhere) == ["tight", "middle", "loose"]
    assert ledger.ranking(share(4, limits=PREFERRED)).best(everywhere) == ["middle", "loose", "tight"]
    assert ledger.ranking(share(4, limits=REQUIRED)).best(everywhere) == ["middle", "loose"]


def test_a_ranking_follows_cards_that_get_and_lose_their_limit(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    ledger.apply(node("n2", 32))
    asked = share(4, limits=REQUIRED)
    assert ledger.ranking(asked).best(("n1", "n2")) == []
    assert ledger.apply(node("n2", cards=(limited(0, 32),))) == "n2", "a pod that waits may fit now"
    assert ledger.ranking(asked).best(("n1", "n2")) == ["n2"]
    assert ledger.ranking(share(4, limits=PREFERRED)).best(("n1", "n2")) == ["n2", "n1"]
    ledger.apply(node("n2", 32))
    assert ledger.ranking(asked).best(("n1", "n2")) == []
    assert ledger.ranking(share(4, limits=PREFERRED)).best(("n1", "n2")) == ["n1", "n2"]


@pytest.mark.parametrize("limits", LimitNeed)
def test_a_share_below_the_minimum_of_the_card_is_refused(ledger: Ledger, limits: LimitNeed) -> None:
    ledger.apply(node("n1", cards=(limited(0, 16, min_units=2), limited(1, 32, min_units=3))))
    assert ledger.offer("n1", share(1, limits=limits)) == refused(Reason.SMALLER_THAN_MINIMUM)
    assert ledger.offer("n1", share(2, limits=limits)) == given("n1/0", 2)
    assert ledger.offer("n1", share(2, cards=2, limits=limits)) == refused(Reason.SMALLER_THAN_MINIMUM)
    assert not Reason.SMALLER_THAN_MINIMUM.eviction_could_help


def test_a_small_share_goes_to_a_card_without_a_minimum(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=(limited(0, 16, min_units=2), card(1, 32))))
    assert ledger.offer("n1", share(1)) == given("n1/1", 1)
    assert ledger.offer("n1", share(1, limits=PREFERRED)) == given("n1/1", 1)
    assert ledger.offer("n1", share(1, limits=REQUIRED)) == refused(Reason.SMALLER_THAN_MINIMUM)


def test_nobody_is_evicted_for_a_share_below_the_minimum(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=(limited(0, 16, min_units=2),)))
    ledger.apply(running("there", on="n1/0", request=share(16)))
    assert victims(ledger, "n1", share(1), priority=9, proposed=["there"]) is None


def test_whole_cards_are_not_affected_by_limits(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=(limited(0, 16, min_units=20),)))
    assert ledger.offer("n1", whole()) == given("n1/0", whole=True)


@pytest.mark.parametrize("limits", [PREFERRED, REQUIRED])
def test_the_whole_cards_of_a_pod_leave_its_slice_a_card_with_a_limit(ledger: Ledger, limits: LimitNeed) -> None:
    both: Request = (Ask(KIND, share=4, limits=limits), Ask(KIND, whole=True))
    ledger.apply(node("n1", cards=(limited(0, 8), card(1, 16))))
    assert ledger.offer("n1", both) == Assignment("n1", (Slice(KIND, 1, whole=True), Slice(KIND, 0, 4)))


def test_the_whole_cards_of_a_pod_leave_its_slice_a_card_without_a_minimum(ledger: Ledger) -> None:
    both: Request = (Ask(KIND, share=1), Ask(KIND, whole=True))
    ledger.apply(node("n1", cards=(card(0, 8), limited(1, 16, min_units=2))))
    assert ledger.offer("n1", both) == Assignment("n1", (Slice(KIND, 1, whole=True), Slice(KIND, 0, 1)))


def test_a_card_that_loses_its_limit_keeps_its_pods_and_takes_no_new_ones(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=(limited(0, 16),)))
    ledger.apply(running("there", on="n1/0", request=share(4, limits=REQUIRED)))
    ledger.apply(node("n1", 16))
    pod, there = ledger.pod("there"), ledger.node("n1")
    assert pod is not None
    assert pod.place == ("n1", given("n1/0", 4).slices)
    assert there is not None
    assert there.cards[KIND][0].holders == {"there": 4}
    assert ledger.offer("n1", share(4, limits=REQUIRED)) == refused(Reason.LIMITS_NOT_ENFORCED)
    assert ledger.offer("n1", share(12)) == given("n1/0", 12)


def test_a_hold_is_refused_when_the_limit_was_lost_after_the_offer(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=(limited(0, 16),)))
    ledger.apply(pending("late", share(4, limits=REQUIRED)))
    offer = ledger.offer("n1", share(4, limits=REQUIRED))
    assert isinstance(offer, Assignment)
    ledger.apply(node("n1", 16))
    with pytest.raises(CannotHoldError):
        ledger.hold("late", offer)


@pytest.mark.parametrize("edited", LimitNeed)
def test_an_edit_of_a_bound_pod_moves_nothing_and_frees_nothing(ledger: Ledger, edited: LimitNeed) -> None:
    ledger.apply(node("n1", cards=(limited(0, 16), card(1, 16))))
    place(ledger, "mine", share(4, limits=REQUIRED), on="n1")
    bound = running("mine", on="n1/0", request=share(4, limits=REQUIRED))
    assert ledger.apply(bound) == ""
    assert ledger.apply(again(replace(bound, request=share(4, limits=edited)))) == ""
    pod, there = ledger.pod("mine"), ledger.node("n1")
    assert pod is not None
    assert pod.seen.request == share(4, limits=REQUIRED)
    assert there is not None
    assert [c.used for c in there.cards[KIND]] == [4, 0]
