"""A line every few seconds, so that a person who waits knows for what.

Belongs here: saying what is being done, and saying it again while it lasts. Never: results (document.py).
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
        """This begins now."""
        self._what, self._since, self._detail = what, time.monotonic(), ""
        self.say(what)

    def detail(self, words: str) -> None:
        """How far it is; shown with the next line."""
        self._detail = words

    def say(self, words: str) -> None:
        print(f"[{time.monotonic() - self._start:6.1f} s] {words}", flush=True)

    @contextlib.asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """While this lasts, say every few seconds what is being done."""
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
