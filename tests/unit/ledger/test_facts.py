"""Facts come twice, late and in any order, and the ledger is still correct."""

from dataclasses import replace

import pytest

from accelshare.ledger import ledger as book_room
from accelshare.ledger.facts import Fact, NodeSeen, PodSeen
from accelshare.ledger.ledger import CannotHoldError, Ledger
from accelshare.ledger.node_ledger import NodeLedger
from accelshare.ledger.nouns import Assignment, Slice
from accelshare.ledger.refusals import Reason, Refusal
from tests.builders import KIND, again, card, ended, given, gone, node, node_gone, pending, place, running, share, whole

FULL = Refusal(Reason.NO_CARD_HAS_ROOM, KIND)


def test_a_pod_seen_twice_is_counted_once(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    pod = running("a", on="n1/0", request=share(8))
    for fact in (pod, pod, again(pod)):
        ledger.apply(fact)
    assert ledger.offer("n1", share(8)) == given("n1/0", 8)
    assert ledger.offer("n1", share(9)) == FULL


def test_a_terminating_pod_keeps_its_memory(ledger: Ledger) -> None:
    """A pod that is shutting down still holds its card, because its container still runs."""
    ledger.apply(node("n1", 16))
    pod = running("a", on="n1/0", request=share(12))
    ledger.apply(pod)
    ledger.apply(again(pod))  # written once more, with a deletion time that the ledger ignores
    assert ledger.offer("n1", share(8)) == FULL
    ledger.apply(gone("a"))
    assert ledger.offer("n1", share(8)) == given("n1/0", 8)


def test_a_pod_that_ended_frees_its_memory_before_it_is_deleted(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    pod = running("a", on="n1/0", request=share(12))
    ledger.apply(pod)
    ledger.apply(ended(pod))
    assert ledger.offer("n1", share(16)) == given("n1/0", 16)


@pytest.mark.parametrize("last", ["gone", "ended"])
def test_a_late_fact_does_not_bring_a_pod_back(ledger: Ledger, last: str) -> None:
    ledger.apply(node("n1", 16))
    pod = running("a", on="n1/0", request=share(12))
    ledger.apply(gone("a") if last == "gone" else ended(pod))
    ledger.apply(pod)
    assert ledger.offer("n1", share(16)) == given("n1/0", 16)


def test_an_older_fact_does_not_undo_a_newer_one(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16, 16))
    old = pending("a", share(12))
    ledger.apply(running("a", on="n1/1", request=share(12)))
    ledger.apply(old)
    assert ledger.offer("n1", share(16)) == given("n1/0", 16)


def test_a_pod_recreated_under_its_name_is_another_pod(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16, 16))
    ledger.apply(running("web-0", on="n1/0", request=share(12), uid="first"))
    ledger.apply(running("web-0", on="n1/1", request=share(12), uid="second"))
    assert ledger.offer("n1", share(5)) == FULL
    ledger.apply(gone("first"))
    assert ledger.offer("n1", share(5)) == given("n1/0", 5)


def test_pods_may_come_before_their_node(ledger: Ledger) -> None:
    ledger.apply(running("a", on="n1/0", request=share(12)))
    assert ledger.offer("n1", share(1)) == Refusal(Reason.UNKNOWN_NODE, KIND)
    ledger.apply(node("n1", 16))
    assert ledger.offer("n1", share(5)) == FULL


