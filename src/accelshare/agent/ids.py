"""Device ids: short, and named by card.

Belongs here: the names, both ways. A unit of memory is `<card>-<number in hex>`, a whole card is `<card>`: the physical card is
read off the id, and kubelet, which never hands an id out twice, cannot hand a unit of a card out twice.
"""

from collections.abc import Iterable


def unit_ids(card: int, units: int) -> list[str]:
    return [f"{card}-{unit:x}" for unit in range(units)]


def whole_id(card: int) -> str:
    return str(card)


def card_of(device_id: str) -> int:
    """The card's index; ValueError for an id that is none of ours."""
    return int(device_id.partition("-")[0])


def by_card(device_ids: Iterable[str]) -> dict[int, list[str]]:
    """The ids of each card, cards and ids in a fixed order."""
    cards: dict[int, list[str]] = {}
    for device_id in device_ids:
        cards.setdefault(card_of(device_id), []).append(device_id)
    return {card: sorted(cards[card], key=_order) for card in sorted(cards)}


def list_bytes(counts: Iterable[tuple[int, int]]) -> int:
    """How large kubelet's device list is on the wire for cards of (index, units): 13 bytes and the id for each unit."""
    return sum(sum(13 + len(device_id) for device_id in unit_ids(card, units)) for card, units in counts)


def _order(device_id: str) -> int:
    unit = device_id.partition("-")[2]
    return int(unit, 16) if unit else 0
