"""The book of one node: its cards, who is on them, and who is on the node without saying where.

Belongs here: sums about one node. Never: other nodes, which pod goes where (placing.py), what the facts were (book.py).
"""

from collections.abc import Collection, Iterable

from accelshare.ledger.facts import NodeSeen
from accelshare.ledger.nouns import Ask, Card, Request, Slice


class CardLedger:
    """One card and the pods on it. A card that is not `present` is kept only for the pods that still say they hold it."""

    __slots__ = ("card", "holders", "present", "used", "wholes")

    def __init__(self, card: Card, *, present: bool = True) -> None:
        self.card = card
        self.present = present
        self.holders: dict[str, int] = {}  # uid → units; a pod that holds the card whole is also in `wholes`
        self.wholes: frozenset[str] = frozenset()  # nearly always this one shared empty set
        self.used = 0

    def give(self, uid: str, slice_: Slice) -> None:
        units = self.card.size if slice_.whole else slice_.units
        self.holders[uid] = self.holders.get(uid, 0) + units
        self.used += units
        if slice_.whole:
            self.wholes |= {uid}

    def take_back(self, uid: str) -> None:
        self.used -= self.holders.pop(uid)
        self.wholes -= {uid}

    @property
    def empty(self) -> bool:
        return not self.holders

    @property
    def room(self) -> int:
        """How many units a new slice may have. Never negative, also when the facts say more is held than there is."""
        if not self.card.healthy or not self.present or self.wholes:
            return 0
        return max(0, self.card.size - self.used)


class NodeLedger:
    """One node's cards by kind, in the order of their index, and the pods bound here."""

    __slots__ = ("away", "cards", "fact", "missing", "name", "pods", "rejecting", "unplaced")

    def __init__(self, name: str) -> None:
        self.name = name
        self.away = False  # the agent that hands out the cards is not there
        self.rejecting = False  # kubelet has rejected a pod, and the agent has not restarted since
        self.fact: NodeSeen | None = None
        self.cards: dict[str, list[CardLedger]] = {}
        self.missing: dict[tuple[str, str], CardLedger] = {}  # (kind, id) of cards that the node no longer has
        self.unplaced: dict[str, Request] = {}  # uid → the asks of which nobody has said which card serves them
        self.pods: dict[str, None] = {}  # uids that hold something here, in order of arrival

    def lay_out(self, fact: NodeSeen | None) -> None:
        """Start anew with these cards and nobody on them."""
        self.fact = fact
        self.cards = {}
        self.missing = {}
        self.unplaced = {}
        self.pods = {}
        for card in sorted(fact.cards, key=lambda card: card.index) if fact else ():
            self.cards.setdefault(card.kind, []).append(CardLedger(card))

    def book(self, uid: str, request: Request, slices: Iterable[Slice]) -> None:
        """Enter a pod. A slice whose card nobody knows makes its ask unplaced, unless the node has lost that card."""
        self.pods[uid] = None
        found: list[tuple[CardLedger, Slice]] = []
        lost: set[tuple[str, bool]] = set()
        named: set[tuple[str, bool]] = set()  # of one kind a pod may ask for slices and for whole cards
        for slice_ in slices:
            named.add((slice_.kind, slice_.whole))
            card = self._find(slice_)
            if card is None:
                lost.add((slice_.kind, slice_.whole))
            else:
                found.append((card, slice_))
        for card, slice_ in found:
            if (slice_.kind, slice_.whole) not in lost:
                card.give(uid, slice_)
        nowhere = tuple(ask for ask in request if (ask.kind, ask.whole) in lost or (ask.kind, ask.whole) not in named)
        if nowhere:
            self.unplaced[uid] = nowhere
        if lost:
            self._forget_the_missing()

    def strike(self, uid: str) -> None:
        """Take a pod out, wherever it is."""
        if self.pods.pop(uid, self) is self:
            return
        self.unplaced.pop(uid, None)
        for card in self.all_cards():
            if uid in card.holders:
                card.take_back(uid)
        self._forget_the_missing()

    def _forget_the_missing(self) -> None:
        """Of cards that the node no longer has, those that nobody holds."""
        for key in [key for key, card in self.missing.items() if card.empty]:
            del self.missing[key]

    def without(self, uids: Collection[str]) -> "NodeLedger":
        """This node as it would be if these pods had ended."""
        other = NodeLedger(self.name)
        other.away = self.away
        other.rejecting = self.rejecting
        other.lay_out(self.fact)
        other.pods = {uid: None for uid in self.pods if uid not in uids}
        other.unplaced = {uid: asks for uid, asks in self.unplaced.items() if uid not in uids}
        for kind, cards in self.cards.items():
            for mine, theirs in zip(cards, other.cards[kind], strict=True):
                theirs.holders = {uid: units for uid, units in mine.holders.items() if uid not in uids}
                theirs.wholes = mine.wholes.difference(uids)
                theirs.used = sum(theirs.holders.values())
        return other

    def paused(self, kind: str) -> bool:
        """Would a pod that is bound here now wait in vain for its card?"""
        return self.away or self.rejecting or (self.fact is not None and kind in self.fact.paused)

    def all_cards(self) -> Iterable[CardLedger]:
        for cards in self.cards.values():
            yield from cards
        yield from self.missing.values()

    def untouched(self) -> int:
        """How many cards have nobody on them."""
        return sum(1 for cards in self.cards.values() for card in cards if not card.holders)

    def could_hide(self, kind: str) -> list[Ask]:
        """The asks of this kind that sit on some card of this node, nobody has said which."""
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
        # A node has lost a card if an index below its highest is not there. One that shows all of them has nobody on a lost card.
        indexes = {card.card.index for card in cards}
        if not slice_.id or slice_.index in indexes or slice_.index > max(indexes, default=-1):
            return None
        # Named hardware that the node no longer shows: its pods keep their book, and it takes nothing new.
        gone = Card(slice_.kind, slice_.index, size=0, healthy=False, id=slice_.id)
        return self.missing.setdefault((slice_.kind, slice_.id), CardLedger(gone, present=False))
