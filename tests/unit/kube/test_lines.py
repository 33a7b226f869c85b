"""Lines out of chunks."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.kube.lines import LineTooLongError, split_lines


async def _in_chunks(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@given(chunks=st.lists(st.text(alphabet="ab \n", max_size=8).map(str.encode), max_size=12))
async def test_where_the_chunks_end_makes_no_difference(chunks: list[bytes]) -> None:
    lines = [line async for line in split_lines(_in_chunks(chunks), longest=1000)]
    assert lines == [line for line in b"".join(chunks).split(b"\n") if line.strip()]


async def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(LineTooLongError, match="more than 10 bytes"):
        _ = [line async for line in split_lines(_in_chunks([b"aaaaaa"] * 2), longest=10)]