def test_a_node_that_leaves_and_returns_is_right_again(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    ledger.apply(running("a", on="n1/0", request=share(12)))
    ledger.apply(node_gone("n1"))
    assert ledger.offer("n1", share(1)) == Refusal(Reason.UNKNOWN_NODE, KIND)
    ledger.apply(node("n1", 16))
    assert ledger.offer("n1", share(5)) == FULL
    assert ledger.offer("n1", share(4)) == given("n1/0", 4)


def test_a_late_fact_does_not_bring_a_node_back(ledger: Ledger) -> None:
    old = node("n1", 16)
    ledger.apply(node("n1", 16))
    ledger.apply(node_gone("n1"))
    ledger.apply(old)
    assert ledger.offer("n1", share(1)) == Refusal(Reason.UNKNOWN_NODE, KIND)


def test_an_empty_node_that_left_is_forgotten(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    ledger.apply(node_gone("n1"))
    assert list(ledger.nodes()) == []


def test_a_card_that_turns_unhealthy_keeps_its_pods(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16, 16))
    ledger.apply(running("a", on="n1/0", request=share(12)))
    ledger.apply(node("n1", cards=(card(0, 16, healthy=False), card(1, 16))))
    assert ledger.offer("n1", share(4)) == given("n1/1", 4)
    ledger.apply(node("n1", 16, 16))
    assert ledger.offer("n1", share(4)) == given("n1/0", 4)
    assert ledger.offer("n1", share(16)) == given("n1/1", 16)


def with_id(name: str, *, index: int, id: str) -> PodSeen:
    return replace(running(name, on="n1", request=share(12)), slices=(Slice(KIND, index, 12, id=id),))


def test_a_card_that_disappears_keeps_its_pods_until_they_end(ledger: Ledger) -> None:
    two = (card(0, 16, id="A"), card(1, 16, id="B"))
    ledger.apply(node("n1", cards=two))
    ledger.apply(with_id("a", index=0, id="A"))
    ledger.apply(node("n1", cards=two[1:]))
    node_ledger = ledger.node("n1")
    assert node_ledger is not None
    assert [missing.holders for missing in node_ledger.missing.values()] == [{"a": 12}]
    assert ledger.offer("n1", share(16)) == Assignment("n1", (Slice(KIND, 1, 16, id="B"),))
    ledger.apply(node("n1", cards=two))
    assert ledger.offer("n1", share(16)) == Assignment("n1", (Slice(KIND, 1, 16, id="B"),))
    ledger.apply(gone("a"))
    assert node_ledger.missing == {}


def test_cards_that_are_renumbered_are_found_by_their_id(ledger: Ledger) -> None:
    """After a reboot without card A, the driver counts B as card 0: its pod is still on B."""
    ledger.apply(node("n1", cards=(card(0, 16, id="A"), card(1, 16, id="B"))))
    ledger.apply(with_id("b", index=1, id="B"))
    ledger.apply(node("n1", cards=(card(0, 16, id="B"),)))
    assert ledger.offer("n1", share(5)) == FULL
    assert ledger.offer("n1", share(4)) == Assignment("n1", (Slice(KIND, 0, 4, id="B"),))


def test_a_record_of_a_card_that_never_existed_counts_once_against_its_node(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16, 16))
    ledger.apply(running("forged", on="n1/9", request=share(12)))
    node_ledger = ledger.node("n1")
    assert node_ledger is not None
    assert list(node_ledger.unplaced) == ["forged"]
    assert ledger.offer("n1", share(5)) == FULL
    assert ledger.offer("n1", share(4)) == given("n1/0", 4)


def test_a_record_that_is_half_of_cards_gone_and_half_of_none_leaves_no_card_behind(ledger: Ledger) -> None:
    """One slice names hardware that is not here, the other nothing at all: the pod counts against the node as a whole."""
    ledger.apply(node("n1", 16, 16))
    record = (Slice(KIND, 8, 4, id="elsewhere"), Slice(KIND, 9, 4))
    ledger.apply(replace(running("a", on="n1", request=share(4, cards=2)), slices=record))
    ledger.apply(running("b", on="n1/0", request=share(1)))
    ledger.apply(gone("b"))
    node_ledger = ledger.node("n1")
    assert node_ledger is not None
    assert (node_ledger.missing, list(node_ledger.unplaced)) == ({}, ["a"])


