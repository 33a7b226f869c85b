"""Resizing a living slice: growth counts before it is granted, and a shrink frees nothing before the node has done it."""

from dataclasses import replace

import pytest

from accelshare.ledger.facts import Fact, NodeSeen, PodSeen
from accelshare.ledger.ledger import CannotHoldError, Ledger
from accelshare.ledger.nouns import Card, Resize
from accelshare.ledger.resizing import ResizeReason, ResizeRefusal
from tests.builders import again, given, limited, node, running, share, whole

A = running("a", on="n1/0", request=share(4))


def resizing_node(*cards: Card, **applied: Resize) -> NodeSeen:
    """A node whose agent resizes slices, and has answered these."""
    return replace(node("n1", cards=cards or (limited(0, 16),)), applied=applied)


def granted(pod: PodSeen, units: int, number: int) -> PodSeen:
    return replace(again(pod), granted=Resize(units, number))


def used(ledger: Ledger) -> int:
    found = ledger.node("n1")
    assert found is not None
    return found.cards["gpu"][0].used


def test_growth_counts_from_its_hold_and_stays_counted_when_it_was_granted_and_done(ledger: Ledger) -> None:
    ledger.apply(resizing_node())
    ledger.apply(A)
    ledger.hold_resize("a", Resize(12, 1))
    assert used(ledger) == 12
    assert ledger.offer("n1", share(5)) != given("n1/0", 5)
    ledger.apply(granted(A, 12, 1))
    assert used(ledger) == 12
    ledger.apply(resizing_node(a=Resize(12, 1)))
    assert used(ledger) == 12


def test_a_shrink_frees_its_units_only_when_the_node_has_done_it(ledger: Ledger) -> None:
    ledger.apply(resizing_node())
    ledger.apply(A)
    ledger.hold_resize("a", Resize(1, 1))
    assert used(ledger) == 4
    assert ledger.apply(granted(A, 1, 1)) == ""
    assert used(ledger) == 4
    assert ledger.apply(resizing_node(a=Resize(1, 1))) == "n1", "the node has more free capacity"
    assert used(ledger) == 1


def test_a_resize_that_the_node_did_not_do_counts_what_is_in_force(ledger: Ledger) -> None:
    ledger.apply(resizing_node())
    ledger.apply(granted(A, 12, 1))
    assert used(ledger) == 12
    ledger.apply(resizing_node(a=Resize(4, 1)))
    assert used(ledger) == 4


def test_a_newer_version_of_the_pod_without_the_grant_ends_the_hold(ledger: Ledger) -> None:
    """The write names the version that it is made on, so it can no longer succeed."""
    ledger.apply(resizing_node())
    ledger.apply(A)
    ledger.hold_resize("a", Resize(12, 1))
    ledger.apply(A)
    assert used(ledger) == 12, "the version that the grant is written on proves nothing"
    assert ledger.apply(again(A)) == "n1"
    assert used(ledger) == 4


def test_a_hold_whose_write_was_refused_is_released(ledger: Ledger) -> None:
    ledger.apply(resizing_node())
    ledger.apply(A)
    ledger.hold_resize("a", Resize(12, 1))
    with pytest.raises(CannotHoldError, match="already"):
        ledger.hold_resize("a", Resize(13, 1))
    assert ledger.release_resize("a") == "n1"
    assert ledger.release_resize("a") == ""
    assert used(ledger) == 4


def test_a_restart_counts_the_same_from_the_annotations_alone(ledger: Ledger) -> None:
    for number, (units, applied, counted) in enumerate([(12, 12, 12), (2, 12, 12), (3, 3, 3)], start=1):
        seen: list[Fact] = [granted(A, units, number), resizing_node(a=Resize(applied, number))]
        for facts in (seen, reversed(seen)):
            fresh = Ledger()
            for fact in facts:
                fresh.apply(fact)
            assert used(fresh) == counted
            assert fresh.check() == []


def test_the_node_may_report_before_the_pod_is_seen_granted(ledger: Ledger) -> None:
    ledger.apply(A)
    ledger.apply(resizing_node(a=Resize(12, 1)))
    assert used(ledger) == 12
    ledger.apply(granted(A, 12, 1))
    assert used(ledger) == 12


def test_grants_count_only_where_slices_are_resized(ledger: Ledger) -> None:
    """Without the admission policy anybody could write a grant."""
    ledger.apply(node("n1", 16))
    ledger.apply(granted(A, 12, 1))
    assert used(ledger) == 4
    ledger.apply(resizing_node())
    assert used(ledger) == 12
    ledger.apply(node("n1", 16))
    assert used(ledger) == 4


def test_a_resized_pod_is_not_taken_for_one_with_a_rewritten_record(ledger: Ledger) -> None:
    ledger.apply(resizing_node(a=Resize(12, 1)))
    ledger.apply(granted(A, 12, 1))
    pod = ledger.pod("a")
    assert pod is not None
    assert not pod.rewritten


def test_refusals_name_the_number_that_they_are_about(ledger: Ledger) -> None:
    ledger.apply(resizing_node(limited(0, 16, min_units=2)))
    ledger.apply(A)
    ledger.apply(running("b", on="n1/0", request=share(6)))
    assert ledger.resize_refusal("a", 10) is None
    assert ledger.resize_refusal("a", 2) is None
    assert ledger.resize_refusal("a", 11) == ResizeRefusal(ResizeReason.NO_ROOM, 10)
    assert ledger.resize_refusal("a", 17) == ResizeRefusal(ResizeReason.LARGER_THAN_CARD, 16)
    assert ledger.resize_refusal("a", 1) == ResizeRefusal(ResizeReason.BELOW_MINIMUM, 2)
    assert ledger.resize_refusal("nobody", 1) == ResizeRefusal(ResizeReason.CARD_UNKNOWN)
    with pytest.raises(CannotHoldError, match="no-room"):
        ledger.hold_resize("a", Resize(11, 1))
    ledger.apply(running("somewhere", on="n1", request=share(5)))
    assert ledger.resize_refusal("a", 6) == ResizeRefusal(ResizeReason.NO_ROOM, 5), "a pod whose card is unknown may be here"
    ledger.apply(resizing_node(limited(0, 16, healthy=False)))
    assert ledger.resize_refusal("a", 5) == ResizeRefusal(ResizeReason.CARD_UNHEALTHY)
    assert ledger.resize_refusal("a", 3) is None, "a slice of an unhealthy card may shrink"


@pytest.mark.parametrize("request_", [whole(), share(4, cards=2), (*share(4), *whole(kind="npu"))], ids=["whole", "two", "kinds"])
def test_only_one_slice_of_one_card_can_be_resized(ledger: Ledger, request_: tuple[object, ...]) -> None:
    ledger.apply(resizing_node(limited(0, 16), limited(1, 16)))
    ledger.apply(replace(running("a", on="n1/0,1", request=request_), granted=Resize(9, 1)))  # type: ignore[arg-type]
    assert ledger.resize_refusal("a", 5) == ResizeRefusal(ResizeReason.NOT_ONE_SLICE)
    before = used(ledger)
    ledger.apply(resizing_node(limited(0, 16), limited(1, 16), a=Resize(9, 1)))
    assert used(ledger) == before
