"""Shows a page repeatedly for `--watch`: in place on a terminal, as blocks in a pipe.

Belongs here: escape sequences, and when to draw. Never: the content of the page.
"""

from collections.abc import Callable
from typing import Final, TextIO

from accelshare.terminal import clipped, encodable

# Alternate screen and hidden cursor, so that the terminal's former content comes back afterwards.
ENTER: Final = "\x1b[?1049h\x1b[?25l"
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
HOME: Final = "\x1b[H"
END_OF_LINE: Final = "\x1b[K"
BELOW: Final = "\x1b[J"


def watch(
    page: Callable[[], str],
    out: TextIO,
    *,
    every_s: float,
    sleep: Callable[[float], None],
    now: Callable[[], str],
    size: Callable[[], tuple[int, int]],
) -> None:
    """Show the page until Ctrl-C. `size` returns columns and lines of the terminal and is called for each drawing."""
    if out.isatty():
        _live(page, out, every_s=every_s, sleep=sleep, now=now, size=size)
    else:
        _blocks(page, out, every_s=every_s, sleep=sleep, now=now)


def _live(
    page: Callable[[], str],
    out: TextIO,
    *,
    every_s: float,
    sleep: Callable[[float], None],
    now: Callable[[], str],
    size: Callable[[], tuple[int, int]],
) -> None:
    first = page()  # an immediate failure must not switch the screen
    out.write(ENTER)
    try:
        text = first
        while True:
            shown = encodable(f"every {every_s:g} s, {now()}; Ctrl-C ends\n\n{text}", out.encoding)
            out.write(encodable(drawn(shown, *size()), out.encoding))
            out.flush()
            sleep(every_s)
            text = page()
    except KeyboardInterrupt:
        pass
    finally:
        out.write(LEAVE)
        out.flush()


def _blocks(
    page: Callable[[], str], out: TextIO, *, every_s: float, sleep: Callable[[float], None], now: Callable[[], str]
) -> None:
    try:
        while True:
            out.write(encodable(f"# {now()}\n{page()}\n", out.encoding))
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
    return HOME + f"{END_OF_LINE}\r\n".join(clipped(line, columns) for line in shown) + END_OF_LINE + BELOW
