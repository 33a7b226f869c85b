"""Text from others is shown on a terminal and cannot control it."""

import json
import unicodedata
from collections.abc import Callable
from io import BytesIO, StringIO, TextIOWrapper

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare import terminal

TEXTS = st.text(
    st.characters(codec=None, exclude_categories=()) | st.sampled_from("\u0301\U0001d167\x1b\n\u202e\u3164"), max_size=60
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ml/train-7 on n1", "ml/train-7 on n1"),
        ("昆仑芯 × 4 – é", "昆仑芯 × 4 – é"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x9b2J\x85\x7f\0", r"\x9b2J\x85\x7f\x00"),
        ("one\ntwo\r\tthree", r"one\ntwo\r\tthree"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("safe\u202egpj.exe\u2066", r"safe\u202egpj.exe\u2066"),
        ("a\u200bb\u200db\ufeff\u00ad", r"a\u200bb\u200db\ufeff\xad"),
        ("\U000e0041", r"\U000e0041"),
        ("\ud800", r"\ud800"),
        ("\u3164\u2800", r"\u3164\u2800"),
        ("e\u0301", "e\u0301"),
        ("e" + "\u0301" * 6, "e" + "\u0301" * 4 + r"\u0301\u0301"),
    ],
)
def test_each_character_is_seen(text: str, shown: str) -> None:
    assert terminal.visible(text) == shown


@given(TEXTS)
def test_a_visible_text_is_one_line_that_no_terminal_obeys(text: str) -> None:
    shown = terminal.visible(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    assert terminal.visible(shown) == shown
    for category in map(unicodedata.category, shown):
        assert category not in ("Cc", "Cf", "Cs", "Zl", "Zp")


@given(TEXTS)
def test_lines_of_our_own_layout_stay_and_nothing_else_that_moves_the_cursor(text: str) -> None:
    assert terminal.visible_lines(text).replace("\n", "").replace("\t", "").isprintable()
    assert terminal.visible_lines(text).count("\n") == text.count("\n")


@given(st.recursive(TEXTS | st.integers() | st.none(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner)))
def test_json_keeps_its_data(value: object) -> None:
    text = terminal.visible_json(json.dumps(value, indent=1, ensure_ascii=False))
    assert json.loads(text) == value
    assert text.replace("\n", "").isprintable()
    assert terminal.visible_lines(text) == text  # so that `echo` leaves it as it is


@pytest.mark.parametrize(("text", "columns"), [("", 0), ("abc", 3), ("昆仑", 4), ("e\u0301", 1), ("\uff21b", 3)])
def test_columns_are_those_of_a_terminal(text: str, columns: int) -> None:
    assert terminal.width(text) == columns
    assert terminal.padded(text, 6) == text + " " * (6 - columns)


@given(TEXTS.map(terminal.visible), st.integers(0, 40))
def test_a_clipped_text_fits_and_loses_only_its_end(text: str, columns: int) -> None:
    clipped = terminal.clipped(text, columns)
    assert text.startswith(clipped)
    assert terminal.width(clipped) <= columns
    if clipped != text:
        assert terminal.width(text) > columns


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_document_is_unchanged_in_a_pipe_and_visible_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    content = "a: \x1b[2J\tb\n"
    for out, shown in ((StringIO(), content), (Terminal(), "a: \\x1b[2J\tb\n")):
        monkeypatch.setattr("sys.stdout", out)
        terminal.echo_document(content)
        assert out.getvalue() == shown
    monkeypatch.setattr("sys.stdout", screen := Terminal())
    terminal.echo_document(b"\xff\x1b\n")
    assert screen.getvalue() == "\\xff\\x1b\n"


def test_one_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.echo_line("a\nb\x1b")
    terminal.echo("a\nb\x1b", err=True, nl=False)
    assert tuple(capsys.readouterr()) == ("a\\nb\\x1b\n", "a\nb\\x1b")


@pytest.mark.parametrize("shown", [terminal.visible, terminal.visible_lines, terminal.visible_json])
def test_a_long_text_with_one_foreign_letter_is_not_read_letter_by_letter(
    shown: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report of 5,000 nodes has megabytes, and one model's name in it would cost seconds."""
    looked: list[str] = []

    def is_seen(sign: str) -> bool:
        looked.append(sign)
        return True

    monkeypatch.setattr(terminal, "_is_seen", is_seen)
    assert shown("n1 " * 1_000 + "卡" + " n2" * 1_000) == "n1 " * 1_000 + "卡" + " n2" * 1_000
    assert looked == ["卡"]


def test_what_a_readers_encoding_lacks_ends_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """An inventory with an emoji is read by people whose locale is GBK, too; JSON stays JSON."""
    out = TextIOWrapper(BytesIO(), encoding="gbk")
    monkeypatch.setattr("sys.stdout", out)
    terminal.echo('"昆仑芯 \U0001f600 é"')
    out.seek(0)
    text = out.read()
    assert text.startswith('"昆仑芯 \\ud83d\\ude00 ')
    assert json.loads(text) == "昆仑芯 \U0001f600 é"
