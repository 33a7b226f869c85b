"""Which device ids kubelet should take for a container.

Belongs here: from the ids that are free and the cards a pod was given, to ids. Never: whose ids they are (matching.py).
"""

from collections.abc import Collection, Sequence

from accelshare.agent.device_plugin.device_ids import by_card


def on_cards(available: Collection[str], *, must: Collection[str], size: int, cards: Sequence[int]) -> list[str] | None:
    """`size` ids on just these cards, spread over them as evenly as they divide, or None if the cards have too few.

    Ids that must be included (kubelet gives a container what the pod's init containers had) count for their card.
    """
    needed = set(must)
    free = {card: [i for i in found if i not in needed] for card, found in by_card(available, only=cards).items()}
    kept = by_card(must)
    if any(card not in cards for card in kept) or len(must) > size:
        return None
    chosen = list(must)
    for card, wanted in zip(cards, _even(size, len(cards)), strict=True):
        more = max(0, wanted - len(kept.get(card, ())))
        chosen += free.get(card, [])[:more]
    # What one card could not give (its ids are with init containers of the pod), another one of the pod's cards may.
    taken = set(chosen)
    spare = [device_id for card in cards for device_id in free.get(card, ()) if device_id not in taken]
    chosen += spare[: size - len(chosen)]
    return chosen[:size] if len(chosen) >= size else None


def on_any(
    available: Collection[str], *, must: Collection[str], size: int, cards: int, closed: Collection[int]
) -> list[str] | None:
    """Ids for a pod that nobody gave cards: the tightest ones that do, as many as it asks for, none of the closed ones."""
    share = -(-size // cards)
    kept = list(by_card(must))
    free = {card: ids for card, ids in by_card(available).items() if card not in closed and len(ids) >= share}
    by_room = sorted(free, key=lambda card: (len(free[card]), card))
    chosen = [*kept, *(card for card in by_room if card not in kept)][:cards]
    return on_cards(available, must=must, size=size, cards=sorted(chosen)) if len(chosen) == cards else None


def _even(size: int, parts: int) -> list[int]:
    return [size // parts + (1 if part < size % parts else 0) for part in range(parts)]
