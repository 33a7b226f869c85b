"""Markdown tables and the numbers in them.

Belongs here: the format of numbers. Never: which numbers.
"""

from collections.abc import Iterable, Sequence

from bench.figures import Spread


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column is text; all others are numbers and right-aligned."""
    lines = [head, ["---", *("---:" for _ in head[1:])]]
    for row in rows:
        if len(row) != len(head):
            raise ValueError(f"a row of {len(row)} cells in a table of {len(head)} columns: {list(row)}")
        lines.append(row)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def number(value: float) -> str:
    """Three significant digits, with thousands separators."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def spread(value: Spread) -> str:
    """Median (least–most)."""
    return f"**{number(value.middle)}** ({number(value.least)}–{number(value.most)})"
