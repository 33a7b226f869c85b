"""Lines out of chunks of bytes, however long a line is and wherever a chunk ends.

Belongs here: just that. Never: what a line means.
"""

from collections.abc import AsyncIterable, AsyncIterator


class LineTooLongError(ValueError):
    """A line grew beyond what the caller is ready to keep in memory."""


async def split_lines(chunks: AsyncIterable[bytes], *, longest: int) -> AsyncIterator[bytes]:
    """Every line that is not blank, without its line break; at the end also one that has none."""
    parts: list[bytes] = []  # the line that has begun; joined once, so that a long line costs what it weighs
    size = 0
    async for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > longest:
            raise LineTooLongError(f"a line of more than {longest} bytes")
        if not rest:
            continue
        line = b"".join(parts)
        if line.strip():
            yield line
        for line in rest[:-1]:
            if line.strip():
                yield line
        parts = [rest[-1]]
        size = len(rest[-1])
    line = b"".join(parts)
    if line.strip():
        yield line
