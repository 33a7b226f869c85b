"""Lines of text that fit a number of columns: nothing is cut off, what does not fit continues on the next line.

Belongs here: wrapping pieces of text with a style each, measured in columns of a terminal. Never: what the lines say.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from accelshare.terminal import clipped, visible, width

# (text, style) → the text to print.
Paint: TypeAlias = Callable[[str, str], str]
NARROWEST: Final = 20  # columns; on a narrower screen the terminal wraps


class Piece(NamedTuple):
    """A visible text that stays together where it can, and its style; "" is none."""

    text: str
    style: str = ""


Line: TypeAlias = list[Piece]


def piece(text: str, style: str = "") -> Piece:
    """A piece of a text that others wrote."""
    return Piece(visible(text), style)


def plain(text: str, _style: str) -> str:
    return text


def line_width(line: Iterable[Piece]) -> int:
    return sum(width(part.text) for part in line)


def painted(line: Iterable[Piece], paint: Paint) -> str:
    """The line as text, without blanks at its end."""
    parts = list(line)
    while parts and not parts[-1].text.strip():
        parts.pop()
    if parts:
        parts[-1] = parts[-1]._replace(text=parts[-1].text.rstrip())
    return "".join(paint(part.text, part.style) if part.style else part.text for part in parts)


def wrapped(pieces: Sequence[Piece], columns: int, *, separator: str = ", ") -> Iterator[Line]:
    """The pieces with separators between them, in lines of at most so many columns. A longer piece continues on the next line."""
    line: Line = []
    taken = 0
    for part in pieces:
        if line and taken + width(separator) + width(part.text) <= columns:
            line.append(Piece(separator))
            taken += width(separator)
        elif line:
            # At the end of a line a separator that does not fit is left out.
            yield [*line, Piece(separator.rstrip())] if taken + width(separator.rstrip()) <= columns else line
            line, taken = [], 0
        *full, rest = broken(part, columns)
        for each in full:
            yield [each]
        line.append(rest)
        taken += width(rest.text)
    if line:
        yield line


def broken(part: Piece, columns: int) -> Iterator[Piece]:
    """The piece in parts of at most so many columns; after a blank, if there is one in the second half."""
    text = part.text
    while width(text) > columns:
        head = clipped(text, columns) or text[:1]
        blank = head.rfind(" ") + 1
        if blank > len(head) // 2 and text[len(head)] != " ":
            head = head[:blank]
        yield Piece(head.rstrip(), part.style)
        text = text[len(head) :].lstrip(" ")
    yield Piece(text, part.style)
