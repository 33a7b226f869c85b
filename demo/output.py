"""The demo's output: aligned plain text, in colour only on a terminal that supports it.

Belongs here: columns, folding, colour. Never: the content.
"""

import re
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TextIO

PLAIN_WIDTH: Final = 100
COLUMNS: Final = (16, 26)  # a pod's name, what it asks
STYLES: Final[Mapping[str, str]] = {"title": "1", "good": "32", "bad": "33", "quiet": "2"}


@dataclass(frozen=True, slots=True)
class DemoOutput:
    out: TextIO
    width: int
    colour: bool

    @classmethod
    def on(cls, out: TextIO, environ: Mapping[str, str]) -> "DemoOutput":
        terminal = out.isatty()
        width = max(60, shutil.get_terminal_size().columns) if terminal else PLAIN_WIDTH
        # no-color.org: any value that is not empty turns colour off.
        return cls(out, width, terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb")

    def line(self, text: str = "", style: str = "") -> None:
        painted = f"\033[{STYLES[style]}m{text}\033[0m" if self.colour and style and text else text
        print(painted, file=self.out, flush=True)

    def title(self, text: str) -> None:
        self.line()
        self.line(text, "title")

    def field(self, name: str, text: str) -> None:
        """A name and its description."""
        for number, line in enumerate(textwrap.wrap(text, self.width - 14, break_long_words=False, break_on_hyphens=False)):
            self.line(f"  {'' if number else name:12}{line}")

    def pod(self, name: str, asks: str, outcome: str, style: str) -> None:
        """One pod's row: its name, what it asks for, and the outcome."""
        cells = [cell.ljust(width) for cell, width in zip((name, asks), COLUMNS, strict=True)]
        self.line("  " + "  ".join([*cells, outcome]).rstrip(), style)

    def detail(self, text: str) -> None:
        """Details of the row above."""
        for line in textwrap.wrap(text, self.width - 6, break_long_words=False, break_on_hyphens=False):
            self.line(f"      {line}", "quiet")

    def table(self, text: str) -> None:
        for line in folded(text.splitlines(), self.width - 2):
            self.line(f"  {line}")


def folded(lines: list[str], width: int) -> Iterable[str]:
    """The lines of a table; one wider than the output is cut between columns, and lines that are not rows are truncated."""
    rules = [number for number, line in enumerate(lines) if line.startswith("---")]
    rows = lines[: rules[0]] if rules else lines
    starts = [cell.start() for cell in re.finditer(r"\S+(?: \S+)*", rows[0])]
    ends = [*starts[1:], max(map(len, rows))]
    begin = indent = 0
    for end, next_end in zip(ends, [*ends[1:], None], strict=True):
        if next_end is None or next_end - begin + indent > width:
            yield from (" " * indent + row[begin:end].rstrip() for row in rows)
            begin, indent = end, 4
    yield from (line[:width].rstrip() for line in lines[len(rows) :])
