"""Keeps one vendor's cards in the inventory: discovers them, counts their units, watches their health.

Belongs here: calling a driver again and again. A failing driver is logged once and tried for ever; missing hardware does not end
the agent, and one vendor's problem does not affect other vendors. Never: how hardware is asked (vendors/drivers).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from accelshare.agent.discovery.device_inventory import DeviceInventory, InventoryCard, VendorCards
from accelshare.agent.discovery.units import ChosenUnit, UnitError, count
from accelshare.vendors.drivers.driver import CardProcess, Driver, DriverError, HostCard, ReportsProcesses, ReportsUsage
from accelshare.vendors.drivers.process_table import ProcessTable
from accelshare.vendors.enforcement import Enforcement
from accelshare.vendors.profile import Profile

log = logging.getLogger(__name__)
RETRY_S: Final = 10.0  # the first wait if no cards were found; it doubles
REDISCOVER_S: Final = 50.0  # how often to discover again while cards are there: a new card appears within a minute
ENFORCEMENT_S: Final = 60.0  # how often to check who enforces shares: tools are upgraded, daemons start and stop
NO_CARDS_LEFT: Final = "no card is found, but the node had some; if they are gone, remove the vendor's label from the node"


class DeviceMonitor:
    def __init__(
        self,
        profile: Profile,
        driver: Driver,
        devices: DeviceInventory,
        *,
        unit: Callable[[], ChosenUnit],
        enforcement: Callable[[Sequence[HostCard]], Awaitable[Mapping[str, Enforcement]]],
        cdi_name: Callable[[HostCard], str] = lambda _card: "",
        process_table: ProcessTable | None = None,
        listed: bool = True,
        had_cards: bool = False,
        watch_health: bool = True,
        retry_s: float = RETRY_S,
        rediscover_s: float = REDISCOVER_S,
        enforcement_s: float = ENFORCEMENT_S,
    ) -> None:
        """`had_cards`: the Node's inventory, which an earlier agent wrote, has cards of this kind."""
        self._profile = profile
        self._driver = driver
        self._devices = devices
        self._unit = unit
        self._enforcement = enforcement
        self._cdi_name = cdi_name
        self._process_table = process_table  # if the driver does not report processes
        self._listed = listed
        # The Node must show that they are gone. Without an entry, the extender would assume cards from the Node's capacity.
        self._problem_without_cards = NO_CARDS_LEFT if had_cards else ""
        self._watch_health = watch_health
        self._retry_s = retry_s
        self._rediscover_s = rediscover_s
        self._enforcement_s = enforcement_s
        self._logged: tuple[str, ...] | None = None
        self._logged_warnings: tuple[str, ...] = ()
        self._logged_ways: dict[str, Enforcement] = {}
        self._cards: tuple[HostCard, ...] = ()
        self.first_answer = asyncio.Event()  # the driver has answered or failed for the first time

    def used_mib(self) -> Mapping[str, int]:
        """The memory in use of each card, by id, if the driver reports it."""
        return self._driver.used_mib() if isinstance(self._driver, ReportsUsage) else {}

    async def processes(self) -> Mapping[str, Sequence[CardProcess]] | None:
        """The processes on each card, by id; None if nothing reports them. Raises DriverError."""
        if isinstance(self._driver, ReportsProcesses):
            return await self._driver.processes([card.id for card in self._cards])
        return await self._process_table.processes(self._cards) if self._process_table is not None else None

    async def close_processes(self) -> None:
        if isinstance(self._driver, ReportsProcesses):
            await self._driver.close_processes()
        if self._process_table is not None:
            await self._process_table.close()

    async def run(self) -> None:
        """Run until cancelled. Whatever a driver does, it affects this vendor only."""
        wait_s = self._retry_s
        while True:
            try:
                await self._discover()
                self._has_answered()
                if self._cards:
                    wait_s = self._retry_s
                    await self._until_rediscovery()
                    continue
            except Exception as error:
                log.exception("discover kind=%s outcome=failed", self._profile.name)
                self._set_problem(f"its driver failed: {type(error).__name__}: {error}")
                self._has_answered()
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, self._rediscover_s)

    def _has_answered(self) -> None:
        self._devices.set_discovered(self._profile.name)
        self.first_answer.set()

    async def watch_enforcement(self) -> None:
        """Keep the inventory's enforcement current, until cancelled."""
        while True:
            await asyncio.sleep(self._enforcement_s)
            self._devices.set_enforcement(self._profile.name, await self._read_enforcement(self._cards))

    async def _read_enforcement(self, cards: Sequence[HostCard]) -> Mapping[str, Enforcement]:
        """By card id: who enforces its shares. Changes are logged."""
        by_card = await self._enforcement(cards) if cards else {}
        for card in cards:
            way = by_card.get(card.id)
            if way is not None and way != self._logged_ways.get(card.id):
                self._logged_ways[card.id] = way
                rejected = list(way.rejected_ways)
                log.info("enforcement kind=%s card=%d way=%s rejected=%r", self._profile.name, card.index, way.name, rejected)
        return by_card

    async def _discover(self) -> None:
        """Ask the driver for the cards, and store them in the inventory."""
        try:
            found = await self._driver.discover()
        except DriverError as error:
            if error.tried != self._logged:
                log.warning("discover kind=%s outcome=failed tried=%r", self._profile.name, list(error.tried))
            self._logged = error.tried
            # While cards are there, the watch of their health reports what is wrong with them.
            if not self._cards:
                self._set_problem(self._problem_without_cards if error.absent else f"its driver cannot list cards: {error}")
            return
        if (ids := tuple(card.id for card in found)) != self._logged:
            log.info("discover kind=%s cards=%d outcome=found", self._profile.name, len(found))
        self._logged = ids
        self._cards = merged(self._cards, found)
        if self._cards:
            await self._put()
        else:
            self._set_problem(self._problem_without_cards)

    async def _until_rediscovery(self) -> None:
        """Watch the cards as long as they stay the same."""
        before = self._cards
        watching = asyncio.create_task(self._watch(before)) if self._watch_health else None
        try:
            while self._cards == before:
                if watching is None:
                    await asyncio.sleep(self._rediscover_s)
                else:
                    await asyncio.wait([watching], timeout=self._rediscover_s)
                    if watching.done():
                        watching.result()
                        return
                await self._discover()
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, cards: Sequence[HostCard]) -> None:
        # A watch reports differences from the health that it gets here.
        known = [self._with_known_health(card) for card in cards]
        async with aclosing(self._driver.watch_health(known)) as changes:  # type: ignore[type-var]
            async for health in changes:
                state = "healthy" if health.healthy else "unhealthy"
                log.warning("card kind=%s id=%s state=%s problem=%r", self._profile.name, health.id, state, health.problem)
                self._devices.set_health(self._profile.name, health.id, _problem(health.healthy, health.problem))

    def _with_known_health(self, card: HostCard) -> HostCard:
        known = self._known_cards().get(card.id)
        return card if known is None else replace(card, healthy=not known.problem, problem=known.problem)

    def _known_cards(self) -> dict[str, InventoryCard]:
        kind = self._devices.kinds.get(self._profile.name)
        return {card.found.id: card for card in kind.cards.values()} if kind is not None else {}

    async def _put(self) -> None:
        chosen = self._unit()
        try:
            counted = count(
                self._profile, {card.index: card.memory_mib for card in self._cards}, chosen.unit, listed=self._listed
            )
        except UnitError as error:
            self._warn(str(error))
            # Cards that are in the inventory already stay as they are.
            if self._profile.name not in self._devices.kinds:
                self._set_problem(str(error))
            return
        self._warn(counted.warning, chosen.problem)
        new = [card for card in self._cards if (before := self._known_cards().get(card.id)) is None or before.enforcement is None]
        enforcement = await self._read_enforcement(new)
        known = self._known_cards()
        self._devices.put(
            VendorCards(
                profile=self._profile,
                unit=counted.unit,
                unit_mib=counted.unit_mib,
                cards={
                    card.index: InventoryCard(
                        card,
                        counted.cards[card.index],
                        # The watch reports the health of cards that it knows.
                        problem=known[card.id].problem if card.id in known else _problem(card.healthy, card.problem),
                        cdi_name=self._cdi_name(card),
                        enforcement=enforcement.get(card.id) or (known[card.id].enforcement if card.id in known else None),
                    )
                    for card in self._cards
                },
            )
        )
        self._set_problem(chosen.problem)

    def _set_problem(self, problem: str) -> None:
        self._devices.set_problem(self._profile.name, problem, unit=self._unit().unit if problem else "")

    def _warn(self, *warnings: str) -> None:
        """Log warnings when they appear, not again at every discovery."""
        if warnings != self._logged_warnings:
            self._logged_warnings = warnings
            for warning in filter(None, warnings):
                log.warning("units kind=%s warning=%r", self._profile.name, warning)


