"""NVIDIA's driver: NVML, or nvidia-smi where NVML cannot be asked; health by XID events and by looking.

Belongs here: the order of ways, and how a look is made of them. Never: the library's functions, the CSV, the rule for XIDs.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from accelshare.vendors.drivers import nvidia_smi, pci
from accelshare.vendors.drivers.asking import CannotAsk, Listing, Remarks, Way, first_answer
from accelshare.vendors.drivers.ctypes_library import (
    DRIVER_MISMATCH,
    DRIVER_NOT_LOADED,
    GPU_NOT_FOUND,
    LOST,
    NOT_FOUND,
    NOT_SUPPORTED,
    UNINITIALIZED,
    LibraryError,
)
from accelshare.vendors.drivers.driver import DriverError, FoundCard, Health, Options
from accelshare.vendors.drivers.health import changes, compared
from accelshare.vendors.drivers.nvidia_nvml import LIBRARIES, Nvml
from accelshare.vendors.drivers.nvidia_xids import XidBook
from accelshare.vendors.drivers.threads import BlockingCalls
from accelshare.vendors.drivers.tools import run_tool
from accelshare.vendors.drivers.use import LastUse

log = logging.getLogger(__name__)

# Not about a card: NVML itself must be opened anew.
_BROKEN = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, DRIVER_MISMATCH})
# The card is not there: what a reset looks like from here.
_AWAY = frozenset({LOST, NOT_FOUND, GPU_NOT_FOUND})


class NvidiaDriver:
    """Cards by UUID; `quiet_s` is how long a card must go without a critical XID to be healthy again."""

    def __init__(self, options: Options, *, quiet_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._quiet_s = quiet_s
        self._clock = clock
        self._libraries = options.libraries or LIBRARIES
        self._discovering = BlockingCalls("nvml discover")
        self._host = BlockingCalls("nvidia host")
        self._remarks = Remarks("nvidia")
        self._use = LastUse()

    def used_mib(self) -> Mapping[str, int]:
        return self._use.mib

    async def discover(self) -> list[FoundCard]:
        libraries: list[Way] = [(name, partial(self._ask_library, name)) for name in self._libraries]
        found = await first_answer([*libraries, *self._tool_ways()])
        self._remarks.say(found.left_out)
        return list(found.cards)

    async def watch_health(self, cards: Sequence[FoundCard]) -> AsyncIterator[Health]:
        watch = _Watch(cards, self._libraries, self._options, XidBook(self._quiet_s), self._clock)

        async def look() -> Mapping[str, Health]:
            try:
                return self._use.noted(await watch.look())
            except DriverError as library:
                try:
                    return self._use.noted(watch.with_open_xids(compared(cards, await first_answer(self._tool_ways()))))
                except DriverError as tool:
                    raise DriverError([*library.tried, *tool.tried]) from None

        try:
            async for health in changes(cards, look, watch.pause):
                yield health
        finally:
            await watch.close()

    async def _ask_library(self, name: str) -> Listing:
        def ask() -> Listing:
            nvml = Nvml(name)
            try:
                found = nvml.listing(self._options.roots.sys)
                none = XidBook(self._quiet_s)
                problems = {
                    card.id: none.problem(card.id, recovery_action=nvml.recovery_action(card.id), now=0) for card in found.cards
                }
            finally:
                nvml.close()
            cards = (replace(card, healthy=not problems[card.id], problem=problems[card.id]) for card in found.cards)
            return Listing(tuple(cards), found.left_out)

        return await self._discovering.run(ask, timeout_s=self._options.timeout_s)

    def _tool_ways(self) -> list[Way]:
        return [(tool, partial(self._ask_tool, tool)) for tool in self._options.tools or nvidia_smi.TOOLS]

    async def _ask_tool(self, tool: str) -> Listing:
        fields: tuple[str, ...] = nvidia_smi.FIELDS
        output = await run_tool(tool, *nvidia_smi.question(fields), timeout_s=self._options.timeout_s)
        if nvidia_smi.refuses_fields(output.text + output.complaint):
            fields = nvidia_smi.OLD_FIELDS
            output = await run_tool(tool, *nvidia_smi.question(fields), timeout_s=self._options.timeout_s)
        text = output.text if nvidia_smi.tells_of_lost_cards(output.text) else output.checked()
        found = nvidia_smi.parsed(text, fields)
        return await self._host.run(partial(self._completed, found), timeout_s=self._options.timeout_s)

    def _completed(self, found: Listing) -> Listing:
        """The listing with what the CSV lacks and the host's trees know: minor number and NUMA node."""
        roots = self._options.roots
        cards = (
            replace(card, minor=nvidia_smi.minor(roots.proc, card.pci), numa=pci.numa(roots.sys, card.pci))
            for card in found.cards
        )
        return Listing(tuple(cards), found.left_out)


