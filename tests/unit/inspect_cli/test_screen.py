"""The screen that redraws itself: in place on a terminal, blocks in a pipe."""

import io

import pytest

from accelshare.inspect_cli import screen


class Terminal(io.StringIO):
    def __init__(self, *, tty: bool) -> None:
        super().__init__()
        self.tty = tty

    def isatty(self) -> bool:
        return self.tty


def pages(*texts: str) -> screen.Page:
    """Each text once, and then Ctrl-C."""
    left = list(texts)

    def page(_size: screen.Size | None) -> str:
        if not left:
            raise KeyboardInterrupt
        return left.pop(0)

    return page


def show(out: Terminal, page: screen.Page, size: tuple[int, int] = (80, 24)) -> list[float]:
    slept: list[float] = []
    screen.watch(page, out, every_s=2.0, sleep=slept.append, now=lambda: "NOW", size=lambda: size)
    return slept


def test_a_terminal_is_redrawn_in_place_and_restored() -> None:
    out = Terminal(tty=True)
    slept = show(out, pages("first\n", "second\n"))
    text = out.getvalue()
    assert text.startswith(screen.ENTER)
    assert text.endswith(screen.LEAVE)
    first, second = text.removeprefix(screen.ENTER).removesuffix(screen.LEAVE).split(screen.HOME)[1:]
    assert first == "every 2 s, NOW; Ctrl-C ends\x1b[K\r\n\x1b[K\r\nfirst\x1b[K\x1b[J"
    assert "second" in second
    assert slept == [2.0, 2.0]


def test_nothing_is_drawn_past_the_edges_of_the_screen() -> None:
    drawn = screen.drawn("a long line\nb\nc\nd\n", columns=6, lines=3)
    assert drawn == "\x1b[Ha long\x1b[K\r\nb\x1b[K\r\n… 2 mo\x1b[K\x1b[J"


def test_a_pipe_gets_blocks_without_escapes() -> None:
    out = Terminal(tty=False)
    show(out, pages("first\n", "second\n"))
    assert out.getvalue() == "# NOW\nfirst\n\n# NOW\nsecond\n\n"


@pytest.mark.parametrize("tty", [True, False])
def test_characters_missing_in_the_terminals_encoding_are_no_error(tty: bool) -> None:
    class Latin(Terminal):
        encoding = "latin-1"

        def write(self, text: str) -> int:
            text.encode("latin-1")
            return super().write(text)

    out = Latin(tty=tty)
    show(out, pages("é\n卡\n" * 30))
    assert r"\u5361" in out.getvalue()
    assert "é" in out.getvalue()


def test_an_immediate_failure_leaves_the_screen_unchanged() -> None:
    out = Terminal(tty=True)

    def page(_size: screen.Size | None) -> str:
        raise LookupError("no cluster")

    with pytest.raises(LookupError):
        show(out, page)
    assert out.getvalue() == ""


def test_a_later_failure_restores_the_screen() -> None:
    out = Terminal(tty=True)
    texts = ["first\n"]

    def page(_size: screen.Size | None) -> str:
        return texts.pop()

    with pytest.raises(IndexError):
        show(out, page)
    assert out.getvalue().endswith(screen.LEAVE)
