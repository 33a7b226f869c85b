"""Chooses cards for one request on one node, by a policy.

Belongs here: the policies, and the choice on one node. A policy is two orders, the smallest key wins: over the cards of one node,
and over the nodes. Ties are broken by the card's index and the node's name, so the same question always has the same answer.
Never: other nodes, the clock, Kubernetes.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from accelshare.ledger.node_ledger import CardLedger, NodeLedger
from accelshare.ledger.nouns import Ask, Assignment, Request, Slice
from accelshare.ledger.refusals import Reason, Refusal

# (free units of the card, requested share) → key; the caller appends the card's index.
CardOrder: TypeAlias = Callable[[int, int], int]
# (what stays free on the chosen cards, cards of the node without pods) → key; the caller appends the node's name.
NodeOrder: TypeAlias = Callable[[int, int], tuple[int, int]]


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


MOST_BITS: Final = 1 << 24  # for the exact sums of one node, some milliseconds; above this the worst case is estimated


@dataclass(frozen=True, slots=True)
class Fit:
    """The cards this node would allocate, and the policy's rank for it: the smallest wins."""

    assignment: Assignment
    rank: tuple[int, int]


def fit(node: NodeLedger, request: Request, policy: Policy) -> Fit | Refusal:
    """The cards this node would allocate to the request, or the reason why none."""
    slices: list[Slice] = []
    left = 0
    # Whole cards first: they have the least choice, and a slice of the same pod must not be on them.
    for ask in sorted(request, key=lambda ask: not ask.whole) if len(request) > 1 else request:
        if node.paused(ask.kind):
            return Refusal(Reason.DELIVERY_PAUSED, ask.kind)
        taken = [slice_.index for slice_ in slices if slice_.kind == ask.kind]
        cards = [card for card in node.cards.get(ask.kind, ()) if card.card.index not in taken]
        chosen = _whole(node, cards, ask) if ask.whole else _shared(node, cards, ask, policy)
        if isinstance(chosen, Reason):
            return Refusal(chosen, ask.kind)
        for free_units, card in chosen:
            left += 0 if ask.whole else free_units - ask.share
            slices.append(Slice(ask.kind, card.card.index, ask.share, ask.whole, card.card.id))
    return Fit(Assignment(node.name, tuple(slices)), policy.node(left, node.untouched()))


def _shared(node: NodeLedger, cards: Sequence[CardLedger], ask: Ask, policy: Policy) -> list[tuple[int, CardLedger]] | Reason:
    unplaced = node.unplaced_asks(ask.kind) if node.unplaced else ()
    unplaced_pods = UnplacedPods(unplaced, max((card.free_units for card in cards), default=0)) if unplaced else None
    fitting = []
    full = 0  # cards with enough memory and as many slices as they can have
    for card in cards:
        free_units = card.free_units
        if unplaced_pods and free_units:
            free_units -= unplaced_pods.most_on(card)
        if free_units >= ask.share:
            if card.card.max_slices and len(card.holders) + len(unplaced) >= card.card.max_slices:
                full += 1
            else:
                fitting.append((policy.card(free_units, ask.share), card.card.index, free_units, card))
    if len(fitting) >= ask.cards:
        fitting.sort(key=lambda entry: entry[:2])
        return [(free_units, card) for _, _, free_units, card in fitting[: ask.cards]]
    if not node.cards.get(ask.kind):
        return Reason.NO_CARDS
    if len(cards) < ask.cards:
        return Reason.TOO_FEW_CARDS  # also where the same pod has taken the others whole
    large_enough = [card for card in cards if card.card.size >= ask.share]
    if len(large_enough) < ask.cards:
        return Reason.LARGER_THAN_ANY_CARD
    if sum(card.card.healthy for card in large_enough) < ask.cards:
        return Reason.CARDS_UNHEALTHY
    if len(fitting) + full >= ask.cards:
        return Reason.CARDS_HAVE_MOST_SLICES
    return Reason.NO_CARD_HAS_ROOM if ask.cards == 1 else Reason.TOO_FEW_CARDS_HAVE_ROOM


def _whole(node: NodeLedger, cards: Sequence[CardLedger], ask: Ask) -> list[tuple[int, CardLedger]] | Reason:
    unplaced_pods = bool(node.unplaced) and bool(node.unplaced_asks(ask.kind))
    empty = [] if unplaced_pods else [card for card in cards if card.empty and card.card.healthy]
    if len(empty) >= ask.cards:
        # The smallest cards that fit: a large one may be the only place for a large slice.
        empty.sort(key=lambda card: (card.card.size, card.card.index))
        return [(0, card) for card in empty[: ask.cards]]
    if not cards:
        return Reason.NO_CARDS
    if len(cards) < ask.cards:
        return Reason.TOO_FEW_CARDS
    if sum(card.card.healthy for card in cards) < ask.cards:
        return Reason.CARDS_UNHEALTHY
    return Reason.NO_CARD_IS_EMPTY if ask.cards == 1 else Reason.TOO_FEW_CARDS_ARE_EMPTY


class UnplacedPods:
    """Pods whose card is not known: the most that they could hold of one card. They may be on any card that they fit on.

    A pod that was placed without the scheduler is counted on every card at its worst, so that its card is not oversold before
    the node reports which one it is. The sums that these pods can add up to are computed as bits, once for all cards.
    """

    def __init__(self, asks: Sequence[Ask], most_free: int) -> None:
        self._whole = any(ask.whole for ask in asks)
        amounts = self._amounts = Counter[int]()
        for ask in asks:
            if not ask.whole and 0 < ask.share <= most_free:
                amounts[ask.share] += ask.cards
        self._total = sum(share * count for share, count in amounts.items())
        self._sums: int | None = None
        # Many equal amounts are a few large ones: 13 = 1 + 2 + 4 + 6.
        steps = [share * part for share, count in amounts.items() for part in _parts(min(count, most_free // share))]
        if len(steps) * most_free <= MOST_BITS:
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
