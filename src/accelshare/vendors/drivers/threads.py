"""Blocking calls beside the event loop, one at a time, with an end to the patience for them.

Belongs here: running a call on a thread and giving up the wait for one that hangs. Never: what is called.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from accelshare.vendors.drivers.asking import CannotAsk

T = TypeVar("T")


class BlockingCalls:
    """Calls that must not overlap: a vendor's library, or one of its sessions.

    A thread inside a hanging library cannot be ended, so at most one is ever left behind: later calls fail at once, in
    words, until it comes back. Threads are daemons, so that a hanging library does not keep the process alive.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn = asyncio.Lock()
        self._running: Future[Any] | None = None
        self._given_up = False

    async def run(self, call: Callable[[], T], *, timeout_s: float) -> T:
        """What the call returns or raises; CannotAsk if it, or the one before it, does not end in time."""
        async with self._turn:
            # A call whose caller went away is let finish; one that was given up has had its time.
            if self._running is not None and not await _ended(self._running, 0 if self._given_up else timeout_s):
                self._given_up = True
                raise CannotAsk("an earlier call still hangs")
            future: Future[T] = Future()
            self._running, self._given_up = future, False
            threading.Thread(target=_fulfil, args=(future, call), name=self._name, daemon=True).start()
            if not await _ended(future, timeout_s):
                self._given_up = True
                raise CannotAsk(f"gave no answer within {timeout_s:g} s")
            return future.result()


async def _ended(future: "Future[Any]", timeout_s: float) -> bool:
    if future.done():
        return True
    loop = asyncio.get_running_loop()
    told = asyncio.Event()

    def tell(_: "Future[Any]") -> None:
        try:
            loop.call_soon_threadsafe(told.set)
        except RuntimeError:  # the loop has closed meanwhile; nobody waits any more
            pass

    future.add_done_callback(tell)
    try:
        async with asyncio.timeout(timeout_s):
            await told.wait()
    except TimeoutError:
        return future.done()
    return True


def _fulfil(future: "Future[T]", call: Callable[[], T]) -> None:
    try:
        result = call()
    except BaseException as error:  # handed to whoever waits, as a return value is
        future.set_exception(error)
    else:
        future.set_result(result)
