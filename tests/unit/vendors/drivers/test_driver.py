"""The order of query methods, the lines about those that failed, and which cards are listed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.vendors.drivers.driver import (
    DriverError,
    HostCard,
    Listing,
    QueryFailed,
    SkippedDevice,
    excerpt,
    first_listing,
    listing,
)
from accelshare.vendors.drivers.pci import address
from tests.fakes.sure import assert_sure

ANSWER = Listing((HostCard(0, "a", 1),))


async def answers() -> Listing:
    return ANSWER


async def fails() -> Listing:
    raise QueryFailed("is broken")


async def must_not_be_asked() -> Listing:
    raise AssertionError


async def test_the_first_answer_is_used() -> None:
    assert await first_listing([("x", fails), ("y", answers), ("z", must_not_be_asked)]) == ANSWER


async def test_without_an_answer_every_query_method_has_a_line() -> None:
    with pytest.raises(DriverError) as caught:
        await first_listing([("x", fails), ("y", fails)])
    assert caught.value.tried == ("x: is broken", "y: is broken")


CARDS = st.builds(HostCard, index=st.integers(0, 4), id=st.sampled_from(["", "a", "b", "c"]), memory_mib=st.integers(-1, 2**25))


@given(st.lists(CARDS))
def test_only_sure_cards_are_listed_and_the_others_are_reported(cards: list[HostCard]) -> None:
    found = listing(cards)
    assert_sure(found)
    assert len(found.cards) + len(found.skipped) == len(cards)


def test_the_reason_for_a_skipped_device_names_it() -> None:
    assert str(SkippedDevice(3, "lost")) == "device 3: lost"
    assert str(SkippedDevice(None, "what?")) == "what?"


@given(st.text())
def test_an_answer_is_shown_in_one_short_line(text: str) -> None:
    assert len(excerpt(text).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "format_address"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("00:2e:00.0  Disable", "0000:2e:00.0"),
        ("0000:86:00.0", "0000:86:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("3b:00.0", ""),
        ("1.0:2.6:1.39.1.7", ""),
    ],
)
def test_every_spelling_of_a_pci_address_becomes_linuxs(text: str, format_address: str) -> None:
    assert address(text) == format_address
