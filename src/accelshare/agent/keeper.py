"""Keeps one vendor's cards on the shelf: found, counted in units, watched for illness.

Belongs here: asking a driver again and again. A driver that fails is said once and tried for ever; absent hardware is no
reason to end. Never: how hardware is asked.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from accelshare.agent.shelf import Kind, Shelf, ShelfCard
from accelshare.agent.units import count
from accelshare.vendors.drivers.driver import Driver, DriverError, FoundCard, TellsUse
from accelshare.vendors.enforcement import Enforcement
from accelshare.vendors.profile import Profile

log = logging.getLogger(__name__)
AGAIN_S: Final = 10.0
ENFORCED_S: Final = 60.0  # how often it is asked who enforces shares: tools are upgraded, daemons come and go


class Keeper:
    def __init__(
        self,
        profile: Profile,
        driver: Driver,
        shelf: Shelf,
        *,
        unit: str,
        enforcement: Callable[[], Awaitable[Enforcement]],
        listed: bool = True,
        watch_health: bool = True,
        again_s: float = AGAIN_S,
        enforced_s: float = ENFORCED_S,
    ) -> None:
        self._profile = profile
        self._driver = driver
        self._shelf = shelf
        self._unit = unit
        self._enforcement = enforcement
        self._listed = listed
        self._watch_health = watch_health
        self._again_s = again_s
        self._enforced_s = enforced_s
        self._said: tuple[str, ...] | None = None
        self.asked = asyncio.Event()  # the first answer, or the first failure, is there

    def used_mib(self) -> Mapping[str, int]:
        """What is in use of each card, by id, as far as the driver tells."""
        return self._driver.used_mib() if isinstance(self._driver, TellsUse) else {}

    async def run(self) -> None:
        """For ever. A unit that cannot be used ends it, because no waiting mends that."""
        while True:
            cards = await self._discover()
            if cards:
                self._put(cards, await self._enforcement())
            self.asked.set()
            if not cards or not self._watch_health:
                await asyncio.sleep(self._again_s)
                continue
            async with aclosing(self._driver.watch_health(cards)) as changes:  # type: ignore[type-var]
                async for health in changes:
                    state = "healthy" if health.healthy else "ill"
                    log.warning("card kind=%s id=%s state=%s problem=%r", self._profile.name, health.id, state, health.problem)
                    self._shelf.set_health(self._profile.name, health.id, _ill(health.healthy, health.problem))

    async def watch_enforcement(self) -> None:
        """For ever: what the shelf says of enforcement stays true."""
        while True:
            await asyncio.sleep(self._enforced_s)
            self._shelf.set_enforcement(self._profile.name, await self._enforcement())

    async def _discover(self) -> list[FoundCard]:
        try:
            cards = await self._driver.discover()
        except DriverError as error:
            if error.tried != self._said:
                log.warning("discover kind=%s outcome=failed tried=%r", self._profile.name, list(error.tried))
            self._said = error.tried
            return []
        if (said := tuple(card.id for card in cards)) != self._said:
            log.info("discover kind=%s cards=%d outcome=found", self._profile.name, len(cards))
        self._said = said
        return cards

    def _put(self, cards: Sequence[FoundCard], enforcement: Enforcement) -> None:
        counted = count(self._profile, {card.index: card.memory_mib for card in cards}, self._unit, listed=self._listed)
        if counted.warning:
            log.warning("units kind=%s warning=%r", self._profile.name, counted.warning)
        self._shelf.put(
            Kind(
                profile=self._profile,
                unit=counted.unit,
                unit_mib=counted.unit_mib,
                cards={
                    card.index: ShelfCard(card, counted.cards[card.index], ill=_ill(card.healthy, card.problem))
                    for card in sorted(cards, key=lambda card: card.index)
                },
                enforcement=enforcement,
            )
        )


def _ill(healthy: bool, problem: str) -> str:
    return "" if healthy else problem or "unhealthy"
