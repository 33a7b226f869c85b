"""Kunlun's driver: libxpuml, else xpu_smi's table, else xpu_smi -m; health by the same, and by /proc/xpu.

Belongs here: the order of query methods, and the health check. Never: the library's functions, the tool's output.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from accelshare.vendors.drivers import pci
from accelshare.vendors.drivers.driver import (
    Health,
    HostCard,
    Listing,
    NotInstalled,
    Options,
    QueryFailed,
    QueryMethod,
    SkippedDeviceLog,
)
from accelshare.vendors.drivers.health import LastUsage, health_changes, health_in
from accelshare.vendors.drivers.host_view import HostView
from accelshare.vendors.drivers.kunlun_smi import TOOL_FOLDERS, TOOLS, KnownRanks, parse_lines, parse_table
from accelshare.vendors.drivers.kunlun_xpuml import FOLDERS, LIBRARIES
from accelshare.vendors.drivers.library_process import Candidate, VendorLibrary
from accelshare.vendors.drivers.tools import run_tool
from accelshare.vendors.host_paths import candidate_paths

PCI_VENDOR: Final = "1d22"
# Intel has a tool of the same name. Its output differs, and a host without a PCI device of Kunlun's has no Kunlun tool.
SHARED_TOOL_NAME: Final = "xpu-smi"
GOOD_PROC_STATES: Final = frozenset({"RUNNING", "NORMAL"})


class KunlunDriver:
    """Cards by serial number."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._host = HostView("kunlun", self._complete, options)
        self._ranks = KnownRanks()
        self._skipped_log = SkippedDeviceLog("kunlun")
        self._use = LastUsage()

    def used_mib(self) -> Mapping[str, int]:
        return self._use.mib

    async def discover(self) -> list[HostCard]:
        found = await self._host.of([("XPUML", self._library().listing_once), *self._tool_methods()])
        self._skipped_log.update(found.skipped)
        return list(found.cards)

    async def watch_health(self, cards: Sequence[HostCard]) -> AsyncIterator[Health]:
        library = self._library()
        # /proc is far cheaper to read than the tool's output, and has a card's state too.
        ways: list[QueryMethod] = [
            ("XPUML", library.listing),
            (str(self._proc), partial(self._ask_proc, cards)),
            *self._tool_methods(),
        ]

        async def look() -> Mapping[str, Health]:
            return self._use.remember(health_in(cards, await self._host.of(ways)))

        try:
            async for health in health_changes(cards, look, partial(asyncio.sleep, self._options.every_s)):
                yield health
        finally:
            await library.close()

    def _library(self) -> VendorLibrary:
        names = self._options.libraries or candidate_paths(LIBRARIES, FOLDERS, self._options.host)
        candidates = [Candidate(name, "xpuml", name) for name in names]
        return VendorLibrary("kunlun", candidates, timeout_s=self._options.timeout_s)

    def _tool_methods(self) -> list[QueryMethod]:
        tools = self._options.tools or candidate_paths(TOOLS, TOOL_FOLDERS, self._options.host)
        return [
            *((tool, partial(self._ask_tool, tool, (), parse_table)) for tool in tools),
            *((f"{tool} -m", partial(self._ask_tool, tool, ("-m",), parse_lines)) for tool in tools),
        ]

    async def _ask_tool(self, tool: str, args: tuple[str, ...], parsed: Callable[[str], Listing]) -> Listing:
        if Path(tool).name == SHARED_TOOL_NAME and await self._host.run(self._has_device) is False:
            raise NotInstalled(f"may be Intel's tool of that name: this host has no PCI device of vendor {PCI_VENDOR}")
        output = await run_tool(tool, *args, timeout_s=self._options.timeout_s)
        return parsed(output.checked())

    def _has_device(self) -> bool | None:
        return pci.has_vendor(self._options.roots.sys, PCI_VENDOR)

    async def _ask_proc(self, cards: Sequence[HostCard]) -> Listing:
        states = await self._host.run(lambda: [self._proc_state(card) for card in cards])
        if None in states:
            raise QueryFailed("does not have the state of every card")
        return Listing(tuple(replace(card, healthy=True, problem="", used_mib=None) for card in cards))

    def _complete(self, found: Listing) -> Listing:
        """The listing with data of /proc and /sys: the NUMA node, and the kernel's state of each card."""
        found = self._ranks.kept(found)
        return Listing(tuple(map(self._with_host_view, found.cards)), found.skipped)

    def _with_host_view(self, card: HostCard) -> HostCard:
        card = replace(card, numa=pci.numa(self._options.roots.sys, card.pci))
        state = self._proc_state(card)
        if state is None or state in GOOD_PROC_STATES or not card.healthy:
            return card
        return replace(card, healthy=False, problem=f"{self._proc}/dev{card.minor}/state is {state!r}")

    @property
    def _proc(self) -> Path:
        return self._options.roots.proc / "xpu"

    def _proc_state(self, card: HostCard) -> str | None:
        try:
            text = (self._proc / f"dev{card.minor}" / "state").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        return text.strip()[:40].upper() or None
