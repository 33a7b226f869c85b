"""Device ids: their form, and which ids kubelet should take for a container.

Belongs here: ids from cards, cards from ids, and the selection. A unit of memory is `<card>-<number in hex>`, a whole card is
`<card>`. So an id names its card, and kubelet, which never allocates an id twice, cannot allocate a unit of a card twice.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, count, islice
from typing import Final

_OURS: Final = re.compile(r"(\d{1,9})(-[0-9a-f]{1,9})?", re.ASCII)


def unit_ids(card: int, units: int) -> list[str]:
    return [f"{card}-{unit:x}" for unit in range(units)]


def current(card: int, usual: Sequence[str], *, held: Sequence[str], stale: Collection[str]) -> list[str]:
    """The ids of one card, as many as `usual`: first those that pods hold, then ids that kubelet does not keep for ended pods."""
    kept = held[: len(usual)]
    taken = {*kept, *stale}
    names = chain(usual, (f"{card}-{unit:x}" for unit in count(len(usual))))
    return [*kept, *islice((name for name in names if name not in taken), len(usual) - len(kept))]


def is_ours(device_id: str) -> bool:
    return _OURS.fullmatch(device_id) is not None


def card_of(device_id: str) -> int:
    """The card's number; ValueError for an id that is not of our form."""
    match = _OURS.fullmatch(device_id)
    if match is None:
        raise ValueError(f"{device_id!r} is not a device id of accelshare; it must be like 0-1f or 0")
    return int(match[1])


def by_card(device_ids: Iterable[str], only: Collection[int] | None = None) -> dict[int, list[str]]:
    """The ids of each card, or of these cards only, cards and ids in a fixed order.

    Ids of another plugin that served this node before name no card and are left out: kubelet keeps them while its pods live.
    """
    if only is not None:
        # kubelet sends every free id of the node with a request; most are of other cards, and this check is the cheapest.
        heads = {str(card) for card in only}
        device_ids = [device_id for device_id in device_ids if device_id.partition("-")[0] in heads]
    cards: dict[int, list[str]] = {}
    for device_id in device_ids:
        if match := _OURS.fullmatch(device_id):
            cards.setdefault(int(match[1]), []).append(device_id)
    return {card: sorted(cards[card], key=_order) for card in sorted(cards)}


def cards_of(device_ids: Iterable[str]) -> set[int]:
    """The cards that these ids name; ids that are not of our form are left out."""
    return {int(match[1]) for match in map(_OURS.fullmatch, device_ids) if match}


def list_bytes(counts: Iterable[tuple[int, int]]) -> int:
    """The largest size of kubelet's device list on the wire for cards of (index, units).

    Each unit takes 15 bytes and its id, counted as unhealthy, which takes two bytes more: a list must not exceed kubelet's limit
    because a card becomes unhealthy.
    """
    return sum(sum(15 + len(device_id) for device_id in unit_ids(card, units)) for card, units in counts)


def select_on_cards(available: Collection[str], *, must: Collection[str], size: int, cards: Sequence[int]) -> list[str] | None:
    """`size` ids on exactly these cards, spread evenly over them, or None if the cards have too few.

    Ids that must be included (kubelet gives a container the ids of the pod's init containers) count for their card.
    """
    needed = set(must)
    free = {card: [i for i in ids if i not in needed] for card, ids in by_card(available, only=cards).items()}
    kept = by_card(must)
    if any(card not in cards for card in kept) or len(must) > size:
        return None
    chosen = list(must)
    for card, wanted in zip(cards, _even(size, len(cards)), strict=True):
        more = max(0, wanted - len(kept.get(card, ())))
        chosen += free.get(card, [])[:more]
    # If one card has too few (init containers of the pod hold its ids), take the rest from the pod's other cards.
    taken = set(chosen)
    spare = [device_id for card in cards for device_id in free.get(card, ()) if device_id not in taken]
    chosen += spare[: size - len(chosen)]
    return chosen[:size] if len(chosen) >= size else None


def select_on_any(
    available: Collection[str], *, must: Collection[str], size: int, cards: int, closed: Collection[int]
) -> list[str] | None:
    """Ids for a pod whose record names no usable card: on as many cards as it requests, the fullest that fit, no closed ones."""
    share = -(-size // cards)
    kept = list(by_card(must))
    free = {card: ids for card, ids in by_card(available).items() if card not in closed and len(ids) >= share}
    by_free = sorted(free, key=lambda card: (len(free[card]), card))
    chosen = [*kept, *(card for card in by_free if card not in kept)][:cards]
    return select_on_cards(available, must=must, size=size, cards=sorted(chosen)) if len(chosen) == cards else None


def _order(device_id: str) -> int:
    unit = device_id.partition("-")[2]
    return int(unit, 16) if unit else 0


def _even(size: int, parts: int) -> list[int]:
    return [size // parts + (1 if part < size % parts else 0) for part in range(parts)]
