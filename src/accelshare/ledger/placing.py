"""Chooses cards for one request on one node, by a policy.

Belongs here: the policies, and the choice on one node. A policy is two orders, the smallest key wins: over the cards of one node,
and over the nodes. Ties are broken by the card's index and the node's name, so the same question always has the same answer.
Never: other nodes, the clock, Kubernetes.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, TypeAlias

from accelshare.ledger.node_ledger import CardLedger, NodeLedger
from accelshare.ledger.nouns import Ask, Assignment, Card, LimitNeed, Request, Slice
from accelshare.ledger.refusals import Reason, Refusal

# (free units of the card, requested share) → key; the caller appends the card's index.
CardOrder: TypeAlias = Callable[[int, int], int]
# (what stays free on the chosen cards, cards of the node without pods) → key; the caller appends the node's name.
NodeOrder: TypeAlias = Callable[[int, int], tuple[int, int]]
# A node's place in the order for one request: the policy's key, and before it the number of cards without a limit if the request
# prefers limits. The ranks of one request have the same length; those of different requests are never compared.
Rank: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    card: CardOrder
    node: NodeOrder


POLICIES: Final[Mapping[str, Policy]] = {
    policy.name: policy
    for policy in (
        # The tightest card in the whole cluster; among equals the node that keeps fewer cards untouched.
        Policy("binpack", card=lambda free_units, share: free_units - share, node=lambda left, untouched: (left, untouched)),
        # The emptiest card; among equals the node with more cards untouched.
        Policy("spread", card=lambda free_units, share: share - free_units, node=lambda left, untouched: (-left, -untouched)),
    )
}
DEFAULT: Final = POLICIES["binpack"]


_key_and_index: Final = itemgetter(0, 1)
MOST_BITS: Final = 1 << 24  # to compute and read the exact sums of one node, some milliseconds; above this, an upper bound


@dataclass(frozen=True, slots=True)
class Fit:
    """The cards this node would allocate, and its rank: the smallest wins."""

    assignment: Assignment
    rank: Rank


def fit(node: NodeLedger, request: Request, policy: Policy) -> Fit | Refusal:
    """The cards this node would allocate to the request, or the reason why none."""
    answer = _choose(node, request, policy)
    if len(request) == 1 or isinstance(answer, Fit):
        return answer
    # Several asks compete for cards, and the first one that failed need not be the one that keeps the pod away.
    without_pods = _choose(node.without_pods(), request, policy)
    if isinstance(without_pods, Refusal):
        return without_pods
    if answer.reason.eviction_could_help:
        return answer
    # Its whole cards took what its slices need, because other cards are not empty.
    return Refusal(Reason.TOO_FEW_CARDS_HAVE_ROOM, answer.kind)


def fit_on(node: NodeLedger, request: Request, policy: Policy, slices: Sequence[Slice]) -> Assignment | None:
    """Exactly these cards of the node, if it can allocate them to the request now; in the order of the slices."""
    answer = _choose(node.only(slices), request, policy)
    if not isinstance(answer, Fit) or len(answer.assignment.slices) != len(slices):
        return None
    return Assignment(node.name, tuple(slices)) if set(answer.assignment.slices) == set(slices) else None


def serves(node: NodeLedger, request: Request, policy: Policy) -> bool:
    """Whether this node would allocate cards to the request; cheaper than the reason why not."""
    return isinstance(_choose(node, request, policy), Fit)


def _choose(node: NodeLedger, request: Request, policy: Policy) -> Fit | Refusal:
    slices: list[Slice] = []
    left = 0
    unlimited: int | None = None  # chosen cards without a limit, if the request prefers limits
    # Whole cards first: they have the least choice, and a slice of the same pod must not be on them.
    for ask in sorted(request, key=lambda ask: not ask.whole) if len(request) > 1 else request:
        if node.paused(ask.kind):
            return Refusal(Reason.DELIVERY_PAUSED, ask.kind)
        cards: Sequence[CardLedger] = node.cards.get(ask.kind, ())
        if slices:
            taken = [slice_.index for slice_ in slices if slice_.kind == ask.kind]
            cards = [card for card in cards if card.card.index not in taken]
        chosen = _whole(node, cards, ask, request) if ask.whole else _shared(node, cards, ask, policy)
        if isinstance(chosen, Reason):
            return Refusal(chosen, ask.kind)
        for free_units, card in chosen:
            left += 0 if ask.whole else free_units - ask.share
            slices.append(Slice(ask.kind, card.card.index, ask.share, ask.whole, card.card.id))
        if ask.limits is LimitNeed.PREFERRED:
            unlimited = (unlimited or 0) + sum(not card.card.limited for _, card in chosen)
    rank = policy.node(left, node.untouched())
    return Fit(Assignment(node.name, tuple(slices)), rank if unlimited is None else (unlimited, *rank))


def may_serve(card: Card, ask: Ask) -> bool:
    """Whether a share of this ask may be on the card, whatever is free there."""
    return ask.share >= card.min_units and (card.limited or ask.limits is not LimitNeed.REQUIRED)


def _shared(node: NodeLedger, cards: Sequence[CardLedger], ask: Ask, policy: Policy) -> list[tuple[int, CardLedger]] | Reason:
    unplaced = node.unplaced_asks(ask.kind) if node.unplaced else ()
    unplaced_pods = UnplacedPods(unplaced, [card.free_units for card in cards]) if unplaced else None
    fitting = []
    share, any_limits = ask.share, ask.limits is not LimitNeed.REQUIRED
    full = 0  # cards with enough memory and as many slices as they can have
    for card in cards:
        free_units = card.free_units
        if unplaced_pods and free_units:
            free_units -= unplaced_pods.most_on(card)
        # may_serve(), without the cost of a call for each card of thousands of nodes.
        if free_units >= share >= card.card.min_units and (any_limits or card.card.limited):
            if card.card.max_slices and len(card.holders) + len(unplaced) >= card.card.max_slices:
                full += 1
            else:
                fitting.append((policy.card(free_units, share), card.card.index, free_units, card))
    if len(fitting) >= ask.cards:
        fitting.sort(key=_key_and_index)
        if ask.limits is LimitNeed.PREFERRED:
            fitting.sort(key=lambda entry: not entry[3].card.limited)
        return [(free_units, card) for _, _, free_units, card in fitting[: ask.cards]]
    if not node.cards.get(ask.kind):
        return Reason.NO_CARDS
    here = [card.card for card in cards]
    could_serve = [c for c in here if c.size >= share >= c.min_units and c.healthy and (any_limits or c.limited)]
    if len(could_serve) >= ask.cards:
        if len(fitting) + full >= ask.cards:
            return Reason.CARDS_HAVE_MOST_SLICES
        return Reason.NO_CARD_HAS_ROOM if ask.cards == 1 else Reason.TOO_FEW_CARDS_HAVE_ROOM
    return _why_never(here, ask)


def _why_never(cards: Sequence[Card], ask: Ask) -> Reason:
    """Why too few of these cards could serve a share of this ask, even if they had no pods."""
    if len(cards) < ask.cards:
        return Reason.TOO_FEW_CARDS  # also where the same pod has taken the others whole
    large_enough = [card for card in cards if card.size >= ask.share]
    if len(large_enough) < ask.cards:
        return Reason.LARGER_THAN_ANY_CARD
    if ask.limits is LimitNeed.REQUIRED and sum(card.limited for card in large_enough) < ask.cards:
        return Reason.LIMITS_NOT_ENFORCED
    if sum(may_serve(card, ask) for card in large_enough) < ask.cards:
        return Reason.SMALLER_THAN_MINIMUM
    return Reason.CARDS_UNHEALTHY


def _whole(node: NodeLedger, cards: Sequence[CardLedger], ask: Ask, request: Request) -> list[tuple[int, CardLedger]] | Reason:
    unplaced_pods = bool(node.unplaced) and bool(node.unplaced_asks(ask.kind))
    empty = [] if unplaced_pods else [card for card in cards if card.empty and card.card.healthy]
    if len(empty) >= ask.cards:
        # The smallest cards that fit: a large one may be the only place for a large slice.
        empty.sort(key=lambda card: (card.card.size, card.card.index))
        for slice_ in (other for other in request if other.kind == ask.kind and not other.whole):
            # First those that the same pod's slice cannot use, or would rather not.
            empty.sort(key=lambda card: _usefulness(card.card, slice_))
        return [(0, card) for card in empty[: ask.cards]]
    if not cards:
        return Reason.NO_CARDS
    if len(cards) < ask.cards:
        return Reason.TOO_FEW_CARDS
    if sum(card.card.healthy for card in cards) < ask.cards:
        return Reason.CARDS_UNHEALTHY
    return Reason.NO_CARD_IS_EMPTY if ask.cards == 1 else Reason.TOO_FEW_CARDS_ARE_EMPTY


def _usefulness(card: Card, ask: Ask) -> int:
    """How much a slice needs this card: not at all, only if there is no better one, or most."""
    if card.size < ask.share or not may_serve(card, ask):
        return 0
    return 1 if ask.limits is LimitNeed.PREFERRED and not card.limited else 2


class UnplacedPods:
    """Pods whose card is not known: the most that they could hold of one card. They may be on any card that they fit on.

    A pod that was placed without the scheduler is counted on every card at its worst, so that its card is not oversold before
    the node reports which one it is. The sums that these pods can add up to are computed as bits, once for all cards.
    """

    def __init__(self, asks: Sequence[Ask], free_units: Sequence[int]) -> None:
        """`free_units`: of each card."""
        most_free = max(free_units, default=0)
        self._whole = any(ask.whole for ask in asks)
        amounts = self._amounts = Counter[int]()
        for ask in asks:
            if not ask.whole and 0 < ask.share <= most_free:
                amounts[ask.share] += ask.cards
        self._total = sum(share * count for share, count in amounts.items())
        self._sums: int | None = None
        # Many equal amounts are a few large ones: 13 = 1 + 2 + 4 + 6.
        steps = [share * part for share, count in amounts.items() for part in _parts(min(count, most_free // share))]
        if (len(steps) + len(free_units)) * most_free <= MOST_BITS:
            sums, mask = 1, (1 << (most_free + 1)) - 1
            for step in steps:
                sums |= (sums << step) & mask
            self._sums = sums

    def most_on(self, card: CardLedger) -> int:
        free_units = card.free_units
        if self._whole and card.empty:
            return free_units
        if self._total <= free_units:
            return self._total
        if self._sums is None:  # an upper bound
            return min(free_units, sum(share * count for share, count in self._amounts.items() if share <= free_units))
        return (self._sums & ((1 << (free_units + 1)) - 1)).bit_length() - 1


def _parts(count: int) -> Iterator[int]:
    """Numbers whose partial sums are exactly the numbers up to this one."""
    part = 1
    while count > 0:
        yield min(part, count)
        count -= part
        part *= 2
