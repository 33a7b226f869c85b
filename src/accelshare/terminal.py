"""Prints text for people. Text from others cannot move the cursor, hide a character or begin a line.

Belongs here: making characters visible, their width on a terminal, and writing to standard output and standard error.
Never: the content of the text, or its layout.

Names, records, inventories and error messages are written by others. Code that puts one into a line calls `visible`, which leaves
no line break in it. `echo` checks again: it keeps only the line breaks of our own layout. In JSON these characters are
escaped as JSON escapes them, so the data stays as it was.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

# Letters and marks that a terminal does not show, although they are not control characters in Unicode.
_BLANK: Final = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
# Marks that are drawn over the character before them; a longer run would cover the lines around it.
_MOST_MARKS: Final = 4
_NOT_PLAIN: Final = re.compile(r"[^ -~]+")
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str) -> str:
    """The text as one line: every character is shown, and none controls the terminal (`\\x1b`, `\\n`, `\\u202e`)."""
    return text if text.isascii() and text.isprintable() else _visible(text, kept="")


def visible_lines(text: str) -> str:
    """The same for a text whose line breaks and tabs are our own."""
    return text if text.isascii() and text.replace("\n", "").isprintable() else _visible(text, kept="\n\t")


def visible_json(text: str) -> str:
    """A JSON text with the same data, in which every character is shown. Outside of strings JSON is ASCII."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _visible(text, kept="\n", escaped=_json_escaped)


def is_visible(text: str) -> bool:
    """Would the text be printed as it is?"""
    return visible(text) == text


def width(text: str) -> int:
    """How many columns a visible text takes: Chinese characters take two, marks over another character none."""
    if text.isascii():
        return len(text)
    from unicodedata import east_asian_width

    return sum(0 if _is_mark(sign) else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def padded(text: str, columns: int) -> str:
    """The text with spaces behind it, up to this many columns."""
    return text + " " * (columns - width(text))


def clipped(text: str, columns: int) -> str:
    """As much of the text's beginning as this many columns hold."""
    if text.isascii() or width(text) <= columns:
        return text[:columns] if text.isascii() else text
    taken = 0
    for place, sign in enumerate(text):
        taken += width(sign)
        if taken > columns:
            return text[:place]
    return text


def shortened(text: str, columns: int) -> str:
    """The text if this many columns hold it, else its beginning and an ellipsis."""
    return text if width(text) <= columns else f"{clipped(text, max(0, columns - 1))}…"


def encodable(text: str, encoding: str | None) -> str:
    """The text with escapes for characters that the output's encoding lacks, such as an emoji in GBK: printing never fails."""
    encoding = encoding or "utf-8"
    if text.isascii() or _can_encode(text, encoding):
        return text
    return "".join(sign if sign.isascii() or _can_encode(sign, encoding) else _json_escaped(sign) for sign in text)


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text whose line breaks are our own layout."""
    _write(visible_lines(text), err=err, nl=nl)


def echo_line(text: str, *, err: bool = False) -> None:
    """Print one line, whatever is in it."""
    _write(visible(text), err=err, nl=True)


def echo_document(content: str | bytes) -> None:
    """Print a file's content: to the byte into a file or a pipe, made visible on a terminal."""
    if sys.stdout.isatty():
        content = visible_lines(content if isinstance(content, str) else content.decode("utf-8", "backslashreplace"))
    _write(content, err=False, nl=False)


def echo_painted(text: str) -> None:
    """Print a text that was made visible before colours were put into it."""
    _write(text, err=False, nl=False)


def _write(text: str | bytes, *, err: bool, nl: bool) -> None:
    import click

    if isinstance(text, str):
        text = encodable(text, (sys.stderr if err else sys.stdout).encoding)
    with writing(sys.stderr if err else sys.stdout):
        click.echo(text, err=err, nl=nl, color=True)


@contextmanager
def writing(out: TextIO) -> Iterator[None]:
    """Output that cannot be written, to a full disk for example, is an error for people."""
    try:
        yield
    except BrokenPipeError:  # the reader has left; click ends the program
        raise
    except OSError as error:
        import click

        # What is left in the buffer would be tried again at the end of the program.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        raise click.ClickException(f"the output cannot be written: {error.strerror}") from error


def _can_encode(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _escaped(sign: str) -> str:
    number = ord(sign)
    if number < 0x100:
        return _SHORT.get(sign) or f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _visible(text: str, *, kept: str, escaped: Callable[[str], str] = _escaped) -> str:
    # Character by character only where something is not plain ASCII: one name in a report of 5,000 nodes must not take seconds.
    return _NOT_PLAIN.sub(lambda found: _visible_part(found[0], kept, escaped), text)


def _visible_part(text: str, kept: str, escaped: Callable[[str], str]) -> str:
    shown: list[str] = []
    marks = 0
    for sign in text:
        marks = marks + 1 if _is_mark(sign) else 0
        shown.append(sign if sign in kept or (_is_seen(sign) and marks <= _MOST_MARKS) else escaped(sign))
    return "".join(shown)


def _is_seen(sign: str) -> bool:
    return sign.isprintable() and not _BLANK.match(sign)


def _is_mark(sign: str) -> bool:
    if sign.isascii():
        return False
    from unicodedata import category

    return category(sign) in ("Mn", "Me")


def _json_escaped(sign: str) -> str:
    import json

    return "\\u007f" if sign == "\x7f" else json.dumps(sign)[1:-1]
