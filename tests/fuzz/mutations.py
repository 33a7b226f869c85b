"""Damages samples: bytes, words and JSON trees. The same random numbers give the same damage.

Belongs here: from a sample and a random generator to hostile input. Never: what the input is for.
"""

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any, Final

# Pieces that parsers have stumbled over.
TOKENS: Final = (
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"[" * 2000,
    b'{"a":' * 300,
    b"9" * 400,
    b"9" * 5000,
    b" " * 20_000,
    b"1e9999",
    b"-1",
    b"0x7fffffffffffffff",
    b"99999999999999999999",
    b"NaN",
    b"null",
    b'"',
    b"\\u0000",
    b"\\ud800",
    b"\r\n\r\n",
    b"\n",
    b"\t",
    b"\x1b[2J",
    "\u0663\u0665".encode(),
    "\u00b2".encode(),
    "\u202e".encode(),
    b"%s%n{0}{index}",
    b"&a [*a]",
    b"*a",
    b"!!python/object:os.system x",
    b"'''",
    b"=",
    b",",
    b"|",
    b": ",
    b"a" * 5000,
)
VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    2**64,
    -(2**63),
    10**30,
    0.5,
    1e308,
    "",
    "0",
    "-1",
    "1.5",
    "4k",
    "1e9999",
    "9" * 5000,
    " " * 5000,
    "\u0663",
    "\u00b2",
    "\x00",
    "\x1b[2J\n",
    "a" * 5000,
    "{}",
    "[]",
    "null",
    [],
    {},
    [[]],
    {"": ""},
    [None],
    {"a": None},
)


def damaged(random: Random, sample: bytes, others: Sequence[bytes]) -> bytes:
    """The sample with one to four changes of its bytes."""
    data = bytearray(sample)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        random.choice(_CHANGES)(random, data, others)
    return bytes(data)


def _place(random: Random, data: bytearray) -> int:
    return random.randrange(len(data) + 1)


def _flip(random: Random, data: bytearray, _others: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] = random.randrange(256)


def _cut_out(random: Random, data: bytearray, _others: Sequence[bytes]) -> None:
    start = _place(random, data)
    del data[start : start + random.choice((1, 2, 8, 64))]


def _cut_off(random: Random, data: bytearray, _others: Sequence[bytes]) -> None:
    del data[_place(random, data) :]


def _repeat(random: Random, data: bytearray, _others: Sequence[bytes]) -> None:
    start = _place(random, data)
    part = bytes(data[start : start + random.choice((1, 8, 64, 400))])
    data[start:start] = part * random.choice((1, 2, 10))


def _insert(random: Random, data: bytearray, _others: Sequence[bytes]) -> None:
    start = _place(random, data)
    data[start:start] = random.choice(TOKENS)


def _replace(random: Random, data: bytearray, _others: Sequence[bytes]) -> None:
    start = _place(random, data)
    token = random.choice(TOKENS)
    data[start : start + random.choice((1, len(token)))] = token


def _mix(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    other = random.choice(others)
    start = random.randrange(len(other) + 1)
    at = _place(random, data)
    data[at:at] = other[start : start + random.choice((8, 64, 400))]


_CHANGES: Final[tuple[Callable[[Random, bytearray, Sequence[bytes]], None], ...]] = (
    _flip,
    _flip,
    _cut_out,
    _cut_off,
    _repeat,
    _insert,
    _replace,
    _replace,
    _mix,
)


def damaged_tree(random: Random, sample: bytes) -> bytes:
    """JSON with one to three values replaced, removed, nested or put elsewhere; still JSON."""
    root = json.loads(sample)
    for _ in range(random.choice((1, 1, 2, 3))):
        root = _changed(random, root)
    return json.dumps(root).encode()


def _value(random: Random) -> Any:
    return deepcopy(random.choice(VALUES))  # a later change must not reach the table


def _changed(random: Random, root: Any) -> Any:
    holder, key = _somewhere(random, root)
    if holder is None:
        return _value(random)
    how = random.randrange(8)
    if how < 4:
        holder[key] = _value(random)
    elif how == 4:
        del holder[key]
    elif how == 5:
        holder[key] = [deepcopy(holder[key]) for _ in range(random.choice((1, 2, 30)))]
    elif how == 6:
        holder[key] = json.dumps(holder[key])
    elif isinstance(holder, dict):
        holder[random.choice(("", "a", "\x00", "annotations", "limits", "x" * 300))] = _value(random)
    else:
        holder.append(_value(random))
    return root


def _somewhere(random: Random, root: Any) -> tuple[Any, Any]:
    """A container and one of its keys; (None, None): the root itself."""
    holder, key, value = None, None, root
    while isinstance(value, dict | list) and value and random.random() < 0.85:
        holder = value
        key = random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
        value = holder[key]
    return holder, key