def test_nodes_that_left_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that recreates its nodes every day has a million of them over time."""
    monkeypatch.setattr(book_room, "ENDED_REMEMBERED", 100)
    ledger = Ledger()
    late = node("n0")
    for number in range(101):
        ledger.apply(node(f"n{number}"))
        ledger.apply(node_gone(f"n{number}"))
    ledger.apply(replace(late, name="n1"))
    assert ledger.node("n1") is None
    ledger.apply(late)  # so late that the ledger has forgotten it
    assert ledger.node("n0") is not None


def test_a_hold_counts_at_once(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    place(ledger, "a", share(12), on="n1")
    assert ledger.offer("n1", share(5)) == FULL


def test_a_released_hold_leaves_nothing(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    place(ledger, "a", share(12), on="n1")
    ledger.release("a")
    ledger.release("a")
    assert ledger.offer("n1", share(16)) == given("n1/0", 16)


def test_the_watch_event_of_a_bind_replaces_its_hold(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    place(ledger, "a", share(12), on="n1")
    ledger.apply(running("a", on="n1/0", request=share(12)))
    ledger.release("a")  # too late: the pod has been seen bound
    assert ledger.offer("n1", share(5)) == FULL
    assert ledger.offer("n1", share(4)) == given("n1/0", 4)


def test_an_event_from_before_the_bind_does_not_end_the_hold(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    place(ledger, "a", share(12), on="n1")
    ledger.apply(pending("a", share(12)))
    assert ledger.offer("n1", share(5)) == FULL


def test_a_pod_that_was_bound_elsewhere_leaves_the_node_it_was_held_on(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    ledger.apply(node("n2", 16))
    place(ledger, "a", share(12), on="n1")
    ledger.apply(running("a", on="n2/0", request=share(12)))
    assert ledger.offer("n1", share(16)) == given("n1/0", 16)
    assert ledger.offer("n2", share(5)) == FULL


def test_the_same_hold_twice_changes_nothing(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    offer = place(ledger, "a", share(8), on="n1")
    ledger.hold("a", offer)
    assert ledger.offer("n1", share(8)) == given("n1/0", 8)


@pytest.mark.parametrize(
    ("uid", "on", "words"),
    [("nobody", "n1/0", "not known"), ("held", "n1/1", "already holds"), ("late", "n1/0", "no longer offers")],
)
def test_a_hold_that_cannot_be_is_refused_and_changes_nothing(ledger: Ledger, uid: str, on: str, words: str) -> None:
    ledger.apply(node("n1", 16, 16))
    place(ledger, "held", share(12), on="n1")
    ledger.apply(pending("late", share(12)))
    with pytest.raises(CannotHoldError, match=words):
        ledger.hold(uid, given(on, 12))
    assert ledger.offer("n1", share(12)) == given("n1/1", 12)


def test_oversold_cards_never_have_free_capacity() -> None:
    """Facts can oversell a card (two systems at work); the ledger shows it, and the free amount is never negative."""
    ledger = Ledger()
    ledger.apply(node("n1", 16))
    ledger.apply(running("a", on="n1/0", request=share(12)))
    ledger.apply(running("b", on="n1/0", request=share(12)))
    assert ledger.offer("n1", share(1)) == FULL
    assert ledger.check() == ["n1/gpu/0: 24 held of 16 by a, b"]


# What is counted of a record that is not whole or not true.


def test_a_slice_and_a_whole_card_of_one_kind_are_counted_each_by_its_own_record(ledger: Ledger) -> None:
    """The record names the card of one of them only: the card of the other is not known."""
    both = (*share(4), *whole())
    ledger.apply(node("n1", 16, 16))
    ledger.apply(replace(running("a", on="n1", request=both), slices=(Slice(KIND, 0, 4),)))
    assert isinstance(ledger.offer("n1", whole()), Refusal)
    assert ledger.offer("n1", share(12)) == given("n1/0", 12), "the whole card cannot be the one where its own slice is"
    node_ledger = ledger.node("n1")
    assert node_ledger is not None
    assert node_ledger.unplaced == {"a": whole()}
    ledger.apply(gone("a"))
    ledger.apply(replace(running("b", on="n1", request=both), slices=(Slice(KIND, 0, whole=True),)))
    assert node_ledger.unplaced == {"b": share(4)}
    assert isinstance(ledger.offer("n1", share(13)), Refusal)
    assert ledger.offer("n1", share(12)) == given("n1/1", 12)


@pytest.mark.parametrize("index", [0, 1, 2, 9])
def test_a_record_of_unknown_hardware_is_counted_in_the_worst_place(ledger: Ledger, index: int) -> None:
    """A node that shows the cards 0 to 2 has lost none, so no pod can be on a card that it lost."""
    ledger.apply(node("n1", cards=(card(0, 16, id="A"), card(1, 16, id="B"), card(2, 16, id="C"))))
    ledger.apply(with_id("forged", index=index, id="nowhere"))
    node_ledger = ledger.node("n1")
    assert node_ledger is not None
    assert (node_ledger.missing, list(node_ledger.unplaced)) == ({}, ["forged"])
    assert ledger.offer("n1", share(5)) == FULL


# Records of bound pods, which their owners can edit.

A, B = (Slice(KIND, 0, 12, id="A"),), (Slice(KIND, 1, 12, id="B"),)
TWO = (card(0, 16, id="A"), card(1, 16, id="B"))


def slices_of(ledger: Ledger, uid: str) -> tuple[Slice, ...]:
    pod = ledger.pod(uid)
    assert pod is not None
    return pod.seen.slices


@pytest.mark.parametrize("rewritten", [B, ()], ids=["another card", "removed"])
def test_an_edit_of_a_bound_pods_record_moves_nothing(ledger: Ledger, rewritten: tuple[Slice, ...]) -> None:
    ledger.apply(node("n1", cards=TWO))
    first = with_id("a", index=0, id="A")
    ledger.apply(first)
    assert ledger.apply(replace(again(first), slices=rewritten)) == ""
    assert slices_of(ledger, "a") == A
    pod = ledger.pod("a")
    assert pod is not None
    assert pod.rewritten
    ledger.apply(again(first))
    assert not pod.rewritten


def test_an_edit_before_the_watch_event_of_a_bind_moves_nothing(ledger: Ledger) -> None:
    """The first watch event after the bind already has the user's record: what we hold was bound."""
    ledger.apply(node("n1", cards=TWO))
    offer = place(ledger, "a", share(12), on="n1")
    assert offer.slices == A
    ledger.apply(with_id("a", index=1, id="B"))
    assert slices_of(ledger, "a") == A


