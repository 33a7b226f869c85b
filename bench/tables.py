"""Markdown tables and the numbers in them.

Belongs here: how a figure looks. Never: which figures there are.
"""

from collections.abc import Iterable, Sequence

from bench.figures import Spread


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column is words, all others are numbers and stand right."""
    lines = [head, ["---", *("---:" for _ in head[1:])]]
    for row in rows:
        if len(row) != len(head):
            raise ValueError(f"a row of {len(row)} cells in a table of {len(head)} columns: {list(row)}")
        lines.append(row)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def number(value: float) -> str:
    """Three digits that count, with the thousands apart."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def spread(value: Spread) -> str:
    """The middle, and what it lies between."""
    return f"**{number(value.middle)}** ({number(value.least)}–{number(value.most)})"
