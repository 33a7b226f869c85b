"""What a node has, as one annotation on it, written by the node's agent and read by everybody else.

Belongs here: the annotation's shape, both ways. Never: finding cards (vendors/drivers), writing to the cluster (kube/).
"""

from typing import Final

import msgspec

from accelshare.ledger.nouns import Card

KEY: Final = "accelshare.io/inventory"
LARGEST_SIZE: Final = 2**24  # units of one card
MOST_CARDS: Final = 1024


class CardEntry(msgspec.Struct, omit_defaults=True, frozen=True):
    """One card as its node tells it. `size` counts units; the rest is for people and for the container."""

    index: int
    size: int
    id: str = ""
    healthy: bool = True
    minor: int | None = None
    model: str = ""
    numa: int | None = None


class KindEntry(msgspec.Struct, omit_defaults=True, frozen=True):
    cards: list[CardEntry]
    unit: str = ""


_decoder: Final = msgspec.json.Decoder(dict[str, KindEntry])


def write(inventory: dict[str, KindEntry]) -> str:
    return msgspec.json.encode(inventory, order="sorted").decode()


def read(text: str) -> tuple[dict[str, tuple[Card, ...]], tuple[str, ...]]:
    """The cards of each kind, and in words what could not be believed. A kind with a mistake in it has no cards at all."""
    try:
        entries = _decoder.decode(text)
    except msgspec.DecodeError as error:
        return {}, (f"annotation {KEY} cannot be read: {error}",)
    cards: dict[str, tuple[Card, ...]] = {}
    problems: list[str] = []
    for kind, entry in entries.items():
        mistakes = list(_mistakes(kind, entry))
        problems.extend(mistakes)
        cards[kind] = () if mistakes else tuple(Card(kind, c.index, c.size, c.healthy, c.id) for c in entry.cards)
    return cards, tuple(problems)


def _mistakes(kind: str, entry: KindEntry) -> list[str]:
    where = f"annotation {KEY}, {kind}"
    mistakes = [
        f"{where}: card {card.index} has size {card.size}; an index is 0 to {MOST_CARDS - 1}, a size 0 to {LARGEST_SIZE}"
        for card in entry.cards
        if not (0 <= card.index < MOST_CARDS and 0 <= card.size <= LARGEST_SIZE)
    ]
    if len({card.index for card in entry.cards}) < len(entry.cards):
        mistakes.append(f"{where}: two cards have the same index")
    ids = [card.id for card in entry.cards if card.id]
    if len(set(ids)) < len(ids):
        mistakes.append(f"{where}: two cards have the same id")
    return mistakes
