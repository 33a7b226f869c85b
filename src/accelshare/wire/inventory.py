"""The inventory annotation of a Node: its cards, written by the node's agent and read by everything else.

Belongs here: encoding and decoding the annotation. Never: finding cards (vendors/drivers), writing to the cluster (kube/).
"""

import re
from dataclasses import dataclass, field
from sys import intern
from typing import Final

import msgspec

from accelshare.ledger.nouns import Card
from accelshare.vendors.profile import FORMER_NOBODY, NOBODY
from accelshare.wire.decoding import LONGEST_ANNOTATION, Decoder, UnreadableError

KEY: Final = "accelshare.io/inventory"
LARGEST_SIZE: Final = 2**24  # units of one card
MOST_CARDS: Final = 256  # of one kind on one node
LONGEST_ID: Final = 128  # characters of a card's hardware id
_NO_WAY: Final = frozenset({"", NOBODY, FORMER_NOBODY})  # earlier agents write nothing, or the former name
_WAY: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
BY_DEVICE_PLUGIN: Final = ("device-plugin", "device-plugin+nri")
BY_RUNTIME: Final = "nri"  # the container runtime delivers the card, on behalf of our NRI plugin


class CardEntry(msgspec.Struct, omit_defaults=True, frozen=True):
    """One card in the inventory. `size` is in units; the rest is for people and for the container."""

    index: int
    size: int
    id: str = ""
    healthy: bool = True
    minor: int | None = None
    model: str = ""
    numa: int | None = None
    problem: str = ""  # why it is not healthy
    size_given: bool = False  # the card does not report its size: a profile or a flag sets it
    enforced_by: str = ""  # the way proven for this card in which a pod's share is enforced, or "nobody"; empty: not known
    min_units: int = 0  # the smallest slice that can run under this way; 0: any


class KindEntry(msgspec.Struct, omit_defaults=True, frozen=True):
    """All cards of a kind. While `delivers` is false, a pod bound to the node would not get its card."""

    cards: list[CardEntry]
    unit: str = ""
    delivery: str = ""  # how a card is delivered to its container
    delivers: bool = True
    insists: bool = False  # the runtime creates no container without its card
    whole_by_others: bool = False  # another device plugin delivers whole cards
    problem: str = ""  # what keeps the agent from serving this kind
    slots: dict[str, int] = {}  # by hardware id: numbers in kubelet's device ids that are not the card's index


_decoder: Final = Decoder(dict[str, KindEntry], most_bytes=LONGEST_ANNOTATION)


def write(inventory: dict[str, KindEntry]) -> str:
    return msgspec.json.encode(inventory, order="sorted").decode()


@dataclass(frozen=True, slots=True)
class Inventory:
    """An inventory as read: the cards of each kind, the kinds whose delivery is paused, how kinds are delivered, and problems."""

    cards: dict[str, tuple[Card, ...]] = field(default_factory=dict)
    paused: frozenset[str] = frozenset()
    by_runtime: frozenset[str] = frozenset()
    by_device_plugin: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    readable: bool = True  # false: which kinds the node has is not known either


def entries_of(text: str) -> dict[str, KindEntry]:
    """The inventory as written; UnreadableError if it is none."""
    return _decoder.decode(text)


def read(text: str) -> Inventory:
    """The valid part of an inventory. A kind with a mistake has no cards at all."""
    try:
        entries = entries_of(text)
    except UnreadableError as error:
        return Inventory(problems=(f"annotation {KEY} cannot be read: {error}",), readable=False)
    cards: dict[str, tuple[Card, ...]] = {}
    problems: list[str] = []
    for kind, entry in entries.items():
        mistakes = list(_mistakes(kind, entry))
        problems.extend(mistakes)
        if entry.problem:
            problems.append(f"{kind}: {entry.problem}")
        cards[kind] = () if mistakes else tuple(_card(kind, card) for card in entry.cards)
    paused = frozenset(kind for kind, entry in entries.items() if not entry.delivers)
    by_runtime = frozenset(kind for kind, entry in entries.items() if entry.delivery == BY_RUNTIME)
    by_device_plugin = frozenset(kind for kind, entry in entries.items() if entry.delivery in BY_DEVICE_PLUGIN)
    return Inventory(cards, paused, by_runtime, by_device_plugin, tuple(problems))


def way_of(card: CardEntry) -> str:
    """The way that enforces shares of this card; empty: nobody does. A text that cannot be the name of a way proves nothing."""
    return card.enforced_by if card.enforced_by not in _NO_WAY and _WAY.fullmatch(card.enforced_by) else ""


def _card(kind: str, card: CardEntry) -> Card:
    way = intern(way_of(card))
    return Card(kind, card.index, card.size, card.healthy, intern(card.id), bool(way), card.min_units, way)


def _mistakes(kind: str, entry: KindEntry) -> list[str]:
    where = f"annotation {KEY}, {kind}"
    mistakes: list[str] = []
    if len(entry.cards) > MOST_CARDS:
        mistakes.append(f"{where}: it has {len(entry.cards)} cards; at most {MOST_CARDS} are accepted")
    bad = [card for card in entry.cards if not _in_bounds(card)]
    if bad:
        first = bad[0]
        numbers = f"index {str(first.index)[:20]}, size {str(first.size)[:20]}, min_units {str(first.min_units)[:20]}"
        values = f"{numbers} and an id of {len(first.id)} characters"
        sizes = f"a size and min_units 0 to {LARGEST_SIZE}"
        bounds = f"an index is 0 to {MOST_CARDS - 1}, {sizes}, an id has at most {LONGEST_ID} characters"
        mistakes.append(f"{where}: {len(bad)} of {len(entry.cards)} cards are out of bounds, the first has {values}; {bounds}")
    if len({card.index for card in entry.cards}) < len(entry.cards):
        mistakes.append(f"{where}: two cards have the same index")
    ids = [card.id for card in entry.cards if card.id]
    if len(set(ids)) < len(ids):
        mistakes.append(f"{where}: two cards have the same id")
    return mistakes


def _in_bounds(card: CardEntry) -> bool:
    sizes = 0 <= card.size <= LARGEST_SIZE and 0 <= card.min_units <= LARGEST_SIZE
    return 0 <= card.index < MOST_CARDS and sizes and len(card.id) <= LONGEST_ID
