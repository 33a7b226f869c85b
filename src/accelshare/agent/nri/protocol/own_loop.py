"""An event loop in a thread of its own, so that a runtime is answered in time however busy everybody else is.

Belongs here: the thread's life, and work that runs on somebody else's loop. Never: what runs there.
"""

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final, TypeVar

# The interpreter lets a thread that has work wait for so long, if another one does not pause by itself. The default of 5 ms is
# more than all the rest of an answer takes, and what follows from one container's answer keeps us busy when the next call comes.
TURN_S: Final = 0.0005

Answer = TypeVar("Answer")


@contextlib.asynccontextmanager
async def own_loop(name: str) -> AsyncIterator[asyncio.AbstractEventLoop]:
    """A running loop of its own; at the end its tasks are cancelled and waited for."""
    started: concurrent.futures.Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = concurrent.futures.Future()

    async def until_told() -> None:
        told = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), told))
        await told.wait()

    turn_s = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
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
        sys.setswitchinterval(turn_s)


async def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Answer]) -> Answer:
    """What the work comes to on the other loop; cancelled here, it is cancelled there."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
