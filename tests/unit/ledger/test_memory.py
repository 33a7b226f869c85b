"""What stays in memory of each pod and node: pods that come and go must not make the ledger grow."""

import gc
from dataclasses import replace

from accelshare.ledger.facts import PodSeen
from accelshare.ledger.ledger import Ledger, LedgerPod
from tests.builders import again, gone, node, pending, place, running, share, whole


def facts_in_memory() -> int:
    gc.collect()
    return sum(type(each) is PodSeen for each in gc.get_objects())


def text(*parts: str) -> str:
    """A new string, as each message of the API server makes one."""
    return "".join(parts)


def pod(ledger: Ledger, uid: str) -> LedgerPod:
    known = ledger.pod(uid)
    assert known is not None
    return known


def live(ledger: Ledger, number: int) -> None:
    """A pod is created, bound and started."""
    name = f"pod-{number}"
    place(ledger, name, share(4), on="n1")
    bound = running(text("pod-", str(number)), on="n1/0", request=share(4))
    ledger.apply(bound)
    ledger.apply(replace(again(bound), started=True))


def test_a_pod_that_we_bound_takes_one_fact_as_a_listed_one_does(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    before = facts_in_memory()
    live(ledger, 1)
    assert facts_in_memory() == before + 1


def test_nothing_is_left_of_pods_that_came_and_went(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    before = facts_in_memory()
    for number in range(10):
        live(ledger, number)
        ledger.apply(gone(f"pod-{number}"))
    node_ledger = ledger.node("n1")
    assert node_ledger is not None
    assert (facts_in_memory(), list(ledger.pods()), dict(node_ledger.pods)) == (before, [], {})
    assert [dict(card.holders) for card in node_ledger.all_cards()] == [{}]


def test_a_new_version_of_a_pod_shares_what_has_not_changed(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    ledger.apply(replace(pending(text("po", "d"), share(4)), created=text("20", "26"), needs=(("cpu", 500),)))
    first = pod(ledger, "pod").latest
    bound = running(text("p", "od"), on="n1/0", request=share(4))
    ledger.apply(replace(bound, created=text("2", "026"), needs=(("cpu", 500),), started=True))
    latest = pod(ledger, "pod").latest
    assert latest is not first
    assert latest.started
    assert latest.uid is first.uid
    assert latest.name is first.name
    assert latest.created is first.created
    assert latest.request is first.request
    assert latest.needs is first.needs
    ledger.apply(replace(again(bound), slices=tuple(replace(one) for one in bound.slices)))
    assert pod(ledger, "pod").latest.slices is latest.slices


def test_the_cards_of_a_confirmed_hold_are_in_memory_once(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    live(ledger, 1)
    known = pod(ledger, "pod-1")
    assert known.hold is None
    assert known.bound_slices is known.latest.slices


def test_a_list_that_shows_a_pod_again_leaves_the_fact_in_memory(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    listed = running("pod", on="n1/0", request=share(4))
    ledger.apply(listed)
    ledger.apply(replace(listed))
    assert pod(ledger, "pod").latest is listed


def test_a_node_whose_cards_have_not_changed_has_them_in_memory_once(ledger: Ledger) -> None:
    """kubelet writes each Node every few minutes."""
    ledger.apply(node("n1", 16, 16))
    ledger.apply(node("n1", 16, 16))
    node_ledger = ledger.node("n1")
    assert node_ledger is not None
    assert node_ledger.fact is not None
    counted = [card.card for card in node_ledger.all_cards()]
    assert [id(card) for card in node_ledger.fact.cards] == [id(card) for card in counted]


def test_all_cards_that_nobody_holds_whole_have_the_same_empty_set(ledger: Ledger) -> None:
    """A set of its own for each of 40,000 cards would take 9 MB."""
    ledger.apply(node("n1", 16, 16, 16))
    ledger.apply(running("shares", on="n1/0", request=share(4)))
    ledger.apply(running("whole", on="n1/1", request=whole()))
    ledger.apply(gone("shares"))
    ledger.apply(gone("whole"))
    node_ledger = ledger.node("n1")
    assert node_ledger is not None
    assert len({id(card.wholes) for seen in (node_ledger, node_ledger.without([])) for card in seen.all_cards()}) == 1
