"""Prints what is being measured, at least every few seconds.

Belongs here: printing the current step, again while it lasts. Never: results (document.py).
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Final

EVERY_S: Final = 5.0


class Progress:
    def __init__(self) -> None:
        self._start = time.monotonic()
        self._what = "starting"
        self._since = self._start
        self._detail = ""

    def doing(self, what: str) -> None:
        """Start a step."""
        self._what, self._since, self._detail = what, time.monotonic(), ""
        self.say(what)

    def detail(self, text: str) -> None:
        """The progress of the step; printed with the next line."""
        self._detail = text

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._start:6.1f} s] {text}", flush=True)

    @contextlib.asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Print the current step every few seconds inside the block."""
        beat = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            lasted = time.monotonic() - self._since
            if lasted >= EVERY_S:
                self.say(f"  … {self._what}{self._detail and f': {self._detail}'} ({lasted:.0f} s)")
