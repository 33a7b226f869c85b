"""The ledger of one node: its cards, the pods on each, and the pods whose card is not known.

Belongs here: sums of one node. Never: other nodes, which pod goes where (placing.py), applying facts (ledger.py).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from accelshare.ledger.facts import NodeSeen
from accelshare.ledger.missing_cards import lost_cards, names_lost_card
from accelshare.ledger.nouns import Ask, Card, Request, Slice

# One empty set for nearly all cards: frozenset() makes a new one each time, of 232 bytes.
_NO_PODS: Final[frozenset[str]] = frozenset()


class CardLedger:
    """One card and the pods on it. A card that is not `present` is kept only for the pods whose record names it."""

    __slots__ = ("card", "holders", "present", "used", "wholes")

    def __init__(self, card: Card, *, present: bool = True) -> None:
        self.card = card
        self.present = present
        self.holders: dict[str, int] = {}  # uid → units; a pod that holds the card whole is also in `wholes`
        self.wholes = _NO_PODS
        self.used = 0

    def add_slice(self, uid: str, slice_: Slice) -> None:
        units = self.card.size if slice_.whole else slice_.units
        self.holders[uid] = self.holders.get(uid, 0) + units
        self.used += units
        if slice_.whole:
            self.wholes |= {uid}

    def remove_pod(self, uid: str) -> None:
        self.used -= self.holders.pop(uid)
        if self.wholes:
            self.wholes = self.wholes - {uid} or _NO_PODS

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

    __slots__ = ("away", "cards", "claims", "fact", "missing", "name", "pods", "rejecting", "unplaced")

    def __init__(self, name: str) -> None:
        self.name = name
        self.away = False  # the agent that delivers the cards is not ready
        self.rejecting = False  # kubelet has rejected a pod, and the agent has not restarted since
        self.fact: NodeSeen | None = None
        self.cards: dict[str, list[CardLedger]] = {}
        self.missing: dict[tuple[str, str], CardLedger] = {}  # (kind, id) of cards that the node no longer has
        self.claims: dict[str, tuple[Request, tuple[Slice, ...]]] = {}  # uid → of the pods whose record names a lost card
        self.unplaced: dict[str, Request] = {}  # uid → the asks whose card is not known
        self.pods: dict[str, None] = {}  # uids that hold something here, in order of arrival

    def reset(self, fact: NodeSeen | None) -> None:
        """Start again with these cards and no pods."""
        self.fact = fact
        self.cards = {}
        self.missing = {}
        self.claims = {}
        self.unplaced = {}
        self.pods = {}
        for card in sorted(fact.cards, key=lambda card: card.index) if fact else ():
            self.cards.setdefault(card.kind, []).append(CardLedger(card))

    def add_pod(self, uid: str, request: Request, slices: tuple[Slice, ...]) -> None:
        """Add a pod. A slice whose card is not known makes its ask unplaced, unless the node has lost that card."""
        if self._add_pod(uid, request, slices):
            self._count_claims()

    def add_pods(self, pods: Iterable[tuple[str, Request, tuple[Slice, ...]]]) -> None:
        """Add several pods, which costs less than one by one if their records name lost cards."""
        claims = [self._add_pod(uid, request, slices) for uid, request, slices in pods]
        if any(claims):
            self._count_claims()

    def _add_pod(self, uid: str, request: Request, slices: tuple[Slice, ...]) -> bool:
        """Whether the pod's record names a lost card: then all such pods are to be counted again."""
        self.pods[uid] = None
        found = [self._find(slice_) for slice_ in slices]
        if None in found and any(self._is_claim(slice_, card) for slice_, card in zip(slices, found, strict=True)):
            self.claims[uid] = request, slices
            return True
        self._count(uid, request, slices, found)
        return False

    def remove_pod(self, uid: str) -> None:
        """Remove a pod from every card."""
        if self.pods.pop(uid, self) is self:
            return
        self._uncount(uid)
        if self.claims.pop(uid, None):
            self._count_claims()

    def _count(self, uid: str, request: Request, slices: tuple[Slice, ...], found: Sequence[CardLedger | None]) -> None:
        """Count a pod on its cards; an ask that has a slice without a card, or no slice, is unplaced."""
        if len(request) == len(slices) == 1 and found[0] is not None:
            # Nearly every pod, and faster than the general case below.
            slice_, ask = slices[0], request[0]
            found[0].add_slice(uid, slice_)
            if (ask.kind, ask.whole) != (slice_.kind, slice_.whole):
                self.unplaced[uid] = request
            return
        named = {(slice_.kind, slice_.whole) for slice_ in slices}  # of one kind a pod may request slices and whole cards
        if None in found:
            named -= {(slice_.kind, slice_.whole) for slice_, card in zip(slices, found, strict=True) if card is None}
        for slice_, card in zip(slices, found, strict=True):
            if card is not None and (slice_.kind, slice_.whole) in named:
                card.add_slice(uid, slice_)
        unplaced = tuple(ask for ask in request if (ask.kind, ask.whole) not in named)
        if unplaced:
            self.unplaced[uid] = unplaced

    def _uncount(self, uid: str) -> None:
        self.unplaced.pop(uid, None)
        for card in self.all_cards():
            if uid in card.holders:
                card.remove_pod(uid)

    def _count_claims(self) -> None:
        """Count all pods again whose record names a lost card: one more or less may change what is believed of the others."""
        for uid in self.claims:
            self._uncount(uid)
        claimed = [
            slice_ for _, slices in self.claims.values() for slice_ in slices if self._is_claim(slice_, self._find(slice_))
        ]
        cards = {kind: [card.card for card in self.cards[kind]] for kind in {slice_.kind for slice_ in claimed}}
        self.missing = {(card.kind, card.id): CardLedger(card, present=False) for card in lost_cards(cards, claimed)}
        for uid, (request, slices) in self.claims.items():
            self._count(uid, request, slices, [self._find(slice_) or self._find_missing(slice_) for slice_ in slices])
        self.missing = {key: card for key, card in self.missing.items() if card.holders}

    def without(self, uids: Collection[str]) -> "NodeLedger":
        """This node as it would be if these pods had ended."""
        other = self.without_pods()
        other.pods = {uid: None for uid in self.pods if uid not in uids}
        other.unplaced = {uid: asks for uid, asks in self.unplaced.items() if uid not in uids}
        other.claims = {uid: claim for uid, claim in self.claims.items() if uid not in uids}
        for kind, cards in self.cards.items():
            for mine, theirs in zip(cards, other.cards[kind], strict=True):
                theirs.holders = {uid: units for uid, units in mine.holders.items() if uid not in uids}
                theirs.wholes = mine.wholes.difference(uids) or _NO_PODS
                theirs.used = sum(theirs.holders.values())
        if self.claims:
            other._count_claims()
        return other

    def only(self, slices: Iterable[Slice]) -> "NodeLedger":
        """This node as if it had only the cards of these slices. The view shares the cards: read it, and only at once."""
        other = NodeLedger(self.name)
        other.away, other.rejecting, other.fact, other.unplaced = self.away, self.rejecting, self.fact, self.unplaced
        wanted = {(slice_.kind, slice_.index, slice_.id) for slice_ in slices}
        for kind in {kind for kind, _, _ in wanted}:
            cards = [card for card in self.cards.get(kind, ()) if (kind, card.card.index, card.card.id) in wanted]
            if cards:
                other.cards[kind] = cards
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

    def _is_claim(self, slice_: Slice, found: CardLedger | None) -> bool:
        return found is None and names_lost_card([card.card for card in self.cards.get(slice_.kind, ())], slice_)

    def _find(self, slice_: Slice) -> CardLedger | None:
        cards = self.cards.get(slice_.kind, ())
        if slice_.id:
            for card in cards:
                if card.card.id == slice_.id:
                    return card
        for card in cards:
            if card.card.index == slice_.index and (not slice_.id or not card.card.id):
                return card
        return None

    def _find_missing(self, slice_: Slice) -> CardLedger | None:
        """The card that the node no longer has: its pods stay counted on it, and it takes no new ones."""
        card = self.missing.get((slice_.kind, slice_.id))
        return card if card is not None and card.card.index == slice_.index else None
