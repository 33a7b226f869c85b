"""From looks at the cards to changes of their health.

Belongs here: comparing what is seen with what was told, and what a look that fails means. Never: how to look.

A look that fails proves nothing once: the last health stands. After LOOKS_BEFORE_DOUBT in a row nobody can say that a card
is well, so each is told unhealthy, until a look succeeds again.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final

from accelshare.vendors.drivers.driver import DriverError, FoundCard, Health, Listing, QueryFailed

log = logging.getLogger(__name__)

FAILURES_BEFORE_UNHEALTHY: Final = 3

# The health of the cards that could be judged; raises DriverError or CannotAsk if nobody could be asked.
HealthCheck = Callable[[], Awaitable[Mapping[str, Health]]]


async def health_changes(
    cards: Sequence[FoundCard], look: HealthCheck, pause: Callable[[], Awaitable[None]]
) -> AsyncIterator[Health]:
    """Each difference to what was told before, beginning with what `discover` said; for ever."""
    reported = {card.id: Health(card.id, card.healthy, card.problem) for card in cards}
    failures = 0
    while True:
        try:
            seen = await look()
            if failures:
                log.info("health can be looked at again after %d failures", failures)
            failures = 0
        except (DriverError, QueryFailed, OSError) as error:
            failures += 1
            if failures == 1:
                log.warning("health could not be looked at: %s", error)
            doubt = f"could not be asked {FAILURES_BEFORE_UNHEALTHY} times in a row: {error}"
            seen = {card.id: Health(card.id, False, doubt) for card in cards} if failures == FAILURES_BEFORE_UNHEALTHY else {}
        for id, health in seen.items():
            if id in reported and reported[id] != health:
                reported[id] = health
                yield health
        await pause()


def health_in(cards: Sequence[FoundCard], seen: Listing) -> dict[str, Health]:
    """The health of these cards in a fresh listing; a card that is not in it is unhealthy."""
    by_id = {card.id: card for card in seen.cards}
    # Another way of asking may know a card by another id; its place on the bus is the same, if it has that to itself.
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
    def __init__(self) -> None:
        self.mib: dict[str, int] = {}

    def remember(self, seen: Mapping[str, Health]) -> Mapping[str, Health]:
        """The same look, of which the numbers are kept. What it does not tell is not known any more."""
        self.mib = {id: health.used_mib for id, health in seen.items() if health.used_mib is not None}
        return seen
