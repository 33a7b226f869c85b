"""A watch on the wire: one JSON object a line, until the client leaves, the time is up, or the server stops.

Belongs here: waiting, bookmarks, timeouts. Never: which events a watcher sees.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson

from accelshare.testing.api_server.errors import ApiError
from accelshare.testing.api_server.history import Watch

BOOKMARK_EVERY_S: Final = 60.0
# The last bookmark comes this long before the end, so that it arrives.
BOOKMARK_BEFORE_END_S: Final = 2.0
LONGEST_S: Final = 3600.0

Write = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Terms:
    """What the client asked of its watch."""

    timeout_s: float = LONGEST_S
    bookmarks: bool = False
    mark_end_of_initial: bool = False


class Streams:
    """All open watches: what a server that stops must end first."""

    def __init__(self) -> None:
        self._open: set[asyncio.Event] = set()

    def end_all(self) -> None:
        """End every watch, as a server does that shuts down: cleanly, with its last chunk."""
        for ended in tuple(self._open):
            ended.set()

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def _opened(self) -> Iterator[asyncio.Event]:
        ended = asyncio.Event()
        self._open.add(ended)
        try:
            yield ended
        finally:
            self._open.discard(ended)

    async def serve(self, watch: Watch, terms: Terms, write: Write, left: Awaitable[Any]) -> None:
        """Write events until the end. `left` completes when the client is gone."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + terms.timeout_s
        marks = _bookmark_times(loop.time(), deadline) if terms.bookmarks else iter(())
        next_mark, began = next(marks, deadline), watch.revision
        news = asyncio.Event()
        watch.on_change(news.set)
        with self._opened() as ended:
            leaving = asyncio.ensure_future(left)
            ending = asyncio.ensure_future(ended.wait())
            try:
                if terms.mark_end_of_initial:
                    await _write_events(watch, write)
                    await write(_bookmark(watch, end_of_initial=True))
                while not (leaving.done() or ending.done()) and loop.time() < deadline:
                    news.clear()
                    await _write_events(watch, write)
                    if loop.time() >= next_mark < deadline:
                        if watch.revision > began:  # a client that has missed nothing knows its place
                            await write(_bookmark(watch))
                        next_mark = next(marks, deadline)
                    await _first_of(news, (leaving, ending), until=min(next_mark, deadline))
            except ApiError as error:
                await write(_line("ERROR", orjson.dumps(error.status())))
            finally:
                watch.close()
                leaving.cancel()
                ending.cancel()
                await asyncio.gather(leaving, ending, return_exceptions=True)


async def _write_events(watch: Watch, write: Write) -> None:
    while events := watch.take():
        await write(b"".join(_line(event.type, event.version.json) for event in events))


async def _first_of(news: asyncio.Event, ends: tuple[asyncio.Future[Any], ...], *, until: float) -> None:
    loop = asyncio.get_running_loop()
    waiting = asyncio.ensure_future(news.wait())
    try:
        await asyncio.wait((waiting, *ends), timeout=max(0.0, until - loop.time()), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


def _bookmark_times(start: float, deadline: float) -> Iterator[float]:
    moment = start + BOOKMARK_EVERY_S
    while moment < deadline - BOOKMARK_BEFORE_END_S:
        yield moment
        moment += BOOKMARK_EVERY_S
    yield max(start, deadline - BOOKMARK_BEFORE_END_S)


def _bookmark(watch: Watch, *, end_of_initial: bool = False) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(watch.revision)}
    if end_of_initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    content = {"kind": watch.resource.kind, "apiVersion": watch.resource.api_version, "metadata": metadata}
    return _line("BOOKMARK", orjson.dumps(content))


def _line(kind: str, content: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + content + b"}\n"
