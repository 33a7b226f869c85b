"""What is kept true on the shelf while an agent runs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from accelshare.agent.keeper import Keeper
from accelshare.agent.shelf import Shelf
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import FoundCard, Health
from accelshare.vendors.enforcement import Enforcement

WATCH = Enforcement("watch", "watch")


class OneCard:
    """A driver whose one card never changes."""

    async def discover(self) -> list[FoundCard]:
        return [FoundCard(0, "id0", 16384)]

    async def watch_health(self, cards: Sequence[FoundCard]) -> AsyncIterator[Health]:
        await asyncio.Event().wait()
        yield Health("id0", healthy=True)


async def test_who_enforces_shares_is_asked_again_and_again() -> None:
    """A daemon that was started later counts from then on, and one that ended does not any more."""
    shelf, said = Shelf(), WATCH

    async def asked() -> Enforcement:
        return said

    keeper = Keeper(load()["nvidia"], OneCard(), shelf, unit="", enforcement=asked, enforced_s=0.001)
    tasks = [asyncio.create_task(work) for work in (keeper.run(), keeper.watch_enforcement())]
    await asyncio.wait_for(keeper.asked.wait(), 60)
    for name in ("watch", "mps", "watch"):
        said = replace(WATCH, name=name)
        changed = asyncio.Event()
        shelf.on_change(changed.set)
        while shelf.inventory()["nvidia"].cards[0].enforced_by != name:
            changed.clear()
            await asyncio.wait_for(changed.wait(), 60)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
