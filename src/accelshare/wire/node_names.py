"""The node names of one call, which are thousands while one is wanted: read only when looking is not enough.

Belongs here: finding a name in the list as it was sent, and reading the list when more than a few are looked for.
"""

from collections.abc import Iterator
from typing import Final

from accelshare.wire.decoding import Decoder

MOST_LOOKS: Final = 16  # a look goes through all bytes; reading them costs about as much as so many looks
_decoder: Final = Decoder(list[str])


class NodeNames:
    """A list of names in JSON. A name with escapes in it is not found by looking, only by reading."""

    __slots__ = ("_count", "_looks", "_raw", "_read", "_set")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._count: int | None = None
        self._looks = 0
        self._read: list[str] | None = None
        self._set: frozenset[str] | None = None

    def __contains__(self, name: object) -> bool:
        if self._set is None:
            if self._looks < MOST_LOOKS:
                self._looks += 1
                return f'"{name}"'.encode() in self._raw
            self._set = frozenset(self.listed())
        return name in self._set

    def __iter__(self) -> Iterator[str]:
        return iter(self.listed())

    def __len__(self) -> int:
        if self._count is None:
            self._count = self._raw.count(b",") + (b'"' in self._raw)  # no name has a comma in it
        return self._count

    def listed(self) -> list[str]:
        """All of them; UnreadableError if they are no names."""
        if self._read is None:
            self._read = _decoder.decode(self._raw)
        return self._read
