"""Decoding JSON from outside: a value of the right type or UnreadableError, for any input."""

import json
import sys

import msgspec
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from accelshare.wire.decoding import MOST_LEVELS, Decoder, UnreadableError, shallow, version_number

DEEPER_THAN_PYTHON = sys.getrecursionlimit() * 20


class Thing(msgspec.Struct):
    name: str = ""
    size: int = 0
    part: msgspec.Raw = msgspec.Raw()


things = Decoder(Thing)


def deep(levels: int) -> str:
    return '[{"key \\" [":' * levels + "1" + "}]" * levels


@pytest.mark.parametrize("field", ["skipped", "part"])
@pytest.mark.parametrize("levels", [10, 400, 1_000, DEEPER_THAN_PYTHON])
def test_a_deep_part_does_not_spoil_the_rest(field: str, levels: int) -> None:
    assert things.decode(f'{{"name": "a", "{field}": {deep(levels)}, "size": 3}}').size == 3


@pytest.mark.parametrize(
    "text",
    [
        f'{{"name": {deep(DEEPER_THAN_PYTHON)}}}',
        deep(DEEPER_THAN_PYTHON),
        "[" * DEEPER_THAN_PYTHON,
        "[" * DEEPER_THAN_PYTHON + '"' + '\\"' * 1_000_000,
        '{"x":' + "[" * DEEPER_THAN_PYTHON + '"' + '\\"' * 1_000_000 + "\\",
        "",
        "null",
        '{"name": 7}',
        '{"size": true}',
        '{"size": 1.5}',
        '{"size": 1e999999999}',
        f'{{"size": {"9" * 100_000}}}',
        '{"name": "\\ud800"}',
        '{"name": "\ud800"}',
    ],
    ids=range(14),
)
def test_unreadable_json_is_one_error(text: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        things.decode(text)
    assert len(str(caught.value)) <= 200


def test_text_that_is_not_utf8_is_the_same_error() -> None:
    with pytest.raises(UnreadableError):
        things.decode(b'{"name": "\xff"}')


def test_a_text_that_is_too_long_is_not_read() -> None:
    small = Decoder(Thing, most_bytes=20)
    assert small.decode('{"size": 1}').size == 1
    with pytest.raises(UnreadableError, match="longer than 20 bytes"):
        small.decode('{"name": "twenty bytes are too few"}')


@for_all(
    st.recursive(st.text('"\\[]{}x') | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text('"[\\'), inner))
)
def test_shallow_json_is_unchanged(value: object) -> None:
    text = json.dumps(value).encode()
    assert shallow(text) == text


@for_all(st.integers(1, 3), st.integers(MOST_LEVELS - 2, MOST_LEVELS + 3))
def test_deep_json_becomes_null(width: int, levels: int) -> None:
    """Siblings before and after the deep part are kept."""
    value: object = "]"
    for _ in range(levels):
        value = ["[", *[value] * width, "]"] if width == 1 else ["[", value, "]"]
    read = json.loads(shallow(json.dumps(value).encode()))
    found = 0
    while isinstance(read, list):
        assert (read[0], read[-1]) == ("[", "]")
        read = read[1]
        found += 1
    assert found == min(levels, MOST_LEVELS)
    assert read == ("]" if levels <= MOST_LEVELS else None)


@pytest.mark.parametrize(("text", "number"), [("17", 17), ("", 0), ("v1", 0), ("²", 0), ("9" * 5_000, 0), ("-1", 0)])
def test_a_version_is_a_number_of_64_bits_or_zero(text: str, number: int) -> None:
    assert version_number(text) == number
