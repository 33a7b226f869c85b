"""Lines out of chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.kube.lines import Lines, LineTooLongError


@given(chunks=st.lists(st.text(alphabet="ab \n", max_size=8).map(str.encode), max_size=12))
def test_where_the_chunks_end_makes_no_difference(chunks: list[bytes]) -> None:
    lines = Lines(longest=1000)
    came = [line for chunk in chunks for line in lines.feed(chunk)]
    *whole, last = b"".join(chunks).split(b"\n")
    assert came == [line for line in whole if line.strip()]
    assert lines.rest() == last.strip()


def test_a_line_without_end_is_refused() -> None:
    lines = Lines(longest=10)
    lines.feed(b"aaaaaa")
    with pytest.raises(LineTooLongError, match="more than 10 bytes"):
        lines.feed(b"aaaaaa")
