"""The stream of one reader: the whole snapshot first, then what changed, at most once a second.

Belongs here: when a reader gets its next message. Never: what is in it (updates.py).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from accelshare.dashboard.updates import Updates

EVERY_S: Final = 1.0
# A reader that hears nothing for three of these takes the connection for dead.
HEARTBEAT_S: Final = 10.0


class EventStream:
    """A body of server-sent events. The server writes a message only after the reader has read the one before."""

    def __init__(
        self,
        updates: Updates,
        last_event_id: str,
        ended: asyncio.Event,
        on_close: Callable[["EventStream"], None],
        *,
        allowed: Callable[[], Awaitable[bool]],
        every_s: float = EVERY_S,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        """`ended` is set when the server stops. `allowed`: whether the reader may have the next message."""
        self._updates = updates
        self._seen = updates.seen_by(last_event_id)
        self._ended = ended
        self._on_close = on_close
        self._allowed = allowed
        self._every_s = every_s
        self._heartbeat_s = heartbeat_s

    async def aclose(self) -> None:
        self._on_close(self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self._ended.is_set() and await self._allowed():
            if self._updates.number > self._seen:
                message = self._updates.message(self._seen)
                self._seen = self._updates.number
                yield message.encode()
                await self._wait(self._ended.wait(), self._every_s)
            elif not await self._wait(self._updates.wait_after(self._seen), self._heartbeat_s):
                yield b": nothing has changed\n\n"

    async def _wait(self, what: Awaitable[object], limit_s: float) -> bool:
        """Whether it came within the limit; the end of the server counts too."""
        waits = [asyncio.ensure_future(what), asyncio.ensure_future(self._ended.wait())]
        try:
            done, _ = await asyncio.wait(waits, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            return bool(done)
        finally:
            for wait in waits:
                wait.cancel()
