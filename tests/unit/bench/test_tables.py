"""Numbers and tables look the same wherever they are printed."""

import pytest

from bench.figures import Spread
from bench.tables import number, spread, table


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (0.5, "0.50"), (9.87, "9.87"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12,346")]
)
def test_three_digits_count(value: float, shown: str) -> None:
    assert number(value) == shown


def test_a_spread_shows_its_bounds() -> None:
    assert spread(Spread(1.05, 0.98, 1.1)) == "**1.05** (0.98–1.10)"


def test_a_table_is_markdown_with_numbers_on_the_right() -> None:
    assert table(("what", "ms"), [("filter", "0.3")]) == "| what | ms |\n| --- | ---: |\n| filter | 0.3 |"


def test_a_row_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="a row of 1 cells in a table of 2 columns"):
        table(("what", "ms"), [("filter",)])
