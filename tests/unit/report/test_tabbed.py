"""Columns as Go's text/tabwriter makes them; the expected texts were printed by it."""

import pytest

from accelshare.report.tabbed import tabbed


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], ""),
        ([["alone"]], "alone\n"),
        ([["a", "b"], ["long", "c"]], "a     b\nlong  c\n"),
        ([["a", ""], ["long", ""]], "a     \nlong  \n"),  # the last cell is empty, so the one before it is padded
        ([["a", "b"], ["------"], ["long", "c"]], "a  b\n------\nlong  c\n"),  # a line without a column ends it
        ([["x", "yy", "z"], ["xxx", "y"], ["x", "y", "z"]], "x    yy  z\nxxx  y\nx    y  z\n"),
        ([["", "b"], ["", "c"]], "  b\n  c\n"),
    ],
)
def test_columns(lines: list[list[str]], text: str) -> None:
    assert tabbed(lines) == text
