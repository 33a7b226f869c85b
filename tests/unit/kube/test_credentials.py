"""Credentials that are a value or a file."""

import base64
from pathlib import Path

import pytest

from accelshare.kube.credentials import TokenFile, anonymous, basic, static_token
from accelshare.kube.errors import ConfigError


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_values_are_presented_as_they_are() -> None:
    assert anonymous().present().authorization is None
    assert static_token("abc").present().authorization == "Bearer abc"
    header = basic("me", "secret:ü").present().authorization
    assert header is not None
    assert base64.b64decode(header.removeprefix("Basic ")).decode() == "me:secret:ü"


@pytest.mark.parametrize("token", ["a b", "a\nX-Header: 1", "ü", "a\0"])
def test_a_token_that_would_break_the_header_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="bearer token"):
        static_token(token)


def test_secrets_stay_out_of_reprs() -> None:
    assert "abc" not in repr(static_token("abc"))


def test_a_token_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    file, clock = tmp_path / "token", Clock()
    file.write_text("one\n")
    credentials = TokenFile(file, clock=clock)
    assert not credentials.at_hand
    assert credentials.present().authorization == "Bearer one"

    file.write_text("two")
    clock.now += 59
    assert credentials.present().authorization == "Bearer one"

    clock.now += 2
    assert credentials.present().authorization == "Bearer two"


def test_a_refused_token_is_read_again_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    credentials = TokenFile(file, clock=Clock())
    shown = credentials.present()
    file.write_text("two")
    credentials.refused(shown)
    assert credentials.present().authorization == "Bearer two"

    credentials.refused(shown)
    assert credentials.at_hand, "the refusal of an older token says nothing about this one"


def test_while_the_file_cannot_be_read_the_last_token_stays(tmp_path: Path) -> None:
    """kubelet replaces the file; a moment without it is no error."""
    file, clock = tmp_path / "token", Clock()
    file.write_text("one")
    credentials = TokenFile(file, clock=clock)
    credentials.present()
    file.unlink()
    clock.now += 61
    assert credentials.present().authorization == "Bearer one"


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two words", b"\xff"])
def test_a_first_token_that_is_none_is_an_error_that_names_the_file(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=str(file)):
        TokenFile(file).present()
