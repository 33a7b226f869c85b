"""Shows a page repeatedly for `--watch`: in place on a terminal, as blocks in a pipe.

Belongs here: escape sequences, and when to draw. Never: the content of the page.
"""

from collections.abc import Callable, Sequence
from typing import Final, TextIO, TypeAlias

from accelshare.terminal import clipped, encodable, shortened, width, writing

# Alternate screen and hidden cursor, so that the terminal's former content comes back afterwards.
ENTER: Final = "\x1b[?1049h\x1b[?25l"
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
HOME: Final = "\x1b[H"
END_OF_LINE: Final = "\x1b[K"
BELOW: Final = "\x1b[J"
ESCAPE: Final = "\x1b"
_HEAD: Final = 2  # lines above the page

Size: TypeAlias = tuple[int, int]  # columns and lines
# Makes the page for a part of the screen of this size; none: it is not for a screen.
Page: TypeAlias = Callable[[Size | None], str]


def watch(
    page: Page,
    out: TextIO,
    *,
    every_s: float,
    sleep: Callable[[float], None],
    now: Callable[[], str],
    size: Callable[[], Size],
) -> None:
    """Show the page until Ctrl-C. `size` returns columns and lines of the terminal and is called for each drawing."""
    if out.isatty():
        _live(page, out, every_s=every_s, sleep=sleep, now=now, size=size)
    else:
        _blocks(page, out, every_s=every_s, sleep=sleep, now=now)


def _live(
    page: Page,
    out: TextIO,
    *,
    every_s: float,
    sleep: Callable[[float], None],
    now: Callable[[], str],
    size: Callable[[], Size],
) -> None:
    columns, lines = size()
    text = page((columns, max(1, lines - _HEAD)))  # an immediate failure must not switch the screen
    out.write(ENTER)
    try:
        while True:
            shown = encodable(f"every {every_s:g} s, {now()}; Ctrl-C ends\n\n{text}", out.encoding)
            out.write(encodable(drawn(shown, columns, lines), out.encoding))
            out.flush()
            sleep(every_s)
            columns, lines = size()
            text = page((columns, max(1, lines - _HEAD)))
    except KeyboardInterrupt:
        pass
    finally:
        out.write(LEAVE)
        out.flush()


def _blocks(page: Page, out: TextIO, *, every_s: float, sleep: Callable[[float], None], now: Callable[[], str]) -> None:
    try:
        while True:
            block = encodable(f"# {now()}\n{page(None)}\n", out.encoding)
            with writing(out):
                out.write(block)
                out.flush()
            sleep(every_s)
    except KeyboardInterrupt:
        pass


def drawn(text: str, columns: int, lines: int) -> str:
    """The text drawn over the former one: cut to the screen, with the rest of each line and the lines below erased."""
    shown = text.rstrip("\n").split("\n")
    if len(shown) > lines:
        left = len(shown) - lines + 1
        shown = [*shown[: lines - 1], f"… {left} more lines"]
    # A line with colours was made for this width.
    cut = (line if ESCAPE in line else clipped(line, columns) for line in shown)
    return HOME + f"{END_OF_LINE}\r\n".join(cut) + END_OF_LINE + BELOW


def widest(text: str) -> int:
    """The columns of its longest line. Lines of dashes are only as long as the line above them would be."""
    return max((width(line.rstrip()) for line in text.split("\n") if line.strip("-")), default=0)


def fitted(text: str, columns: int, lines: int, totals: Sequence[str]) -> str:
    """A table on a screen that may be too small for it: what is cut off is said, and the totals stay."""
    shown = text.rstrip("\n").split("\n")
    needed = widest(text)
    if needed <= columns and len(shown) <= lines:
        return "\n".join(clipped(line, columns) for line in shown) + "\n"
    said = [f"… the lines have {needed} columns; -o bars fits {columns}"] if needed > columns else []
    below = [*said, *totals]
    room = max(0, lines - len(below) - 1)
    if len(shown) > room:
        shown, said = shown[:room], [f"… {len(shown) - room} more lines", *said]
    return (
        "\n".join(shortened(line, columns) if line.strip("-") else clipped(line, columns) for line in [*shown, *said, *totals])
        + "\n"
    )
