"""How full the cluster is: cards, units in use, fill and fragmentation, by vendor and in all.

Belongs here: sums over the rows of view.py. Never: counting of its own from pods or nodes.

Vendors count in different units, so fill and fragmentation are counted in cards: half of a card is 0.5, whatever its size.
"""

from collections.abc import Container, Mapping

from msgspec import Struct

from accelshare.report.view import CardRow, NodeRow


class VendorOccupancy(Struct):
    """One vendor's present cards. `size` and `used` are in the unit of its nodes."""

    kind: str
    cards: int = 0
    unhealthy: int = 0
    size: int = 0
    used: int = 0
    filled_cards: float = 0.0
    free_cards: float = 0.0
    free_in_parts: float = 0.0  # of it, what is on cards that have pods


class Ratios(Struct, frozen=True):
    """`fill`: the part of all cards that pods hold. `fragmentation`: the part of what is free that lies on cards with pods."""

    fill: float
    fragmentation: float


class Occupancy:
    """Add every row, then read."""

    def __init__(self, only_whole: Container[str] = ()) -> None:
        """`only_whole`: vendors whose cards are only allocated whole; each card is one unit."""
        self._only_whole = only_whole
        self._vendors: dict[str, VendorOccupancy] = {}

    def add(self, row: NodeRow) -> None:
        for card in row.cards:
            if card.present:
                self._add_card(self._of(card.kind), card)
        for pod in row.unplaced:  # it is on a card of this node, nobody knows on which
            vendor = self._of(pod.kind)
            vendor.used += pod.units or 1
            sizes = [card.size for card in row.of(pod.kind) if card.present and card.size]
            part = 1.0 if pod.whole or not sizes else min(1.0, pod.units / max(sizes))
            vendor.filled_cards += part if row.of(pod.kind) else 0.0

    @property
    def vendors(self) -> Mapping[str, VendorOccupancy]:
        return self._vendors

    def ratios(self) -> Ratios:
        every = self._vendors.values()
        cards, free = sum(each.cards for each in every), sum(each.free_cards for each in every)
        filled, parts = sum(each.filled_cards for each in every), sum(each.free_in_parts for each in every)
        return Ratios(round(min(1.0, filled / cards), 4) if cards else 0.0, round(parts / free, 4) if free else 0.0)

    def _of(self, kind: str) -> VendorOccupancy:
        return self._vendors.setdefault(kind, VendorOccupancy(kind))

    def _add_card(self, vendor: VendorOccupancy, card: CardRow) -> None:
        shared = card.size and card.kind not in self._only_whole
        size = card.size if shared else 1
        used = card.used if shared else int(bool(card.pods))
        free = card.free if shared else int(not card.pods and card.healthy)
        vendor.cards += 1
        vendor.unhealthy += not card.healthy
        vendor.size += size
        vendor.used += used
        vendor.filled_cards += min(1.0, used / size)
        vendor.free_cards += free / size
        if card.pods:
            vendor.free_in_parts += free / size
