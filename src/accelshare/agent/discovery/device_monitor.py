"""Keeps one vendor's cards on the shelf: found, counted in units, watched for illness.

Belongs here: asking a driver again and again. A driver that fails is said once and tried for ever; absent hardware is no
reason to end, and one vendor's trouble is told and stays its own. Never: how hardware is asked.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from accelshare.agent.discovery.device_inventory import DeviceInventory, InventoryCard, Kind
from accelshare.agent.discovery.unit_change import ChosenUnit
from accelshare.agent.discovery.units import UnitError, count
from accelshare.vendors.drivers.driver import Driver, DriverError, FoundCard, ReportsUsage
from accelshare.vendors.enforcement import Enforcement
from accelshare.vendors.profile import Profile

log = logging.getLogger(__name__)
AGAIN_S: Final = 10.0  # the first wait for cards that were not found; it doubles
REDISCOVER_S: Final = 50.0  # how often cards are looked for while others are there: one that comes late is there within a minute
ENFORCED_S: Final = 60.0  # how often it is asked who enforces shares: tools are upgraded, daemons come and go


class DeviceMonitor:
    def __init__(
        self,
        profile: Profile,
        driver: Driver,
        devices: DeviceInventory,
        *,
        unit: Callable[[], ChosenUnit],
        enforcement: Callable[[], Awaitable[Enforcement]],
        cdi_name: Callable[[FoundCard], str] = lambda _card: "",
        listed: bool = True,
        watch_health: bool = True,
        again_s: float = AGAIN_S,
        rediscover_s: float = REDISCOVER_S,
        enforced_s: float = ENFORCED_S,
    ) -> None:
        self._profile = profile
        self._driver = driver
        self._devices = devices
        self._unit = unit
        self._enforcement = enforcement
        self._cdi_name = cdi_name
        self._listed = listed
        self._watch_health = watch_health
        self._again_s = again_s
        self._rediscover_s = rediscover_s
        self._enforced_s = enforced_s
        self._said: tuple[str, ...] | None = None
        self._warned: tuple[str, ...] = ()
        self._cards: tuple[FoundCard, ...] = ()
        self.asked = asyncio.Event()  # the first answer, or the first failure, is there

    def used_mib(self) -> Mapping[str, int]:
        """What is in use of each card, by id, as far as the driver tells."""
        return self._driver.used_mib() if isinstance(self._driver, ReportsUsage) else {}

    async def run(self) -> None:
        """For ever. Whatever a driver does, it is trouble of this vendor only."""
        wait_s = self._again_s
        while True:
            try:
                await self._discover()
                self.asked.set()
                if self._cards:
                    wait_s = self._again_s
                    await self._until_rediscovery()
                    continue
            except Exception as error:
                log.exception("keep kind=%s outcome=failed", self._profile.name)
                self._tell(f"its driver failed: {type(error).__name__}: {error}")
                self.asked.set()
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, self._rediscover_s)

    async def watch_enforcement(self) -> None:
        """For ever: what the shelf says of enforcement stays true."""
        while True:
            await asyncio.sleep(self._enforced_s)
            self._devices.set_enforcement(self._profile.name, await self._enforcement())

    async def _discover(self) -> None:
        """Asks for the cards, and puts them on the shelf."""
        try:
            found = await self._driver.discover()
        except DriverError as error:
            if error.tried != self._said:
                log.warning("discover kind=%s outcome=failed tried=%r", self._profile.name, list(error.tried))
            self._said = error.tried
            # While cards are there, the watch of their health says what is wrong with them.
            if not self._cards:
                self._tell("" if error.absent else f"its cards cannot be asked for: {error}")
            return
        if (said := tuple(card.id for card in found)) != self._said:
            log.info("discover kind=%s cards=%d outcome=found", self._profile.name, len(found))
        self._said = said
        self._cards = merged(self._cards, found)
        if self._cards:
            await self._put()
        else:
            self._tell("")

    async def _until_rediscovery(self) -> None:
        """Watches the cards for as long as they stay the same."""
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

    async def _watch(self, cards: Sequence[FoundCard]) -> None:
        # A watch tells what differs from the health that it was given.
        known = [self._as_shown(card) for card in cards]
        async with aclosing(self._driver.watch_health(known)) as changes:  # type: ignore[type-var]
            async for health in changes:
                state = "healthy" if health.healthy else "ill"
                log.warning("card kind=%s id=%s state=%s problem=%r", self._profile.name, health.id, state, health.problem)
                self._devices.set_health(self._profile.name, health.id, _ill(health.healthy, health.problem))

    def _as_shown(self, card: FoundCard) -> FoundCard:
        shown = self._shown().get(card.id)
        return card if shown is None else replace(card, healthy=not shown.ill, problem=shown.ill)

    def _shown(self) -> dict[str, InventoryCard]:
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
            # Cards that were there before one more came go on as they are.
            if self._profile.name not in self._devices.kinds:
                self._tell(str(error))
            return
        self._warn(counted.warning, chosen.problem)
        kind, known = self._devices.kinds.get(self._profile.name), self._shown()
        self._devices.put(
            Kind(
                profile=self._profile,
                unit=counted.unit,
                unit_mib=counted.unit_mib,
                cards={
                    card.index: InventoryCard(
                        card,
                        counted.cards[card.index],
                        # Of cards that are watched the watch tells the health.
                        ill=known[card.id].ill if card.id in known else _ill(card.healthy, card.problem),
                        cdi_name=self._cdi_name(card),
                    )
                    for card in self._cards
                },
                enforcement=await self._enforcement() if kind is None else kind.enforcement,
            )
        )
        self._tell(chosen.problem)

    def _tell(self, problem: str) -> None:
        self._devices.set_problem(self._profile.name, problem, unit=self._unit().unit if problem else "")

    def _warn(self, *warnings: str) -> None:
        """Said when it comes up, and not again at every look."""
        if warnings != self._warned:
            self._warned = warnings
            for warning in filter(None, warnings):
                log.warning("units kind=%s warning=%r", self._profile.name, warning)


def merged(known: Sequence[FoundCard], found: Sequence[FoundCard]) -> tuple[FoundCard, ...]:
    """The cards there are after another look. A card that is known and was not found again stays, unless its index is taken: its
    watch tells that it is gone. An answer by another way (a tool instead of a library) may add cards, and changes none: it may
    name and measure them otherwise.
    """
    by_id = {card.id: card for card in known}
    by_index = {card.index: card for card in known}
    places = Counter(card.pci for card in known)
    by_place = {card.pci: card for card in known if card.pci and places[card.pci] == 1}
    now: dict[int, FoundCard] = {}
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


def _same(one: FoundCard, other: FoundCard) -> bool:
    """But for health, which the watch tells."""
    return replace(one, healthy=True, problem="") == replace(other, healthy=True, problem="")


def _ill(healthy: bool, problem: str) -> str:
    return "" if healthy else problem or "unhealthy"
