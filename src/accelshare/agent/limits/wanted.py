"""Which limits a container must have: one for each slice on a card whose limits the agent sets itself.

Belongs here: from slices to limits. Pure. A whole card has no limit: its container has the card to itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from accelshare.agent.container_cards import numbering
from accelshare.agent.discovery.device_inventory import VendorCards
from accelshare.agent.limits import dmem
from accelshare.ledger.nouns import Slice
from accelshare.vendors.container_edits import share_bytes
from accelshare.vendors.enforcement import Enforcement


@dataclass(frozen=True, slots=True)
class Limit:
    """The bytes of one card that the processes of a cgroup may use."""

    kind: str
    card: int  # its index
    id: str
    bytes: int
    way: Enforcement

    def __str__(self) -> str:
        return f"{self.bytes} bytes of card {self.card} of {self.kind}"


def wanted_limits(kinds: Mapping[str, VendorCards], slices: Iterable[Slice]) -> tuple[Limit, ...]:
    """The limits for these slices; several slices of one card are one limit."""
    limits: dict[tuple[str, int], Limit] = {}
    for slice_ in slices:
        vendor = kinds.get(slice_.kind)
        card = vendor.cards.get(numbering(vendor)(slice_)) if vendor is not None and not slice_.whole else None
        if vendor is None or card is None or card.enforcement is None or not card.enforcement.on_cgroup:
            continue
        before = limits.get((slice_.kind, card.index))
        limit = share_bytes(slice_.units, vendor.unit_mib) + (before.bytes if before is not None else 0)
        limits[slice_.kind, card.index] = Limit(slice_.kind, card.index, card.found.id, limit, card.enforcement)
    return tuple(limits.values())


def unified(limits: Iterable[Limit]) -> dict[str, str]:
    """The files of the container's cgroup that the runtime writes before the container's process starts."""
    by_region = {
        name: part for limit in limits if limit.way.by_kernel for name, part in dmem.parts(limit.way.regions, limit.bytes).items()
    }
    return {dmem.MAX: dmem.lines(by_region)} if by_region else {}
