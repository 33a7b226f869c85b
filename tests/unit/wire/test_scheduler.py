"""Searching names in a list before it is decoded."""

import pytest

from accelshare.wire.decoding import UnreadableError
from accelshare.wire.scheduler import MOST_SEARCHES, NodeNames


def test_a_name_is_found_whole_or_not_at_all() -> None:
    names = NodeNames(b'["node-1","node-10"]')
    assert "node-1" in names
    assert "node" not in names
    assert "node-100" not in names
    assert len(names) == 2
    assert list(names) == ["node-1", "node-10"]


@pytest.mark.parametrize("raw", [b"[]", b'["a"]', b'["a","b","c"]', b'["a", "b", "c"]', b'[ "a" ]'])
def test_names_are_counted_without_reading_them(raw: bytes) -> None:
    assert len(NodeNames(raw)) == len(NodeNames(raw).listed())


def test_after_some_lookups_the_list_is_decoded_with_equal_answers() -> None:
    names = NodeNames(b'["a", "b"]')
    assert ["b" in names for _ in range(2 * MOST_SEARCHES)] == [True] * 2 * MOST_SEARCHES
    assert ["c" in names for _ in range(3)] == [False] * 3


def test_an_invalid_list_of_names_is_refused_when_it_is_decoded() -> None:
    with pytest.raises(UnreadableError):
        NodeNames(b"[1, 2]").listed()
    assert NodeNames(b"[]").listed() == []
