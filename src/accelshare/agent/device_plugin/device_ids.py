"""Device ids: short, and named by card.

Belongs here: the names, both ways. A unit of memory is `<card>-<number in hex>`, a whole card is `<card>`: the physical card is
read off the id, and kubelet, which never hands an id out twice, cannot hand a unit of a card out twice.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, count, islice
from typing import Final

_OURS: Final = re.compile(r"(\d{1,9})(-[0-9a-f]{1,9})?", re.ASCII)


def unit_ids(card: int, units: int) -> list[str]:
    return [f"{card}-{unit:x}" for unit in range(units)]


def whole_id(card: int) -> str:
    return str(card)


def current(card: int, usual: Sequence[str], *, held: Sequence[str], lost: Collection[str]) -> list[str]:
    """As many ids as usual: those of this card that are held, and for the rest names that kubelet does not keep for the dead."""
    kept = held[: len(usual)]
    taken = {*kept, *lost}
    names = chain(usual, (f"{card}-{unit:x}" for unit in count(len(usual))))
    return [*kept, *islice((name for name in names if name not in taken), len(usual) - len(kept))]


def is_ours(device_id: str) -> bool:
    return _OURS.fullmatch(device_id) is not None


def card_of(device_id: str) -> int:
    """The card's index; ValueError for an id that is none of ours."""
    found = _OURS.fullmatch(device_id)
    if found is None:
        raise ValueError(f"{device_id!r} is no device id of ours; it must be like 0-1f or 0")
    return int(found[1])


def by_card(device_ids: Iterable[str], only: Collection[int] | None = None) -> dict[int, list[str]]:
    """The ids of each card, or of these cards only, cards and ids in a fixed order.

    Ids of a plugin that served this node before us name no card that we know, and are left out: kubelet remembers them for as
    long as its pods live.
    """
    if only is not None:
        # kubelet sends every free id of the node with a question; most are of other cards, and this is the cheapest way to tell.
        heads = {str(card) for card in only}
        device_ids = [device_id for device_id in device_ids if device_id.partition("-")[0] in heads]
    cards: dict[int, list[str]] = {}
    for device_id in device_ids:
        if found := _OURS.fullmatch(device_id):
            cards.setdefault(int(found[1]), []).append(device_id)
    return {card: sorted(cards[card], key=_order) for card in sorted(cards)}


def cards_of(device_ids: Iterable[str]) -> set[int]:
    """The cards that these ids are of; ids that are none of ours are left out."""
    return {int(found[1]) for found in map(_OURS.fullmatch, device_ids) if found}


def list_bytes(counts: Iterable[tuple[int, int]]) -> int:
    """How large kubelet's device list can become on the wire for cards of (index, units).

    Each unit takes 15 bytes and its id: an unhealthy one takes two more than a healthy one, and a list must not outgrow kubelet's
    limit because a card falls ill.
    """
    return sum(sum(15 + len(device_id) for device_id in unit_ids(card, units)) for card, units in counts)


def _order(device_id: str) -> int:
    unit = device_id.partition("-")[2]
    return int(unit, 16) if unit else 0
