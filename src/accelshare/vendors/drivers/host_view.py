"""A listing completed with what the host's own trees say: NUMA nodes, minor numbers, the kernel module's view.

Belongs here: reading beside the event loop. Never: what is read; that is each vendor's.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from accelshare.vendors.drivers.driver import DriverError, Listing, Options, QueryFailed, QueryMethod, first_listing, with_memory
from accelshare.vendors.drivers.tools import BlockingCalls

T = TypeVar("T")


class HostView:
    """What the host's own trees add to a listing. Reading them may hang with the vendor's kernel module, hence the thread."""

    def __init__(self, vendor: str, completed: Callable[[Listing], Listing], options: Options) -> None:
        self._vendor = vendor
        self._complete = completed
        self._timeout_s = options.timeout_s
        self._card_memory_mib = options.card_memory_mib
        self._calls = BlockingCalls(f"{vendor} host")

    async def of(self, ways: Sequence[QueryMethod]) -> Listing:
        """The first answer, completed; DriverError if there is none or the trees cannot be read."""
        found = with_memory(await first_listing(ways), self._card_memory_mib)
        try:
            return await self.run(partial(self._complete, found))
        except QueryFailed as error:
            raise DriverError([f"the {self._vendor} devices in /proc and /sys: {error}"]) from error

    async def run(self, read: Callable[[], T]) -> T:
        return await self._calls.run(read, timeout_s=self._timeout_s)
