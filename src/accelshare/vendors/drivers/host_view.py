"""Completes a listing from the host's /proc and /sys: NUMA nodes, minor numbers, states of the kernel module.

Belongs here: reading these on a thread. Never: what is read, which is each vendor's.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from accelshare.vendors.drivers.driver import DriverError, Listing, Options, QueryFailed, QueryMethod, first_listing, with_memory
from accelshare.vendors.drivers.tools import BlockingCalls

T = TypeVar("T")


class HostView:
    """Adds the host's view to a listing. Reading it may hang in the vendor's kernel module, hence the thread."""

    def __init__(self, vendor: str, completed: Callable[[Listing], Listing], options: Options) -> None:
        self._vendor = vendor
        self._complete = completed
        self._timeout_s = options.timeout_s
        self._card_memory_mib = options.card_memory_mib
        self._calls = BlockingCalls(f"{vendor} host")

    async def of(self, methods: Sequence[QueryMethod]) -> Listing:
        """The first answer, completed; DriverError if there is none or /proc and /sys cannot be read."""
        found = with_memory(await first_listing(methods), self._card_memory_mib)
        try:
            return await self.run(partial(self._complete, found))
        except QueryFailed as error:
            raise DriverError([f"the {self._vendor} devices in /proc and /sys: {error}"]) from error

    async def run(self, read: Callable[[], T]) -> T:
        return await self._calls.run(read, timeout_s=self._timeout_s)
