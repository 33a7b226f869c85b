"""Where a request can go on one node, and in which order.

Belongs here: choosing cards for one request on one node. Never: other nodes, the clock, Kubernetes.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from accelshare.ledger.node_ledger import CardLedger, NodeLedger
from accelshare.ledger.nouns import Ask, Assignment, Request, Slice
from accelshare.ledger.refusals import Reason, Refusal

# (room on the card, share asked) → key; the card's index is appended by the caller.
CardOrder: TypeAlias = Callable[[int, int], int]
# (what stays free on the chosen cards, cards of the node that nobody has touched) → key; the node's name is appended.
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
        Policy("binpack", card=lambda room, share: room - share, node=lambda left, untouched: (left, untouched)),
        # The emptiest card; among equals the node with more cards untouched.
        Policy("spread", card=lambda room, share: share - room, node=lambda left, untouched: (-left, -untouched)),
    )
}
DEFAULT: Final = POLICIES["binpack"]


MOST_BITS: Final = 1 << 24  # looked at for the sums of one node, some milliseconds; above it the worst case is estimated


@dataclass(frozen=True, slots=True)
class Fit:
    """The cards this node would give, and how much its policy likes that: the smallest rank wins."""

    assignment: Assignment
    rank: tuple[int, int]


def fit(node: NodeLedger, request: Request, policy: Policy) -> Fit | Refusal:
    """The cards this node would give to the request, or the reason why it gives none."""
    slices: list[Slice] = []
    left = 0
    # Whole cards first: they have the least choice, and a slice of the same pod must not sit on them.
    for ask in sorted(request, key=lambda ask: not ask.whole) if len(request) > 1 else request:
        if node.paused(ask.kind):
            return Refusal(Reason.DELIVERY_PAUSED, ask.kind)
        taken = [slice_.index for slice_ in slices if slice_.kind == ask.kind]
        cards = [card for card in node.cards.get(ask.kind, ()) if card.card.index not in taken]
        chosen = _whole(node, cards, ask) if ask.whole else _shared(node, cards, ask, policy)
        if isinstance(chosen, Reason):
            return Refusal(chosen, ask.kind)
        for room, book in chosen:
            left += 0 if ask.whole else room - ask.share
            slices.append(Slice(ask.kind, book.card.index, ask.share, ask.whole, book.card.id))
    return Fit(Assignment(node.name, tuple(slices)), policy.node(left, node.untouched()))


def _shared(node: NodeLedger, cards: Sequence[CardLedger], ask: Ask, policy: Policy) -> list[tuple[int, CardLedger]] | Reason:
    unplaced = node.could_hide(ask.kind) if node.unplaced else ()
    hidden = Hidden(unplaced, max((book.room for book in cards), default=0)) if unplaced else None
    fitting = []
    for book in cards:
        room = book.room
        if hidden and room:
            room -= hidden.at_worst(book)
        if room >= ask.share:
            fitting.append((policy.card(room, ask.share), book.card.index, room, book))
    if len(fitting) >= ask.cards:
        fitting.sort(key=lambda entry: entry[:2])
        return [(room, book) for _, _, room, book in fitting[: ask.cards]]
    if not node.cards.get(ask.kind):
        return Reason.NO_CARDS
    if len(cards) < ask.cards:
        return Reason.TOO_FEW_CARDS  # also where the same pod has taken the others whole
    large_enough = [book for book in cards if book.card.size >= ask.share]
    if len(large_enough) < ask.cards:
        return Reason.LARGER_THAN_ANY_CARD
    if sum(book.card.healthy for book in large_enough) < ask.cards:
        return Reason.CARDS_UNHEALTHY
    return Reason.NO_CARD_HAS_ROOM if ask.cards == 1 else Reason.TOO_FEW_CARDS_HAVE_ROOM


def _whole(node: NodeLedger, cards: Sequence[CardLedger], ask: Ask) -> list[tuple[int, CardLedger]] | Reason:
    hidden = bool(node.unplaced) and bool(node.could_hide(ask.kind))
    empty = [] if hidden else [book for book in cards if book.empty and book.card.healthy]
    if len(empty) >= ask.cards:
        # The smallest cards that do: a large one may be the only place for somebody's large slice.
        empty.sort(key=lambda book: (book.card.size, book.card.index))
        return [(0, book) for book in empty[: ask.cards]]
    if not cards:
        return Reason.NO_CARDS
    if len(cards) < ask.cards:
        return Reason.TOO_FEW_CARDS
    if sum(book.card.healthy for book in cards) < ask.cards:
        return Reason.CARDS_UNHEALTHY
    return Reason.NO_CARD_IS_EMPTY if ask.cards == 1 else Reason.TOO_FEW_CARDS_ARE_EMPTY


class Hidden:
    """Pods of unknown place: the most that they could hold of a card's room. They may sit on any card that could have taken them.

    A pod that landed past the scheduler is counted where it hurts most, so that its card cannot be oversold before the node
    says which one it is. Sums that these pods can really make are found with a bit per sum, once for all cards.
    """

    def __init__(self, asks: Sequence[Ask], largest_room: int) -> None:
        self._whole = any(ask.whole for ask in asks)
        amounts = self._amounts = Counter[int]()
        for ask in asks:
            if not ask.whole and 0 < ask.share <= largest_room:
                amounts[ask.share] += ask.cards
        self._total = sum(share * count for share, count in amounts.items())
        self._sums: int | None = None
        # Many equal amounts are a few large ones: 13 = 1 + 2 + 4 + 6.
        steps = [share * part for share, count in amounts.items() for part in _parts(min(count, largest_room // share))]
        if len(steps) * largest_room <= MOST_BITS:
            sums, mask = 1, (1 << (largest_room + 1)) - 1
            for step in steps:
                sums |= (sums << step) & mask
            self._sums = sums

    def at_worst(self, book: CardLedger) -> int:
        room = book.room
        if self._whole and book.empty:
            return room
        if self._total <= room:
            return self._total
        if self._sums is None:  # from the safe side
            return min(room, sum(share * count for share, count in self._amounts.items() if share <= room))
        return (self._sums & ((1 << (room + 1)) - 1)).bit_length() - 1


def _parts(count: int) -> Iterator[int]:
    """Numbers of which some add up to each number up to this one, and none to more."""
    part = 1
    while count > 0:
        yield min(part, count)
        count -= part
        part *= 2