def test_an_edit_of_a_bound_pods_request_moves_nothing(ledger: Ledger) -> None:
    """Over how many cards a pod is spread is a label, which its owner can edit."""
    ledger.apply(node("n1", cards=TWO))
    first = with_id("a", index=0, id="A")
    ledger.apply(first)
    ledger.apply(replace(again(first), request=share(6, cards=2), slices=()))
    ledger.apply(replace(again(first), request=(), slices=()))
    assert slices_of(ledger, "a") == A
    assert ledger.offer("n1", share(5)) == Assignment("n1", (Slice(KIND, 1, 5, id="B"),))


def test_a_held_pod_keeps_the_request_that_was_held(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=TWO))
    place(ledger, "a", share(12), on="n1")
    ledger.apply(pending("a", share(6, cards=2)))
    ledger.apply(replace(with_id("a", index=0, id="A"), request=share(6, cards=2), slices=()))
    assert slices_of(ledger, "a") == A


def test_a_released_hold_leaves_the_pod_with_its_current_request(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=TWO))
    place(ledger, "a", share(12), on="n1")
    ledger.apply(pending("a", share(6, cards=2)))
    ledger.release("a")
    pod = ledger.pod("a")
    assert pod is not None
    assert pod.seen.request == share(6, cards=2)


def corrected(**records: tuple[Slice, ...]) -> NodeSeen:
    return replace(node("n1", cards=TWO), corrected=records)


@pytest.mark.parametrize("node_first", [True, False])
def test_a_correction_by_the_node_moves_a_pod(ledger: Ledger, node_first: bool) -> None:
    ledger.apply(node("n1", cards=TWO))
    first = with_id("a", index=0, id="A")
    ledger.apply(first)
    news: list[Fact] = [corrected(a=B), replace(again(first), slices=B)]
    freed = [ledger.apply(fact) for fact in (news if node_first else reversed(news))]
    assert slices_of(ledger, "a") == B
    assert "n1" in freed, "card A has room now"
    pod = ledger.pod("a")
    assert pod is not None
    assert not pod.rewritten


def test_after_a_restart_the_nodes_correction_takes_precedence_over_the_record(ledger: Ledger) -> None:
    ledger.apply(replace(with_id("a", index=1, id="B")))
    ledger.apply(corrected(a=A))
    assert slices_of(ledger, "a") == A
    pod = ledger.pod("a")
    assert pod is not None
    assert pod.rewritten


@pytest.mark.parametrize(
    "correction", [(Slice(KIND, 0, whole=True),), (*A, *B), (), (Slice("npu", 0, 12),)], ids=["whole", "two", "none", "kind"]
)
def test_a_correction_that_does_not_serve_the_request_leaves_the_card_unknown(
    ledger: Ledger, correction: tuple[Slice, ...]
) -> None:
    ledger.apply(node("n1", cards=TWO))
    ledger.apply(with_id("a", index=0, id="A"))
    ledger.apply(corrected(a=correction))
    assert slices_of(ledger, "a") == ()
    assert ledger.offer("n1", share(5)) == FULL


def test_a_correction_over_another_number_of_cards_counts_if_its_amounts_match(ledger: Ledger) -> None:
    """After a restart the pod's own count is what its owner wrote there: 12 of one card, though it has 6 of each of two."""
    correction = (Slice(KIND, 0, 6, id="A"), Slice(KIND, 1, 6, id="B"))
    ledger.apply(replace(with_id("a", index=0, id="A"), slices=()))
    ledger.apply(corrected(a=correction))
    assert slices_of(ledger, "a") == correction
    pod = ledger.pod("a")
    assert pod is not None
    assert pod.seen.request == share(6, cards=2)


def test_a_node_corrects_only_its_own_pods(ledger: Ledger) -> None:
    ledger.apply(node("n2", cards=TWO))
    ledger.apply(replace(with_id("a", index=0, id="A"), node="n2"))
    ledger.apply(corrected(a=B))
    assert slices_of(ledger, "a") == A


def test_the_oldest_record_counts_in_any_order_of_events(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=TWO))
    first, edited = with_id("a", index=0, id="A"), with_id("a", index=1, id="B")
    ledger.apply(edited)
    ledger.apply(first)
    assert slices_of(ledger, "a") == A


def test_a_slice_that_is_not_of_the_request_leaves_the_request_unplaced() -> None:
    """The pod asks for a share, its only slice is a whole card: both count, the share on every card that it could be on."""
    one = NodeLedger("n1")
    one.reset(node("n1", 16))
    one.add_pod("a", share(4), (Slice(KIND, 0, whole=True),))
    assert (list(one.cards[KIND][0].holders), one.unplaced) == (["a"], {"a": share(4)})