def merged(known: Sequence[HostCard], found: Sequence[HostCard]) -> tuple[HostCard, ...]:
    """The cards after another discovery. A known card that was not found again stays, unless its index is taken: its watch
    reports that it is gone. An answer from another source (a tool instead of a library) may add cards but changes none: it
    may name and measure them differently.
    """
    by_id = {card.id: card for card in known}
    by_index = {card.index: card for card in known}
    places = Counter(card.pci for card in known)
    by_place = {card.pci: card for card in known if card.pci and places[card.pci] == 1}
    now: dict[int, HostCard] = {}
    for card in found:
        before = by_id.get(card.id)
        if before is None and card.source not in {each.source for each in known}:
            before = by_place.get(card.pci) or by_index.get(card.index)
        if before is not None and (before.source != card.source or _same(before, card)):
            now[before.index] = before
        else:
            now[card.index] = card
    there = {card.id for card in now.values()}
    for card in known:
        if card.id not in there:
            now.setdefault(card.index, card)
    return tuple(now[index] for index in sorted(now))


def _same(one: HostCard, other: HostCard) -> bool:
    """Equal except for health, which the watch reports."""
    return replace(one, healthy=True, problem="") == replace(other, healthy=True, problem="")


def _problem(healthy: bool, problem: str) -> str:
    return "" if healthy else problem or "unhealthy"
