"""A picture of a terminal: text with colours as SVG, which follows the reader's light or dark setting.

Belongs here: escape sequences of colours to SVG. Never: what the terminal shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from xml.sax.saxutils import escape

COLUMN: Final = 8.0  # points
LINE: Final = 17.0
EDGE: Final = 12.0
# Select Graphic Rendition codes → the classes of the style below.
CLASSES: Final = {"1": "title", "2": "dim", "31": "bad", "32": "good", "33": "warn", "34": "next", "36": "pod"}
_SEQUENCE: Final = re.compile(r"\x1b\[([0-9;]*)m")
_OTHER: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|\r")
_STYLE: Final = """
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1b1f24; white-space: pre; }
.page { fill: #f6f7f9; stroke: #d0d7de; } .title { font-weight: bold; } .dim { fill: #57606a; } .bad { fill: #b3261e; }
.good { fill: #1a7f37; } .warn { fill: #8a5a00; } .pod { fill: #0b7285; } .next { fill: #3b5bdb; }
@media (prefers-color-scheme: dark) {
text { fill: #e6e9ee; } .page { fill: #171c23; stroke: #303842; } .dim { fill: #9aa5b1; } .bad { fill: #ff8a80; }
.good { fill: #6fcf87; } .warn { fill: #e3b341; } .pod { fill: #66d9e8; } .next { fill: #91a7ff; }
}
"""


def picture(text: str, *, label: str) -> str:
    """The SVG of a terminal with this text; `label` is for people who do not see it."""
    lines = _OTHER.sub("", text).rstrip("\n").split("\n")
    columns = max(len(_SEQUENCE.sub("", line)) for line in lines)
    width, height = columns * COLUMN + 2 * EDGE, len(lines) * LINE + 2 * EDGE
    rows = [row for number, line in enumerate(lines, start=1) for row in _row(line, EDGE + number * LINE - 4)]
    page = f'<rect class="page" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="6"/>'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        f'role="img" aria-label="{escape(label, {chr(34): "&quot;"})}">\n'
        f"<style>{_STYLE}</style>"
    )
    return "\n".join([head, page, *rows, "</svg>", ""])


def _row(line: str, y: float) -> Iterator[str]:
    """Each part has its place and length, so that columns stay columns in any font."""
    style, column = "", 0
    for number, part in enumerate(_SEQUENCE.split(line)):
        if number % 2:
            style = CLASSES.get(part, "") if part not in ("", "0") else ""
            continue
        for word in re.finditer(r"\S+(?: \S+)*", part):
            x = EDGE + (column + word.start()) * COLUMN
            kind = f' class="{style}"' if style else ""
            length = f'textLength="{len(word[0]) * COLUMN:g}" lengthAdjust="spacingAndGlyphs"'
            yield f'<text{kind} x="{x:g}" y="{y:g}" {length}>{escape(word[0])}</text>'
        column += len(part)
