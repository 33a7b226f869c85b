"""Returns free memory of the C library's heap to the system, every minute.

Belongs here: calling glibc for that. Never: what takes the memory.

Each TLS connection to the API server has a block of 256 KiB, and each call of kube-scheduler has its body. When the API server
stands still for some seconds, a hundred more connections are open. Afterwards their blocks are free, but glibc keeps those that
are not at the end of the heap: 46 MB in a cluster of 5,000 nodes. (With a fixed M_MMAP_THRESHOLD they would be returned at
once, but each call with a body of 240 kB would cost 0.2 ms more, in page faults.)
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

EVERY_S: Final = 60.0


async def return_free_memory(
    *, trim: Callable[[], None] | None = None, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Run until cancelled."""
    while True:
        await sleep(EVERY_S)
        trim = trim or glibc_trim()
        trim()


def glibc_trim() -> Callable[[], None]:
    """malloc_trim, or nothing to do: other C libraries do not have it."""
    import ctypes  # not at the start: it takes milliseconds, which the first answers would wait for

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim"):
        return lambda: None
    return lambda: libc.malloc_trim(0)
