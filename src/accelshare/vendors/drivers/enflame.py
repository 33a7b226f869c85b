"""Enflame's driver: libefml, else efsmi as JSON, as -q and as a table; minor numbers and presence from sysfs.

Belongs here: the order of query methods, and the health check. Never: the library's functions, the tool's output.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from accelshare.vendors.drivers.enflame_efml import FOLDERS, LIBRARIES
from accelshare.vendors.drivers.enflame_efsmi import TOOL_FOLDERS, TOOLS, parse_json, parse_query, parse_table
from accelshare.vendors.drivers.health import health_in
from accelshare.vendors.drivers.library_process import VendorLibrary
from accelshare.vendors.drivers.vendor_driver import VendorDriver

PCI_VENDOR: Final = "1e36"
OFF_THE_BUS: Final = "its PCI device is gone"

_TOOL_QUERIES: Final[tuple[tuple[tuple[str, ...], Callable[[str], Listing]], ...]] = (
    (("-q", "--json-format"), parse_json),
    (("-q",), parse_query),
    ((), parse_table),
)
_NODE = re.compile(r"gcu([0-9]{1,5})")
# The folder below a card's PCI device; zixiao is a name it had.
_FOLDERS: Final = ("enflame", "zixiao")


class EnflameDriver(VendorDriver):
    """Cards as GCU-<uuid>, in the form of gcushare's ids."""

    def __init__(self, options: Options) -> None:
        super().__init__("enflame", options)

    def watch_health(self, cards: Sequence[HostCard]) -> AsyncIterator[Health]:
        library = self._efml()
        methods = [("EFML", library.listing), *self._tool_methods()]

        async def check() -> Mapping[str, Health]:
            found = await self._query(methods)
            return {**health_in(cards, found), **await self._read_host(partial(self._off_the_bus, cards))}

        return self._watch(cards, library, check, partial(asyncio.sleep, self._options.every_s))

    def _discovery_methods(self) -> list[QueryMethod]:
        return [
            ("EFML", self._efml().listing_once),
            *self._tool_methods(),
            (f"{self._options.roots.sys}/bus/pci", self._explain_by_sysfs),
        ]

    def _efml(self) -> VendorLibrary:
        return self._library(LIBRARIES, FOLDERS, {"efml-first": " (Efml…)", "efml-newer": " (efml…)"})

    def _tool_methods(self) -> list[QueryMethod]:
        return [
            (" ".join((tool, *args)), partial(self._run_tool, tool, args, parse))
            for tool in self._tools(TOOLS, TOOL_FOLDERS)
            for args, parse in _TOOL_QUERIES
        ]

    async def _explain_by_sysfs(self) -> Listing:
        """The last query method only explains the failure: sysfs lists cards, but not their memory."""
        match await self._read_host(partial(pci.has_vendor, self._options.roots.sys, PCI_VENDOR)):
            case True:
                raise QueryFailed(f"has devices of vendor {PCI_VENDOR}, but does not have their memory")
            case False:
                raise NotInstalled(f"has no device of vendor {PCI_VENDOR}")
            case None:
                raise NotInstalled("cannot be read")

    def _complete(self, found: Listing) -> Listing:
        """Adds the minor number and the NUMA node."""
        roots = self._options.roots
        cards = (replace(card, minor=self._minor(card), numa=pci.numa(roots.sys, card.pci)) for card in found.cards)
        return Listing(tuple(cards), found.skipped)

    def _minor(self, card: HostCard) -> int | None:
        """The number in the name of the card's device file, /dev/gcu<N>, which sysfs has below its PCI device."""
        for folder in _FOLDERS:
            try:
                names = (
                    [entry.name for entry in (pci.folder(self._options.roots.sys, card.pci) / folder).iterdir()]
                    if card.pci
                    else []
                )
            except OSError:
                continue
            numbers = [int(found[1]) for found in map(_NODE.fullmatch, names) if found]
            if len(numbers) == 1:
                return numbers[0]
        # Without sysfs the index is right if a device file of that number exists; else the number is not known.
        return card.index if (self._options.roots.dev / f"gcu{card.index}").exists() else None

    def _off_the_bus(self, cards: Sequence[HostCard]) -> dict[str, Health]:
        """Cards whose PCI device has disappeared, while another card's exists, so that sysfs itself is readable."""
        there = {card.id: pci.folder(self._options.roots.sys, card.pci).is_dir() for card in cards if card.pci}
        if not any(there.values()):
            return {}
        return {id: Health(id, False, OFF_THE_BUS) for id, is_there in there.items() if not is_there}
