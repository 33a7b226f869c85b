"""The ledger of one node: its cards, the pods on each, and the pods whose card is not known.

Belongs here: sums of one node. Never: other nodes, which pod goes where (placing.py), applying facts (ledger.py).
"""

from collections.abc import Collection, Iterable

from accelshare.ledger.facts import NodeSeen
from accelshare.ledger.nouns import Ask, Card, Request, Slice


class CardLedger:
    """One card and the pods on it. A card that is not `present` is kept only for the pods whose record names it."""

    __slots__ = ("card", "holders", "present", "used", "wholes")

    def __init__(self, card: Card, *, present: bool = True) -> None:
        self.card = card
        self.present = present
        self.holders: dict[str, int] = {}  # uid → units; a pod that holds the card whole is also in `wholes`
        self.wholes: frozenset[str] = frozenset()  # nearly always this one shared empty set
        self.used = 0

    def add_slice(self, uid: str, slice_: Slice) -> None:
        units = self.card.size if slice_.whole else slice_.units
        self.holders[uid] = self.holders.get(uid, 0) + units
        self.used += units
        if slice_.whole:
            self.wholes |= {uid}

    def remove_pod(self, uid: str) -> None:
        self.used -= self.holders.pop(uid)
        self.wholes -= {uid}

    @property
    def empty(self) -> bool:
        return not self.holders

    @property
    def free_units(self) -> int:
        """How many units a new slice may have. Never negative, even if the facts add up to more than the card has."""
        if not self.card.healthy or not self.present or self.wholes:
            return 0
        return max(0, self.card.size - self.used)


class NodeLedger:
    """One node's cards by kind, in the order of their index, and the pods bound here."""

    __slots__ = ("away", "cards", "fact", "missing", "name", "pods", "rejecting", "unplaced")

    def __init__(self, name: str) -> None:
        self.name = name
        self.away = False  # the agent that delivers the cards is not ready
        self.rejecting = False  # kubelet has rejected a pod, and the agent has not restarted since
        self.fact: NodeSeen | None = None
        self.cards: dict[str, list[CardLedger]] = {}
        self.missing: dict[tuple[str, str], CardLedger] = {}  # (kind, id) of cards that the node no longer has
        self.unplaced: dict[str, Request] = {}  # uid → the asks whose card is not known
        self.pods: dict[str, None] = {}  # uids that hold something here, in order of arrival

    def reset(self, fact: NodeSeen | None) -> None:
        """Start again with these cards and no pods."""
        self.fact = fact
        self.cards = {}
        self.missing = {}
        self.unplaced = {}
        self.pods = {}
        for card in sorted(fact.cards, key=lambda card: card.index) if fact else ():
            self.cards.setdefault(card.kind, []).append(CardLedger(card))

    def add_pod(self, uid: str, request: Request, slices: Iterable[Slice]) -> None:
        """Add a pod. A slice whose card is not known makes its ask unplaced, unless the node has lost that card."""
        self.pods[uid] = None
        placed: list[tuple[CardLedger, Slice]] = []
        lost: set[tuple[str, bool]] = set()
        named: set[tuple[str, bool]] = set()  # of one kind a pod may request slices and whole cards
        for slice_ in slices:
            named.add((slice_.kind, slice_.whole))
            card = self._find(slice_)
            if card is None:
                lost.add((slice_.kind, slice_.whole))
            else:
                placed.append((card, slice_))
        for card, slice_ in placed:
            if (slice_.kind, slice_.whole) not in lost:
                card.add_slice(uid, slice_)
        unplaced = tuple(ask for ask in request if (ask.kind, ask.whole) in lost or (ask.kind, ask.whole) not in named)
        if unplaced:
            self.unplaced[uid] = unplaced
        if lost:
            self._drop_empty_missing_cards()

    def remove_pod(self, uid: str) -> None:
        """Remove a pod from every card."""
        if self.pods.pop(uid, self) is self:
            return
        self.unplaced.pop(uid, None)
        for card in self.all_cards():
            if uid in card.holders:
                card.remove_pod(uid)
        self._drop_empty_missing_cards()

    def _drop_empty_missing_cards(self) -> None:
        """Drop the cards that the node no longer has and no pod holds."""
        for key in [key for key, card in self.missing.items() if card.empty]:
            del self.missing[key]

    def without(self, uids: Collection[str]) -> "NodeLedger":
        """This node as it would be if these pods had ended."""
        other = self.without_pods()
        other.pods = {uid: None for uid in self.pods if uid not in uids}
        other.unplaced = {uid: asks for uid, asks in self.unplaced.items() if uid not in uids}
        for kind, cards in self.cards.items():
            for mine, theirs in zip(cards, other.cards[kind], strict=True):
                theirs.holders = {uid: units for uid, units in mine.holders.items() if uid not in uids}
                theirs.wholes = mine.wholes.difference(uids)
                theirs.used = sum(theirs.holders.values())
        return other

    def without_pods(self) -> "NodeLedger":
        """This node as it would be if all its pods had ended."""
        other = NodeLedger(self.name)
        other.away = self.away
        other.rejecting = self.rejecting
        other.reset(self.fact)
        return other

    def paused(self, kind: str) -> bool:
        """Is the delivery of this kind of card paused, so that a pod bound here now would not get its card?"""
        return self.away or self.rejecting or (self.fact is not None and kind in self.fact.paused)

    def all_cards(self) -> Iterable[CardLedger]:
        for cards in self.cards.values():
            yield from cards
        yield from self.missing.values()

    def untouched(self) -> int:
        """How many cards have no pod."""
        return sum(1 for cards in self.cards.values() for card in cards if not card.holders)

    def unplaced_asks(self, kind: str) -> list[Ask]:
        """The asks of this kind that are on an unknown card of this node."""
        return [ask for asks in self.unplaced.values() for ask in asks if ask.kind == kind]

    def _find(self, slice_: Slice) -> CardLedger | None:
        cards = self.cards.get(slice_.kind, ())
        if slice_.id:
            for card in cards:
                if card.card.id == slice_.id:
                    return card
        for card in cards:
            if card.card.index == slice_.index and (not slice_.id or not card.card.id):
                return card
        # A node has lost a card if an index below its highest is missing. A node that has all of them has lost none.
        indexes = {card.card.index for card in cards}
        if not slice_.id or slice_.index in indexes or slice_.index > max(indexes, default=-1):
            return None
        # The node no longer has this hardware: its pods stay counted on it, and it takes no new ones.
        gone = Card(slice_.kind, slice_.index, size=0, healthy=False, id=slice_.id)
        return self.missing.setdefault((slice_.kind, slice_.id), CardLedger(gone, present=False))
