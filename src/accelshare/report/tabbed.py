"""Columns of text, aligned as Go's text/tabwriter does it, because that is what people and scripts are used to.

Belongs here: padding, by the columns that a terminal needs for a cell. Never: what is in the cells; all of it is made visible.
"""

from collections.abc import Sequence
from typing import Final

from accelshare.terminal import padded, visible, width

PADDING: Final = 2


def tabbed(lines: Sequence[Sequence[str]]) -> str:
    """Each line's cells, the last one as it is and the others padded to the widest of their column.

    A column is a run of neighbouring lines that have it: a line with fewer cells ends it, so that what stands below is aligned
    anew. A cell that is padded stays so at the end of its line too: give an empty last cell to have it.
    """
    cells = [[visible(cell) for cell in line] for line in lines]
    widths = [[0] * (len(line) - 1) for line in lines]
    for column in range(max(map(len, widths), default=0)):
        start = 0
        while start < len(lines):
            end = start
            while end < len(lines) and len(widths[end]) > column:
                end += 1
            widest = max((width(cells[at][column]) for at in range(start, end)), default=0) + PADDING
            for at in range(start, end):
                widths[at][column] = widest
            start = end + 1
    return "".join(
        "".join(padded(cell, columns) for cell, columns in zip(line[:-1], widths[at], strict=True)) + line[-1] + "\n"
        for at, line in enumerate(cells)
    )
