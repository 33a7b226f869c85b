"""Protocol Buffers as far as NRI needs them: a message is a frozen dataclass whose annotations are its table.

    id: Annotated[str, 1] = ""

says that field 1 is a string. A type is one of str, bytes, int, bool, Mapping[str, str], tuple[str, ...], tuple[Message, ...]
and Message | None. Belongs here: bytes ⇄ dataclasses. Unknown fields are skipped, so newer peers do no harm; bad bytes are a
WireError. Never: what a message means.
"""

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Final, TypeVar, cast, get_args, get_origin, get_type_hints

from accelshare.agent.nri.protocol.errors import WireError

LARGEST_MESSAGE: Final = 4 * 2**20  # as ttrpc has it
# A message of the largest size could hold two million empty fields; a real list of that size, of 1,600 containers, has 240,000.
MOST_FIELDS: Final = 500_000

VARINT, FIXED_64, LENGTH, FIXED_32 = 0, 1, 2, 5
_FIXED: Final = {FIXED_64: 8, FIXED_32: 4}
_LARGEST_NUMBER: Final = 2**64 - 1

Message = TypeVar("Message")


@dataclass(frozen=True, slots=True)
class _Field:
    """One row of a message's table."""

    name: str
    number: int
    wire: int
    read: Callable[[Any, "_Budget"], Any]  # from an int or bytes
    write: Callable[[Any], Any]  # to an int or bytes
    many: bool = False
    is_map: bool = False


class _Budget:
    """How many fields may still be read, over all nested messages."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST_FIELDS


def encode(message: Any) -> bytes:
    """The message's bytes, fields in the order of their numbers; what is at its default is left out."""
    parts: list[bytes] = []
    for row in _table(message.__class__).values():
        value = getattr(message, row.name)
        for item in _items(row, value):
            parts.append(_varint(row.number << 3 | row.wire))
            content = row.write(item)
            if row.wire == LENGTH:
                parts.append(_varint(len(content)))
                parts.append(content)
            else:
                parts.append(_varint(content))
    return b"".join(parts)


def _items(row: _Field, value: Any) -> Iterable[Any]:
    if row.is_map:
        return cast("Mapping[str, str]", value).items()
    if row.many:
        return cast("tuple[Any, ...]", value)
    # An empty string, a zero or False is the same as not there; an empty message is there.
    return (value,) if value else ()


def decode(kind: type[Message], data: bytes) -> Message:
    """The message in these bytes; WireError if they are not one."""
    if len(data) > LARGEST_MESSAGE:
        raise WireError(f"a {kind.__name__} of {len(data)} bytes; at most {LARGEST_MESSAGE} may come")
    decoded: Message = _decode(kind, data, _Budget())
    return decoded


def _decode(kind: Any, data: bytes, budget: _Budget) -> Any:
    return kind(**_found(kind, data, budget))


def _found(kind: Any, data: bytes, budget: _Budget) -> dict[str, Any]:
    """The fields that are there, by name. Every container of a node waits for this, so it is one loop with few calls in it."""
    table = _table(kind)
    found: dict[str, Any] = {}
    position, end = 0, len(data)
    while position < end:
        budget.left -= 1
        if budget.left < 0:
            raise WireError(f"a message has more than {MOST_FIELDS} fields")
        key = data[position]
        position += 1
        if key >= 0x80:
            key, position = _read_varint(data, position - 1)
        number, wire = key >> 3, key & 7
        if not 0 < number < 2**29:
            raise WireError(f"a field has the number {number}; it must be 1 to 536870911")
        content: int | bytes
        if wire == LENGTH or wire in _FIXED:
            length, position = _read_varint(data, position) if wire == LENGTH else (_FIXED[wire], position)
            if length > end - position:
                raise WireError(f"field {number} says {length} bytes, but only {end - position} are left")
            content = data[position : position + length]
            position += length
        elif wire == VARINT:
            content, position = _read_varint(data, position)
        else:
            raise WireError(f"field {number} has the unknown wire type {wire}")
        row = table.get(number)
        if row is None:
            continue
        if wire != row.wire:
            raise WireError(f"{kind.__name__}.{row.name} (field {number}) has wire type {wire}; it must be {row.wire}")
        value = row.read(content, budget)
        if row.is_map:
            found.setdefault(row.name, {})[value[0]] = value[1]
        elif row.many:
            found.setdefault(row.name, []).append(value)
        else:
            found[row.name] = value
    for name, value in found.items():
        if value.__class__ is list:
            found[name] = tuple(value)
    return found


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    if position < len(data) and data[position] < 0x80:  # most are one byte
        return data[position], position + 1
    value = shift = 0
    while True:
        if position >= len(data):
            raise WireError("a number ends in its middle")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _LARGEST_NUMBER:
                raise WireError(f"a number is {value}; it must fit into 64 bits")
            return value, position
        shift += 7
        if shift > 63:
            raise WireError("a number has more than 10 bytes")


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


# Values.


def _read_text(content: bytes, _budget: _Budget) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise WireError(f"a text of {len(content)} bytes is not UTF-8: {error}") from error


def _write_text(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise WireError(f"the text {value!r} cannot be written as UTF-8: {error}") from error


def _read_number(content: int, _budget: _Budget) -> int:
    return content - 2**64 if content >= 2**63 else content


def _write_number(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise WireError(f"the number {value} does not fit into 64 bits")
    return value & _LARGEST_NUMBER


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of a map: on the wire a message."""

    key: Annotated[str, 1] = ""
    value: Annotated[str, 2] = ""


def _read_entry(content: bytes, budget: _Budget) -> tuple[str, str]:
    entry = _found(_Entry, content, budget)
    return entry.get("key", ""), entry.get("value", "")


# Tables.

_SCALARS: Final[Mapping[object, tuple[int, Callable[..., Any], Callable[..., Any]]]] = {
    str: (LENGTH, _read_text, _write_text),
    bytes: (LENGTH, lambda content, _budget: content, bytes),
    int: (VARINT, _read_number, _write_number),
    bool: (VARINT, lambda content, _budget: content != 0, int),
}


@cache
def _table(kind: Any) -> Mapping[int, _Field]:
    hints = get_type_hints(kind, include_extras=True)
    rows = [_row(kind, field.name, *get_args(hints[field.name])) for field in fields(kind)]
    return {row.number: row for row in sorted(rows, key=lambda row: row.number)}


def _row(kind: type, name: str, wanted: Any, number: int) -> _Field:
    if wanted in _SCALARS:
        return _Field(name, number, *_SCALARS[wanted])
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin is Mapping:
        return _Field(name, number, LENGTH, _read_entry, lambda item: encode(_Entry(*item)), many=True, is_map=True)
    if origin is tuple and inner[0] is str:
        return _Field(name, number, *_SCALARS[str], many=True)
    if origin in (tuple, types.UnionType) and is_dataclass(inner[0]):
        message: Any = inner[0]
        many = origin is tuple
        return _Field(name, number, LENGTH, lambda content, budget: _decode(message, content, budget), encode, many=many)
    raise TypeError(f"{kind.__name__}.{name} is {wanted}, which this codec does not know")
