"""Decodes all JSON from outside: API objects, lists, watch events, records, inventories, kube-scheduler's calls.

Belongs here: decoding with limits, and one error for everything that cannot be read. Never: what a text means.

msgspec checks types and numbers, and answers text that is not UTF-8 with a UnicodeDecodeError. It recurses, also over parts that
are skipped, and raises RecursionError at some thousand levels, less on a deep stack. No object that we read has more than
20 levels, so what lies deeper than `MOST_LEVELS` is replaced by null and the rest is read: a hostile part affects only itself.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

T = TypeVar("T")

MOST_LEVELS: Final = 64
LONGEST_PROBLEM: Final = 200  # characters of an error's text
LONGEST_ANNOTATION: Final = 256 << 10  # bytes; the API server takes no more in all annotations of an object together
LONGEST_VERSION: Final = 20  # digits: versions are 64 bits
PROTOBUF_MAGIC: Final = b"k8s\0"  # begins everything that the API server encodes in protobuf (protobuf.py), and no JSON

# Up to the next bracket outside of strings, or to the end. It always matches and never goes back, so no byte is looked at twice.
_TO_BRACKET: Final = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+(?:"|\Z|\\\Z))*+(?:([\[\]{}])|\Z)', re.DOTALL)


class UnreadableError(ValueError):
    """Something from outside cannot be read; the text is the reason."""


class ListPage(msgspec.Struct, frozen=True):
    """A part of a list as it comes: its items as they are, undecoded in JSON, and where the next part begins."""

    items: Sequence[Any]
    resource_version: str
    continue_token: str  # empty: this is the last part
    binary: bool = False  # it came in protobuf


class ListStream(Protocol):
    """A list that is decoded while it comes."""

    resource_version: str  # empty: it has not come yet

    @property
    def complete(self) -> bool:
        """Whether all of it has come; false if the API server sent only a part of it, with a continue token."""

    def feed(self, piece: bytes) -> Sequence[Any]:
        """The objects that are complete with this piece of the body. UnreadableError if any of it cannot be read."""


class ListDecoder(Protocol):
    """Decodes lists of one kind of objects in protobuf."""

    def page(self, body: bytes) -> ListPage:
        """UnreadableError if any of it cannot be read."""

    def stream(self) -> ListStream:
        """A new list, to be read while it comes."""


class Decoder(Generic[T]):
    """Decodes JSON to one type. Whatever the text is, it returns a value of that type or raises UnreadableError."""

    __slots__ = ("_decode", "_most_bytes")

    def __init__(self, kind: type[T], *, most_bytes: int = 0) -> None:
        """`most_bytes`: refuse longer texts; 0: their length was limited when they were received."""
        self._decode = msgspec.json.Decoder(kind).decode
        self._most_bytes = most_bytes

    def decode(self, text: bytes | str | msgspec.Raw) -> T:
        if self._most_bytes and len(text if isinstance(text, str) else bytes(text)) > self._most_bytes:
            raise UnreadableError(f"it is longer than {self._most_bytes} bytes")
        try:
            return self._decode(text)
        except RecursionError:
            pass  # read again below: the stack of an exception handler is deeper
        except ValueError as error:
            raise UnreadableError(str(error)[:LONGEST_PROBLEM]) from error
        try:
            return self._decode(shallow(text.encode() if isinstance(text, str) else bytes(text)))
        except (ValueError, RecursionError) as error:
            raise UnreadableError(f"it is nested deeper than {MOST_LEVELS} levels: {error}"[:LONGEST_PROBLEM]) from error


def shallow(text: bytes) -> bytes:
    """The same JSON with null for whatever lies deeper than `MOST_LEVELS`. Text that is not valid JSON stays invalid."""
    kept: list[bytes] = []
    level = 0
    start = 0
    for part in _TO_BRACKET.finditer(text):
        if part.lastindex is None:
            break
        end = part.end()
        if text[end - 1] in b"[{":
            level += 1
            if level == MOST_LEVELS + 1:
                kept += (text[start : end - 1], b"null")
        else:
            if level == MOST_LEVELS + 1:
                start = end
            level -= 1
    if level <= MOST_LEVELS:
        kept.append(text[start:])
    return b"".join(kept)


def version_number(text: str) -> int:
    """A resourceVersion as a number that grows with each write. The API guarantees only a string; one that is no number is 0."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_VERSION else 0
