"""The common part of the vendors' drivers: query the library, else the tools, complete the listing, and watch health.

Belongs here: what these drivers do alike. Never: a vendor's libraries, tools, or files in /proc and /sys.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from accelshare.vendors.drivers.driver import (
    DriverError,
    Health,
    HostCard,
    Listing,
    Options,
    QueryFailed,
    QueryMethod,
    SkippedDeviceLog,
    first_listing,
    with_memory,
)
from accelshare.vendors.drivers.health import HealthCheck, LastUsage, health_changes
from accelshare.vendors.drivers.library_process import Candidate, VendorLibrary
from accelshare.vendors.drivers.tools import BlockingCalls, run_tool
from accelshare.vendors.host_paths import candidate_paths

T = TypeVar("T")


class VendorDriver:
    """A driver with a library and tools of its vendor. /proc and /sys are read on a thread: the kernel module may hang."""

    def __init__(self, vendor: str, options: Options) -> None:
        self._vendor = vendor
        self._options = options
        self._host_calls = BlockingCalls(f"{vendor} host")
        self._skipped_log = SkippedDeviceLog(vendor)
        self._usage = LastUsage()

    def used_mib(self) -> Mapping[str, int]:
        return self._usage.mib

    async def discover(self) -> list[HostCard]:
        found = await self._query(self._discovery_methods())
        self._skipped_log.update(found.skipped)
        return list(found.cards)

    def _discovery_methods(self) -> list[QueryMethod]:
        raise NotImplementedError

    def _complete(self, found: Listing) -> Listing:
        """The listing with what /proc and /sys have of its cards."""
        raise NotImplementedError

    async def _query(self, methods: Sequence[QueryMethod]) -> Listing:
        """The first answer, completed; DriverError if there is none or /proc and /sys cannot be read."""
        found = with_memory(await first_listing(methods), self._options.card_memory_mib)
        try:
            return await self._read_host(partial(self._complete, found))
        except QueryFailed as error:
            raise DriverError([f"the {self._vendor} devices in /proc and /sys: {error}"]) from error

    async def _read_host(self, read: Callable[[], T]) -> T:
        return await self._host_calls.run(read, timeout_s=self._options.timeout_s)

    async def _run_tool(self, tool: str, args: Sequence[str], parse: Callable[[str], Listing]) -> Listing:
        output = await run_tool(tool, *args, timeout_s=self._options.timeout_s)
        return parse(output.checked())

    def _tools(self, names: Sequence[str], folders: Sequence[str]) -> tuple[str, ...]:
        return self._options.tools or candidate_paths(names, folders, self._options.host)

    def _library(self, names: Sequence[str], folders: Sequence[str], sessions: Mapping[str, str]) -> VendorLibrary:
        """The vendor's library under any of these names, with these session types; each has a suffix for messages."""
        return VendorLibrary(self._vendor, self._candidates(names, folders, sessions), timeout_s=self._options.timeout_s)

    def _candidates(self, names: Sequence[str], folders: Sequence[str], sessions: Mapping[str, str]) -> list[Candidate]:
        return [
            Candidate(f"{name}{suffix}", session, name)
            for name in self._options.libraries or candidate_paths(names, folders, self._options.host)
            for session, suffix in sessions.items()
        ]

    async def _watch(
        self, cards: Sequence[HostCard], library: VendorLibrary, check: HealthCheck, pause: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[Health]:
        async def check_and_keep_usage() -> Mapping[str, Health]:
            return self._usage.keep(await check())

        try:
            async for health in health_changes(cards, check_and_keep_usage, pause):
                yield health
        finally:
            await library.close()
