"""Resizing a living slice: what a pod counts while its amount changes, and whether its card has room for another amount.

Belongs here: the rules, for one pod on one node. Never: applying facts and holding (ledger.py), writing (extender/, agent/).

The extender grants a resize, then the agent of the node sets the limit, or keeps the old one, and reports the amount in force.
Until then a pod counts the larger of both amounts: growth counts at once, and a shrink frees nothing before it was done.
"""

from dataclasses import dataclass, replace
from enum import Enum, unique

from accelshare.ledger.node_ledger import NodeLedger
from accelshare.ledger.nouns import Request, Resize, Slice
from accelshare.ledger.placing import UnplacedPods


@unique
class ResizeReason(Enum):
    """One constant word per reason: the label of its counter in the metrics."""

    OFF = "off"
    UNREADABLE = "unreadable"
    NOT_ONE_SLICE = "not-one-slice"
    CARD_UNKNOWN = "card-unknown"
    LIMIT_FIXED = "limit-fixed"
    LARGER_THAN_CARD = "larger-than-card"
    BELOW_MINIMUM = "below-minimum"
    CARD_UNHEALTHY = "card-unhealthy"
    NO_ROOM = "no-room"
    QUOTA = "quota"
    NOT_WRITTEN = "not-written"


@dataclass(frozen=True, slots=True)
class ResizeRefusal:
    """Why a slice keeps its amount. `units`: the number that the reason is about, such as the most that the card has room for."""

    reason: ResizeReason
    units: int = 0


def is_one_slice(request: Request) -> bool:
    """Does the pod request one slice of one card? Nothing else can be resized."""
    return len(request) == 1 and request[0].cards == 1 and not request[0].whole


def resized(request: Request, slices: tuple[Slice, ...], units: int) -> tuple[Request, tuple[Slice, ...]]:
    """The same with this amount of the pod's only slice; unchanged if it has other cards than that."""
    if not is_one_slice(request) or request[0].share == units:
        return request, slices
    return (replace(request[0], share=units),), tuple(replace(slice_, units=units) for slice_ in slices)


def counted_units(requested: int, *, granted: Resize | None, applied: Resize | None, held: Resize | None = None) -> int:
    """What the slice counts. `applied`: what its node has reported. `held`: a grant whose write is not confirmed yet."""
    if granted is not None and applied is not None and granted.number == applied.number:
        units = applied.units
    else:
        before = requested if applied is None else applied.units
        units = max(before, requested if granted is None else granted.units)
    return units if held is None else max(units, held.units)


def resize_refusal(node: NodeLedger, uid: str, request: Request, slices: tuple[Slice, ...], units: int) -> ResizeRefusal | None:
    """Why the pod's slice cannot have this amount, or None if it can."""
    if not is_one_slice(request):
        return ResizeRefusal(ResizeReason.NOT_ONE_SLICE)
    kind = request[0].kind
    card = next((card for card in node.cards.get(kind, ()) if uid in card.holders), None)
    if card is None or not slices:
        return ResizeRefusal(ResizeReason.CARD_UNKNOWN)
    if units > card.card.size:
        return ResizeRefusal(ResizeReason.LARGER_THAN_CARD, card.card.size)
    if units < card.card.min_units:
        return ResizeRefusal(ResizeReason.BELOW_MINIMUM, card.card.min_units)
    held = card.holders[uid]
    if units <= held:
        return None
    if not card.card.healthy:
        return ResizeRefusal(ResizeReason.CARD_UNHEALTHY)
    free_units = card.free_units
    if unplaced := node.unplaced_asks(kind):
        free_units -= UnplacedPods(unplaced, [other.free_units for other in node.cards[kind]]).most_on(card)
    return ResizeRefusal(ResizeReason.NO_ROOM, held + free_units) if units - held > free_units else None
