"""The closed list of refusals: why a request is not served, and whether evicting pods could help.

Belongs here: the reasons. Never: their texts, which profiles have (vendors/), or numbers, which would keep kube-scheduler from
counting equal reasons together.
"""

from dataclasses import dataclass
from enum import Enum, unique
from typing import Final


@unique
class Reason(Enum):
    """One constant word per reason: the key of its text in a profile and of its counter in the metrics."""

    # About the node; evicting pods could help.
    NO_CARD_HAS_ROOM = "no-card-has-room"
    TOO_FEW_CARDS_HAVE_ROOM = "too-few-cards-have-room"
    NO_CARD_IS_EMPTY = "no-card-is-empty"
    TOO_FEW_CARDS_ARE_EMPTY = "too-few-cards-are-empty"
    CARDS_HAVE_MOST_SLICES = "cards-have-most-slices"

    # About the node; evicting pods does not help.
    LARGER_THAN_ANY_CARD = "larger-than-any-card"
    TOO_FEW_CARDS = "too-few-cards"
    LIMITS_NOT_ENFORCED = "limits-not-enforced"
    SMALLER_THAN_MINIMUM = "smaller-than-minimum"
    CARDS_UNHEALTHY = "cards-unhealthy"
    DELIVERY_PAUSED = "delivery-paused"
    NO_CARDS = "no-cards"
    UNKNOWN_NODE = "unknown-node"

    # About the request itself: true for every node.
    CARD_COUNT_UNREADABLE = "card-count-unreadable"
    CARD_COUNT_LEAVES_REMAINDER = "card-count-leaves-remainder"
    TOO_MANY_WHOLE_CARDS = "too-many-whole-cards"
    AMOUNT_UNREADABLE = "amount-unreadable"
    LARGER_THAN_ANY_SHAPE = "larger-than-any-shape"
    WHOLE_AND_SLICE_IN_ONE_CONTAINER = "whole-and-slice-in-one-container"
    ENFORCEMENT_UNREADABLE = "enforcement-unreadable"

    @property
    def eviction_could_help(self) -> bool:
        """Would this node serve the request if enough other pods left it?"""
        return self in _CURED_BY_EVICTION

    @property
    def about_the_request(self) -> bool:
        """Is the request itself wrong, whatever the node?"""
        return self in _ABOUT_THE_REQUEST


_CURED_BY_EVICTION: Final = frozenset(
    {
        Reason.NO_CARD_HAS_ROOM,
        Reason.TOO_FEW_CARDS_HAVE_ROOM,
        Reason.NO_CARD_IS_EMPTY,
        Reason.TOO_FEW_CARDS_ARE_EMPTY,
        Reason.CARDS_HAVE_MOST_SLICES,
    }
)
_ABOUT_THE_REQUEST: Final = frozenset(
    {
        Reason.CARD_COUNT_UNREADABLE,
        Reason.CARD_COUNT_LEAVES_REMAINDER,
        Reason.TOO_MANY_WHOLE_CARDS,
        Reason.AMOUNT_UNREADABLE,
        Reason.LARGER_THAN_ANY_SHAPE,
        Reason.WHOLE_AND_SLICE_IN_ONE_CONTAINER,
        Reason.ENFORCEMENT_UNREADABLE,
    }
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer, not an error: this kind of card, for this reason."""

    reason: Reason
    kind: str = ""
