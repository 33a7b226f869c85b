"""The nouns of the ledger: cards, asks, slices, assignments.

Belongs here: plain values. Never: sums, choices, or where a value came from.

Amounts are whole numbers of a card's own unit. What a unit is (GiB, MiB, a tenth of a GB) is the node's business and never
matters to a sum, because a request and the card that serves it are always counted in the same one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, unique
from typing import TypeAlias, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(kind: type[T]) -> type[T]:
    """A dataclass with slots that the type checker treats as frozen.

    At run time it is not: a frozen dataclass takes three times as long to make, and these are made for every pod of a list.
    """
    return dataclass(slots=True, unsafe_hash=True)(kind)


@value
class Card:
    """One physical card. Pods name it by its index; its id, if known, identifies the hardware."""

    kind: str
    index: int
    size: int  # 0: nothing to slice, the card can only be taken whole
    healthy: bool = True
    id: str = ""
    limited: bool = False  # a pod cannot use more of the card than its share
    min_units: int = 0  # the smallest share with which a container can run
    way: str = ""  # the name of what enforces the share, for people; empty: nothing does
    max_slices: int = 0  # how many pods can have a slice of it; 0: any number


@unique
class LimitNeed(IntEnum):
    """Whether a pod needs cards that are limited: on which nobody can use more than their share."""

    ANY = 0
    PREFERRED = 1
    REQUIRED = 2


@dataclass(frozen=True, slots=True, order=True)
class Ask:
    """What a pod requests of one kind: the same share on each of `cards` distinct cards, or that many whole cards.

    `limits` says on which cards a share may be, never how much it counts. A whole card has no other users, so it needs no limit.
    """

    kind: str
    cards: int = 1
    share: int = 0
    whole: bool = False
    limits: LimitNeed = LimitNeed.ANY

    @property
    def units(self) -> int:
        return self.share * self.cards


# All asks of a pod, to be served by one node. Equal requests are equal values, so a request is also a cache key.
Request: TypeAlias = tuple[Ask, ...]


@value
class Slice:
    """A part of one card, or the whole of it, that one pod has."""

    kind: str
    index: int
    units: int = 0
    whole: bool = False
    id: str = ""


@value
class Resize:
    """An amount of a pod's only slice. The resizes of a pod are numbered 1, 2, 3, …"""

    units: int
    number: int


def spread_as(ask: Ask, named: Sequence[Slice]) -> Ask | None:
    """The ask, spread over as many cards as these slices; None if they do not add up to it."""
    if len(named) == ask.cards:
        return ask
    amounts = {slice_.units for slice_ in named}
    if ask.whole or len(amounts) != 1 or sum(slice_.units for slice_ in named) != ask.units:
        return None
    return replace(ask, cards=len(named), share=named[0].units)


def placed_as(request: Request, slices: Sequence[Slice]) -> Request:
    """The request of a pod that has these slices: each ask over as many cards as it was spread by the bind."""
    if len(request) == 1 and len(slices) == request[0].cards:
        return request
    own = [[slice_ for slice_ in slices if (slice_.kind, slice_.whole) == (ask.kind, ask.whole)] for ask in request]
    placed = tuple(spread_as(ask, named) or ask for ask, named in zip(request, own, strict=True))
    return request if placed == request else placed  # many pods with one request share one value


@value
class Assignment:
    """The node and the cards for a request."""

    node: str
    slices: tuple[Slice, ...]
