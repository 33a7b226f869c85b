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
)
from accelshare.vendors.drivers.health import health_in
from accelshare.vendors.drivers.kunlun_smi import TOOL_FOLDERS, TOOLS, KnownRanks, parse_lines, parse_table
from accelshare.vendors.drivers.kunlun_xpuml import FOLDERS, LIBRARIES
from accelshare.vendors.drivers.library_process import VendorLibrary
from accelshare.vendors.drivers.vendor_driver import VendorDriver

PCI_VENDOR: Final = "1d22"
# Intel has a tool of the same name. Its output differs, and a host without a PCI device of Kunlun's has no Kunlun tool.
SHARED_TOOL_NAME: Final = "xpu-smi"
GOOD_PROC_STATES: Final = frozenset({"RUNNING", "NORMAL"})


class KunlunDriver(VendorDriver):
    """Cards by serial number."""

    def __init__(self, options: Options) -> None:
        super().__init__("kunlun", options)
        self._ranks = KnownRanks()

    def watch_health(self, cards: Sequence[HostCard]) -> AsyncIterator[Health]:
        library = self._xpuml()
        # /proc is far cheaper to read than the tool's output, and has a card's state too.
        methods: list[QueryMethod] = [
            ("XPUML", library.listing),
            (str(self._proc), partial(self._query_proc, cards)),
            *self._tool_methods(),
        ]

        async def check() -> Mapping[str, Health]:
            return health_in(cards, await self._query(methods))

        return self._watch(cards, library, check, partial(asyncio.sleep, self._options.every_s))

    def _discovery_methods(self) -> list[QueryMethod]:
        return [("XPUML", self._xpuml().listing_once), *self._tool_methods()]

    def _xpuml(self) -> VendorLibrary:
        return self._library(LIBRARIES, FOLDERS, {"xpuml": ""})

    def _tool_methods(self) -> list[QueryMethod]:
        tools = self._tools(TOOLS, TOOL_FOLDERS)
        return [
            *((tool, partial(self._query_tool, tool, (), parse_table)) for tool in tools),
            *((f"{tool} -m", partial(self._query_tool, tool, ("-m",), parse_lines)) for tool in tools),
        ]

    async def _query_tool(self, tool: str, args: Sequence[str], parse: Callable[[str], Listing]) -> Listing:
        if Path(tool).name == SHARED_TOOL_NAME and await self._read_host(self._has_device) is False:
            raise NotInstalled(f"may be Intel's tool of that name: this host has no PCI device of vendor {PCI_VENDOR}")
        return await self._run_tool(tool, args, parse)

    def _has_device(self) -> bool | None:
        return pci.has_vendor(self._options.roots.sys, PCI_VENDOR)

    async def _query_proc(self, cards: Sequence[HostCard]) -> Listing:
        states = await self._read_host(lambda: [self._proc_state(card) for card in cards])
        if None in states:
            raise QueryFailed("does not have the state of every card")
        return Listing(tuple(replace(card, healthy=True, problem="", used_mib=None) for card in cards))

    def _complete(self, found: Listing) -> Listing:
        """Adds the NUMA node, and the kernel's state of each card."""
        found = self._ranks.kept(found)
        return Listing(tuple(map(self._completed_card, found.cards)), found.skipped)

    def _completed_card(self, card: HostCard) -> HostCard:
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
