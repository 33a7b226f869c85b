"""Turns repeated health checks into changes of health, and keeps the last memory usage.

Belongs here: comparing a check with what was reported before, and what a failed check means. Never: how to check.

One failed check changes nothing: the last health stays. After FAILURES_BEFORE_UNHEALTHY in a row the health is
unknown, so every card is reported unhealthy until a check succeeds.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final

from accelshare.vendors.drivers.driver import DriverError, Health, HostCard, Listing, QueryFailed

log = logging.getLogger(__name__)

FAILURES_BEFORE_UNHEALTHY: Final = 3

# The health of the cards that could be checked; raises DriverError or QueryFailed if the check failed.
HealthCheck = Callable[[], Awaitable[Mapping[str, Health]]]


async def health_changes(
    cards: Sequence[HostCard], check: HealthCheck, pause: Callable[[], Awaitable[None]]
) -> AsyncIterator[Health]:
    """Each change of health since `discover`, forever."""
    reported = {card.id: Health(card.id, card.healthy, card.problem) for card in cards}
    failures = 0
    while True:
        try:
            seen = await check()
            if failures:
                log.info("health check succeeded failures_before=%d", failures)
            failures = 0
        except (DriverError, QueryFailed, OSError) as error:
            failures += 1
            if failures == 1:
                log.warning("health check failed error=%s", error)
            problem = f"its health check failed {FAILURES_BEFORE_UNHEALTHY} times in a row: {error}"
            seen = {card.id: Health(card.id, False, problem) for card in cards} if failures == FAILURES_BEFORE_UNHEALTHY else {}
        for id, health in seen.items():
            if id in reported and reported[id] != health:
                reported[id] = health
                yield health
        await pause()


def health_in(cards: Sequence[HostCard], seen: Listing) -> dict[str, Health]:
    """The health of these cards in a fresh listing; a card that is not in it is unhealthy."""
    by_id = {card.id: card for card in seen.cards}
    # Another query method may have another id for a card; its PCI address is the same, unless several cards share it.
    shared = {pci for side in (cards, seen.cards) for pci, number in Counter(card.pci for card in side).items() if number > 1}
    by_place = {card.pci: card for card in seen.cards if card.pci and card.pci not in shared}
    skipped = {left.index: left.why for left in seen.skipped if left.index is not None}
    health = {}
    for card in cards:
        found = by_id.get(card.id) or by_place.get(card.pci)
        if found is None:
            health[card.id] = Health(card.id, False, skipped.get(card.index, "is no longer listed"))
        else:
            health[card.id] = Health(card.id, found.healthy, found.problem, found.used_mib)
    return health


class LastUsage:
    """How much memory of each card was in use at the last health check."""

    def __init__(self) -> None:
        self.mib: dict[str, int] = {}

    def keep(self, seen: Mapping[str, Health]) -> Mapping[str, Health]:
        """Keep the memory usage of this check, and return the check. What it does not report is unknown from now on."""
        self.mib = {id: health.used_mib for id, health in seen.items() if health.used_mib is not None}
        return seen
