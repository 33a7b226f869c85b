"""Wait until a condition holds: with a limit, a progress line, and an error with the last state.

Belongs here: the only waiting loops of `cluster/`, `bench/node` and the tests' helpers. Never: what is waited for.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from cluster.errors import ClusterError

T = TypeVar("T")
Errors = tuple[type[Exception], ...]

_PROGRESS_EVERY_S: Final = 30.0


def wait_until(
    condition: Callable[[], T],
    what: str,
    limit_s: float = 180.0,
    every_s: float = 0.05,
    *,
    retry_on: Errors = (),
    evidence: Callable[[], str] = str,
) -> T:
    """Return the condition's first true value.

    An exception of the condition ends the wait at once, unless its type is in `retry_on`. `evidence` is called when the limit has
    passed; its text is added to the error.
    """
    wait = _Wait(what, limit_s, evidence)
    while True:
        try:
            if value := condition():
                return value
        except retry_on as error:
            wait.last_error = error
        wait.check()
        time.sleep(every_s)


async def wait_until_async(
    condition: Callable[[], Any],
    what: str,
    limit_s: float = 180.0,
    every_s: float = 0.05,
    *,
    retry_on: Errors = (),
    evidence: Callable[[], str] = str,
) -> Any:
    """The same for an event loop; the condition may be a coroutine function."""
    wait = _Wait(what, limit_s, evidence)
    while True:
        try:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
        except retry_on as error:
            wait.last_error = error
        wait.check()
        await asyncio.sleep(every_s)


class _Wait:
    def __init__(self, what: str, limit_s: float, evidence: Callable[[], str]) -> None:
        self._what = what
        self._limit_s = limit_s
        self._evidence = evidence
        self._begin = time.monotonic()
        self._next_progress_s = _PROGRESS_EVERY_S
        self.last_error: Exception | None = None

    def check(self) -> None:
        """Print progress now and then; raise when the limit has passed."""
        waited_s = time.monotonic() - self._begin
        if waited_s >= self._limit_s:
            last = f"; last error: {self.last_error!r}" if self.last_error is not None else ""
            raise ClusterError(f"not within {self._limit_s:g} s: {self._what}{last}{self._evidence()}") from self.last_error
        if waited_s >= self._next_progress_s and self._limit_s != float("inf"):
            self._next_progress_s += _PROGRESS_EVERY_S
            print(f"waiting for={self._what!r} seconds={waited_s:.0f} limit={self._limit_s:g}", flush=True)
