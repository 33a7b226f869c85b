"""Splits a list in protobuf, while it arrives, into parts that can be decoded.

Belongs here: where an object of the list ends. Never: what is in it (protobuf.py).

The API server sends `k8s\\0`, then a message (runtime.Unknown) whose field 2 is the list. A list is a sequence of fields, each
with its length before it, so any number of complete fields is again a list, with fewer objects.
"""

from typing import Final

from accelshare.wire.decoding import PROTOBUF_MAGIC, UnreadableError

LARGEST_OBJECT: Final = 64 << 20  # bytes; etcd takes 1.5 MiB
LONGEST_NUMBER: Final = 10  # bytes: 64 bits, seven in each
_LIST: Final = 2 << 3 | 2  # the tag of field 2, which has a length
_HAS_LENGTH: Final = 2  # the wire type in the lower three bits of a tag


class ListSplitter:
    def __init__(self) -> None:
        self._rest = b""  # of what has come, what is not complete yet
        self._left: int | None = None  # bytes of the list that have not been returned; None: it has not begun

    @property
    def complete(self) -> bool:
        return self._left == 0

    def feed(self, piece: bytes) -> memoryview:
        """The complete fields that have come, as a list. UnreadableError if it is none."""
        data = self._rest + piece if self._rest else piece
        start = 0
        if self._left is None:
            begun = _list_in(data)
            if begun is None:
                self._rest = data
                return memoryview(b"")
            start, self._left = begun
        end = _end_of_fields(data, start, min(len(data), start + self._left))
        self._left -= end - start
        self._rest = data[end:] if self._left else b""
        if len(self._rest) > self._left or len(self._rest) > LARGEST_OBJECT:
            raise UnreadableError("an object of the list is longer than the list, or than any object")
        return memoryview(data)[start:end]


def _list_in(data: bytes) -> tuple[int, int] | None:
    """Where the list begins and how long it is; None if that has not come yet."""
    if not data.startswith(PROTOBUF_MAGIC[: len(data)]):
        raise UnreadableError("it does not begin as the API server's protobuf does")
    at = len(PROTOBUF_MAGIC)
    while (head := _head(data, at)) is not None:
        tag, begin, length = head
        if tag == _LIST:
            return begin, length
        at = begin + length
    if at > LARGEST_OBJECT:
        raise UnreadableError("it has no list")
    return None


def _end_of_fields(data: bytes, at: int, end: int) -> int:
    """Where the last complete field ends."""
    while at < end:
        # Nearly every field: an object of the list with a length of two bytes.
        if data[at] == _LIST and at + 2 < end and data[at + 1] > 127 and data[at + 2] < 128:
            after = at + 3 + (data[at + 1] & 127 | data[at + 2] << 7)
        else:
            head = _head(data, at)
            if head is None:
                break
            after = head[1] + head[2]
        if after > end:
            break
        at = after
    return at


def _head(data: bytes, at: int) -> tuple[int, int, int] | None:
    """The tag of a field, where its content begins, and how long that is; None if that has not come yet."""
    tag = _number(data, at)
    if tag is None:
        return None
    if tag[0] & 7 != _HAS_LENGTH:
        raise UnreadableError(f"the list has a field of wire type {tag[0] & 7}; it must be {_HAS_LENGTH}, with a length")
    length = _number(data, tag[1])
    return (tag[0], length[1], length[0]) if length is not None else None


def _number(data: bytes, at: int) -> tuple[int, int] | None:
    """A number of variable length and where it ends; None if not all of it has come."""
    number = 0
    for place, byte in enumerate(data[at : at + LONGEST_NUMBER]):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number, at + place + 1
    if len(data) - at >= LONGEST_NUMBER:
        raise UnreadableError("the list has a number of more than 64 bits")
    return None
