"""The agent's parts, which run for as long as it does: if one ends, all of it does.

Belongs here: starting them, waiting beside them, ending them. Never: what they do.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any


class Parts:
    def __init__(self) -> None:
        self._tasks: list[asyncio.Future[None]] = []

    def start(self, work: Awaitable[None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def beside(self, work: Awaitable[object]) -> None:
        """Wait for this, but not past the end of a part that should never end."""
        waiting: asyncio.Future[object] = asyncio.ensure_future(work)
        parts: list[asyncio.Future[Any]] = [waiting, *self._tasks]
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        if waiting not in done:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        for task in done:
            task.result()
        if waiting not in done:
            raise RuntimeError("a part of the agent ended by itself")

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
