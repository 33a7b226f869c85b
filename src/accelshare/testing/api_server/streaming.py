"""A watch as a stream of bytes: one JSON object a line, until the time is up or the server stops.

Belongs here: waiting, bookmarks, timeouts. Never: which events a watcher sees.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from accelshare.testing.api_server.errors import RequestError
from accelshare.testing.api_server.history import Watch

BOOKMARK_EVERY_S: Final = 60.0
# The last bookmark comes this long before the end, so that it arrives.
BOOKMARK_BEFORE_END_S: Final = 2.0
MAX_WATCH_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The parameters of a watch request."""

    timeout_s: float = MAX_WATCH_S
    bookmarks: bool = False
    mark_end_of_initial: bool = False


class WatchStream:
    """The body of one watch's response. `end` ends it cleanly, as a server does that shuts down."""

    def __init__(self, watch: Watch, options: WatchOptions, on_close: Callable[["WatchStream"], None]) -> None:
        self._watch = watch
        self._options = options
        self._on_close = on_close
        self._changed = asyncio.Event()
        self._ended = False
        watch.on_change(self._changed.set)

    def end(self) -> None:
        self._ended = True
        self._changed.set()

    async def aclose(self) -> None:
        self._watch.close()
        self._on_close(self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.timeout_s
        marks = _bookmark_times(loop.time(), deadline) if self._options.bookmarks else iter(())
        next_mark, first_revision = next(marks, deadline), self._watch.revision
        mark_initial = self._options.mark_end_of_initial
        try:
            while not self._ended and loop.time() < deadline:
                self._changed.clear()
                while events := self._watch.take():
                    yield b"".join(_line(event.type, event.version.json) for event in events)
                if mark_initial:
                    mark_initial = False
                    yield _bookmark(self._watch, end_of_initial=True)
                if loop.time() >= next_mark < deadline:
                    if self._watch.revision > first_revision:  # a client that has missed nothing needs no bookmark
                        yield _bookmark(self._watch)
                    next_mark = next(marks, deadline)
                await self._wait_until(min(next_mark, deadline))
        except RequestError as error:
            yield _line("ERROR", orjson.dumps(error.status()))

    async def _wait_until(self, moment: float) -> None:
        """Until there are events, or the watch is ended, or this moment of the loop's clock."""
        if self._ended:
            return
        try:
            async with asyncio.timeout_at(moment):
                await self._changed.wait()
        except TimeoutError:
            pass


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
