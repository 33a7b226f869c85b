"""An event loop in a thread of its own, so that a runtime is answered in time however busy everybody else is.

Belongs here: the thread's life, and asking a function on somebody else's loop. Never: what runs there.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")


@contextlib.asynccontextmanager
async def own_loop(name: str) -> AsyncIterator[asyncio.AbstractEventLoop]:
    """A running loop of its own; at the end its tasks are cancelled and waited for."""
    started: concurrent.futures.Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = concurrent.futures.Future()

    async def until_told() -> None:
        told = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), told))
        await told.wait()

    # asyncio.run cancels what is left when this returns.
    thread = threading.Thread(target=lambda: asyncio.run(until_told()), name=name, daemon=True)
    thread.start()
    loop, told = await asyncio.wrap_future(started)
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(told.set)
        # Its last tasks may still ask something of this loop, so this one has to go on meanwhile.
        await asyncio.shield(asyncio.to_thread(thread.join))


async def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Answer]) -> Answer:
    """What the work comes to on the other loop; cancelled here, it is cancelled there."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def ask_on(loop: asyncio.AbstractEventLoop, act: Callable[[], Answer]) -> Awaitable[Answer]:
    """The function's answer, asked on the other loop. Given up before it began, it never begins."""
    future: concurrent.futures.Future[Answer] = concurrent.futures.Future()

    def begin() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(act())
        except Exception as error:
            future.set_exception(error)

    loop.call_soon_threadsafe(begin)
    return asyncio.wrap_future(future)
