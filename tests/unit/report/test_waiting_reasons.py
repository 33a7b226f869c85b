"""Waiting pods with a short reason, and how full the cluster is: from the ledger alone."""

import pytest

from accelshare.ledger.ledger import Ledger
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.report import waiting_reasons
from accelshare.report.cluster_state import ClusterState
from accelshare.report.occupancy import Occupancy
from accelshare.report.view import rows
from accelshare.report.waiting_reasons import WaitingReasons, waiting_by_age
from accelshare.vendors.catalog import load
from tests.builders import card, node, pending, place, running, share, whole

KIND = "nvidia"


def state(ledger: Ledger) -> ClusterState:
    return ClusterState(ledger, load([]))


def cards(*sizes: int) -> tuple[object, ...]:
    return tuple(card(index, size, kind=KIND) for index, size in enumerate(sizes))


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    ledger.apply(node("n1", cards=cards(16, 16)))  # type: ignore[arg-type]
    ledger.apply(node("n2", cards=cards(16)))  # type: ignore[arg-type]
    ledger.apply(node("n3"))
    ledger.apply(running("a", on="n1/0", request=share(12, kind=KIND)))
    ledger.apply(running("b", on="n1/1", request=share(12, kind=KIND)))
    ledger.apply(running("c", on="n2/0", request=whole(kind=KIND)))
    return ledger


def test_a_pod_without_room_has_the_number_of_nodes_for_each_reason(ledger: Ledger) -> None:
    ledger.apply(pending("p", share(8, kind=KIND)))
    (pod,) = waiting_by_age(ledger)
    row = WaitingReasons(state(ledger)).row(pod)
    assert (row.name, row.request, row.fits) == ("p", "8 GiB GPU", 0)
    assert [(each.code, each.nodes) for each in row.reasons] == [(Reason.NO_CARD_HAS_ROOM.value, 2)]


def test_a_pod_that_would_fit_says_so(ledger: Ledger) -> None:
    ledger.apply(pending("p", share(4, kind=KIND)))
    row = WaitingReasons(state(ledger)).row(waiting_by_age(ledger)[0])
    assert row.fits == 1


def test_a_wrong_request_has_its_own_reason(ledger: Ledger) -> None:
    from dataclasses import replace

    ledger.apply(replace(pending("p", ()), refusal=Refusal(Reason.AMOUNT_UNREADABLE, KIND)))
    row = WaitingReasons(state(ledger)).row(waiting_by_age(ledger)[0])
    assert [(each.code, each.nodes) for each in row.reasons] == [(Reason.AMOUNT_UNREADABLE.value, 0)]


def test_a_pod_that_is_held_does_not_wait(ledger: Ledger) -> None:
    place(ledger, "h", share(4, kind=KIND), on="n1")
    assert waiting_by_age(ledger) == []


def test_only_so_many_different_requests_are_compared(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with many pods of different sizes must not keep the extender busy."""
    monkeypatch.setattr(waiting_reasons, "MOST_REQUESTS", 2)
    for units in (5, 6, 7, 5):
        ledger.apply(pending(f"p{units}", share(units, kind=KIND)))
    reasons = WaitingReasons(state(ledger))
    assert [bool(reasons.row(pod).reasons) for pod in waiting_by_age(ledger)] == [True, True, False]


def test_fill_and_fragmentation_are_counted_in_cards(ledger: Ledger) -> None:
    """Of three cards 0.75 + 0.75 + 1 are held; all that is free lies on cards with pods."""
    occupancy = Occupancy()
    for row in rows(ledger):
        occupancy.add(row)
    assert occupancy.ratios().fill == pytest.approx(2.5 / 3, abs=0.001)
    assert occupancy.ratios().fragmentation == 1.0
    vendor = occupancy.vendors[KIND]
    assert (vendor.cards, vendor.size, vendor.used, vendor.unhealthy) == (3, 48, 40, 0)


def test_an_empty_cluster_is_neither_full_nor_fragmented() -> None:
    assert (Occupancy().ratios().fill, Occupancy().ratios().fragmentation) == (0.0, 0.0)
