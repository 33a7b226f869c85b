"""NVIDIA's driver: NVML, or nvidia-smi if NVML cannot be used; health by XID events and by checks.

Belongs here: the order of query methods, and the health check. Never: the library's functions, the CSV, the rule for XIDs.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from accelshare.vendors.drivers import nvidia_smi, pci
from accelshare.vendors.drivers.driver import (
    CardProcess,
    DriverError,
    Health,
    HostCard,
    Listing,
    Options,
    QueryFailed,
    QueryMethod,
)
from accelshare.vendors.drivers.health import health_in
from accelshare.vendors.drivers.library_client import LibraryClient
from accelshare.vendors.drivers.library_errors import DRIVER_NOT_LOADED
from accelshare.vendors.drivers.library_process import NoLibraryAnswered, VendorLibrary
from accelshare.vendors.drivers.nvidia_nvml import FOLDERS, LIBRARIES, NvmlCardStatus, NvmlProcesses
from accelshare.vendors.drivers.nvidia_xids import OpenXids
from accelshare.vendors.drivers.tools import run_tool
from accelshare.vendors.drivers.vendor_driver import VendorDriver

log = logging.getLogger(__name__)


class NvidiaDriver(VendorDriver):
    """Cards by UUID; `quiet_s` is how long a card must go without a critical XID to be healthy again."""

    def __init__(self, options: Options, *, quiet_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__("nvidia", options)
        self._clock = clock
        self._open_xids = OpenXids(quiet_s)  # kept across watches: a new watch starts when a card is added
        self._processes = self._nvml()  # its own helper process: a hang here must not look like one of the health check
        self._logged_problems: frozenset[str] = frozenset()

    def watch_health(self, cards: Sequence[HostCard]) -> AsyncIterator[Health]:
        library = self._nvml()
        watch = _Watch(cards, library, self._options, self._open_xids, self._clock)

        async def check() -> Mapping[str, Health]:
            try:
                return await watch.check()
            except DriverError as by_library:
                try:
                    return watch.with_open_xids(health_in(cards, await self._query(self._tool_methods())))
                except DriverError as by_tool:
                    raise DriverError([*by_library.tried, *by_tool.tried]) from None

        return self._watch(cards, library, check, watch.pause)

    async def processes(self, ids: Sequence[str]) -> Mapping[str, tuple[CardProcess, ...]]:
        # One card at a time: an answer of the helper process has a largest size.
        cards = [card for id in ids for card in await self._processes.query("processes", [id], into=list[NvmlProcesses])]
        problems = frozenset(f"{card.id}: {card.problem}" for card in cards if card.problem)
        for problem in sorted(problems - self._logged_problems):
            log.warning("processes driver=nvidia outcome=failed card=%s", problem)
        self._logged_problems = problems
        return {card.id: card.processes for card in cards if not card.problem}

    async def close_processes(self) -> None:
        await self._processes.close()

    def _discovery_methods(self) -> list[QueryMethod]:
        return [("NVML", self._nvml().listing_once), *self._tool_methods()]

    def limit_library(self) -> LibraryClient:
        candidates = self._candidates(LIBRARIES, FOLDERS, {"nvml": ""})
        return LibraryClient("nvidia limits", candidates, timeout_s=self._options.timeout_s)

    def _nvml(self) -> VendorLibrary:
        return self._library(LIBRARIES, FOLDERS, {"nvml": ""})

    def _tool_methods(self) -> list[QueryMethod]:
        return [(tool, partial(self._query_tool, tool)) for tool in self._options.tools or nvidia_smi.TOOLS]

    async def _query_tool(self, tool: str) -> Listing:
        fields: tuple[str, ...] = nvidia_smi.FIELDS
        output = await run_tool(tool, *nvidia_smi.arguments(fields), timeout_s=self._options.timeout_s)
        if nvidia_smi.refuses_fields(output.text + output.complaint):
            fields = nvidia_smi.OLD_FIELDS
            output = await run_tool(tool, *nvidia_smi.arguments(fields), timeout_s=self._options.timeout_s)
        text = output.text if nvidia_smi.reports_lost_cards(output.text) else output.checked()
        return nvidia_smi.parse_csv(text, fields)

    def _complete(self, found: Listing) -> Listing:
        """Adds the NUMA node, and the minor number that the CSV lacks."""
        roots = self._options.roots
        cards = (
            replace(
                card,
                minor=nvidia_smi.minor(roots.proc, card.pci) if card.minor is None else card.minor,
                numa=pci.numa(roots.sys, card.pci),
            )
            for card in found.cards
        )
        return Listing(tuple(cards), found.skipped)


class _Watch:
    """The NVML of one watch, kept open: opening it can take seconds, and it receives events only while it is open."""

    def __init__(
        self,
        cards: Sequence[HostCard],
        library: VendorLibrary,
        options: Options,
        open_xids: OpenXids,
        clock: Callable[[], float],
    ) -> None:
        self._ids = tuple(card.id for card in cards)
        self._library = library
        self._options = options
        self._open_xids = open_xids
        self._clock = clock
        self._listening = False

    async def check(self) -> Mapping[str, Health]:
        """Every card's health by NVML; DriverError if NVML cannot be used."""
        try:
            seen = await self._library.query("statuses", self._ids, into=list[NvmlCardStatus])
        except NoLibraryAnswered as error:
            if DRIVER_NOT_LOADED in error.codes:
                for id in self._ids:
                    self._open_xids.away(id)
            raise
        self._listening = any(card.listening for card in seen)
        return {card.id: self._judged(card) for card in seen}

    def with_open_xids(self, seen: Mapping[str, Health]) -> Mapping[str, Health]:
        """The tool's result, in which a card with an open XID from NVML is not healthy."""
        problems = {id: self._open_xids.problem(id, recovery_action=None, now=self._clock()) for id in seen}
        return {id: Health(id, False, problems[id]) if health.healthy and problems[id] else health for id, health in seen.items()}

    async def pause(self) -> None:
        """Wait for an XID, or until the next check is due."""
        every_s = self._options.every_s
        if not self._listening or not self._library.is_open:
            await asyncio.sleep(every_s)
            return
        try:
            xid_events = await self._library.call_open(
                "xid_events", every_s, into=list[tuple[str, int]], timeout_s=every_s + self._options.timeout_s
            )
        except QueryFailed as error:
            log.info("cannot wait for XID events, polling instead error=%s", error)
            await self._library.close()
            await asyncio.sleep(every_s)
            return
        for id, xid in xid_events:
            log.warning("XID event xid=%d card=%s", xid, id or "unknown (counted for all)")
            for concerned in [id] if id else self._ids:
                self._open_xids.note(concerned, xid, now=self._clock())

    def _judged(self, card: NvmlCardStatus) -> Health:
        if card.away:
            self._open_xids.away(card.id)
        problem = card.problem or self._open_xids.problem(card.id, recovery_action=card.recovery_action, now=self._clock())
        return Health(card.id, not problem, problem, card.used_mib)
