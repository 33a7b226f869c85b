"""Lines out of chunks of bytes, however long a line is and wherever a chunk ends.

Belongs here: just that. Never: what a line means.
"""


class LineTooLongError(ValueError):
    """A line grew beyond what the caller is ready to keep in memory."""


class Lines:
    """Every line that is not blank, without its line break."""

    def __init__(self, *, longest: int) -> None:
        self._longest = longest
        self._parts: list[bytes] = []  # the line that has begun; joined once, so that a long line costs what it weighs
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes."""
        first, *others = chunk.split(b"\n")
        self._parts.append(first)
        self._size += len(first)
        if self._size > self._longest:
            raise LineTooLongError(f"a line of more than {self._longest} bytes")
        if not others:
            return []
        lines = [b"".join(self._parts), *others]
        self._parts = [lines.pop()]
        self._size = len(self._parts[0])
        return [line for line in lines if line.strip()]

    def rest(self) -> bytes:
        """The last line, if it has no line break; empty if it has."""
        return b"".join(self._parts).strip()