class _Watch:
    """One watch's own NVML, kept open: opening it can take seconds, and events come only to who listens."""

    def __init__(
        self, cards: Sequence[FoundCard], libraries: Sequence[str], options: Options, book: XidBook, clock: Callable[[], float]
    ) -> None:
        self._ids = tuple(card.id for card in cards)
        self._libraries = libraries
        self._options = options
        self._book = book
        self._clock = clock
        self._calls = BlockingCalls("nvml watch")
        self._nvml: Nvml | None = None
        self._listening: set[str] = set()
        self._silent: set[str] = set()  # cards that report no events: they are looked at, and that is all

    async def look(self) -> Mapping[str, Health]:
        """Every card's health by NVML; DriverError if NVML cannot be asked."""
        try:
            return await self._calls.run(self._look, timeout_s=self._options.timeout_s)
        except CannotAsk as error:
            if isinstance(error, LibraryError) and error.code == DRIVER_NOT_LOADED:
                for id in self._ids:
                    self._book.away(id)
            raise DriverError([f"{' or '.join(self._libraries)}: {error}"]) from error

    def with_open_xids(self, seen: Mapping[str, Health]) -> Mapping[str, Health]:
        """The tool's view, in which a card that NVML has reported an XID of is not healthy before that is over."""
        problems = {id: self._book.problem(id, recovery_action=None, now=self._clock()) for id in seen}
        return {id: Health(id, False, problems[id]) if health.healthy and problems[id] else health for id, health in seen.items()}

    async def pause(self) -> None:
        """Waits for an XID, or until it is time to look again."""
        every_s = self._options.every_s
        if self._nvml is None or not self._listening:
            await asyncio.sleep(every_s)
            return
        try:
            heard = await self._calls.run(partial(self._nvml.heard, every_s), timeout_s=every_s + self._options.timeout_s)
        except CannotAsk as error:
            log.info("XID events cannot be waited for, looking on: %s", error)
            self._listening.clear()
            await asyncio.sleep(every_s)
            return
        for id, xid in heard:
            log.warning("XID %d on %s", xid, id or "an unknown card, so on all")
            for concerned in [id] if id else self._ids:
                self._book.note(concerned, xid, now=self._clock())

    async def close(self) -> None:
        try:
            await self._calls.run(self._close, timeout_s=self._options.every_s + self._options.timeout_s)
        except CannotAsk as error:
            log.info("NVML was left open: %s", error)

    def _look(self) -> dict[str, Health]:
        nvml = self._opened()
        if not self._listening:
            nvml.stop_listening()
        health = {}
        for id in self._ids:
            problem, used_mib = self._asked(nvml, id)
            health[id] = Health(id, not problem, problem, used_mib)
        return health

    def _asked(self, nvml: Nvml, id: str) -> tuple[str, int | None]:
        """What is wrong with the card, and how much of it is in use."""
        try:
            used_mib = nvml.check(id)
        except LibraryError as error:
            if error.code in _BROKEN:
                self._close()
                raise
            if error.code in _AWAY:
                self._book.away(id)
                self._listening.discard(id)
            return str(error), None
        except CannotAsk as error:
            return str(error), None
        if id not in self._listening and id not in self._silent:
            self._listen(nvml, id)
        return self._book.problem(id, recovery_action=nvml.recovery_action(id), now=self._clock()), used_mib

    def _listen(self, nvml: Nvml, id: str) -> None:
        try:
            nvml.listen(id)
            self._listening.add(id)
        except LibraryError as error:
            if error.code == NOT_SUPPORTED:
                self._silent.add(id)
                log.info("%s reports no XID events; it is looked at every %g s", id, self._options.every_s)
        except CannotAsk as error:  # a library without the function
            self._silent.add(id)
            log.info("no XID events: %s", error)

    def _opened(self) -> Nvml:
        reasons = []
        for name in self._libraries if self._nvml is None else ():
            try:
                self._nvml = Nvml(name)
                break
            except LibraryError:
                raise  # loaded, and it says why it does not work
            except CannotAsk as error:
                reasons.append(str(error))
        if self._nvml is None:
            raise CannotAsk("; ".join(reasons))
        return self._nvml

    def _close(self) -> None:
        if self._nvml is not None:
            self._nvml.close()
        self._nvml = None
        self._listening.clear()
