"""When an XID makes a card unhealthy, and when that is over."""

import pytest

from accelshare.vendors.drivers.nvidia_xids import IGNORED, NEEDS_RESET, OpenXids


@pytest.fixture
def book() -> OpenXids:
    return OpenXids(quiet_s=60)


@pytest.mark.parametrize("xid", sorted(IGNORED))
def test_a_programs_fault_is_not_the_cards(book: OpenXids, xid: int) -> None:
    book.note("a", xid, now=0)
    assert book.problem("a", recovery_action=0, now=0) == ""


def test_each_xid_restarts_the_quiet_time(book: OpenXids) -> None:
    book.note("a", 94, now=0)
    book.note("a", 94, now=59)
    assert book.problem("a", recovery_action=0, now=100) == "XID 94"
    assert book.problem("a", recovery_action=0, now=119) == ""


def test_one_cards_xid_is_not_its_neighbours(book: OpenXids) -> None:
    book.note("a", 94, now=0)
    assert book.problem("b", recovery_action=0, now=0) == ""


@pytest.mark.parametrize("xid", sorted(NEEDS_RESET))
def test_without_a_recovery_action_a_reset_is_waited_for(book: OpenXids, xid: int) -> None:
    book.note("a", xid, now=0)
    book.note("a", 94, now=1)
    assert "it needs a reset" in book.problem("a", recovery_action=None, now=10_000)
    book.away("a")
    assert book.problem("a", recovery_action=None, now=10_000) == ""


def test_a_driver_that_requests_no_recovery_is_trusted_after_the_quiet_time(book: OpenXids) -> None:
    book.note("a", 79, now=0)
    assert book.problem("a", recovery_action=0, now=10) == "XID 79: fell off the bus"
    assert book.problem("a", recovery_action=0, now=60) == ""


def test_an_unknown_recovery_action_is_reported_by_number(book: OpenXids) -> None:
    assert book.problem("a", recovery_action=42, now=0) == "the driver requests recovery action 42"
