"""The ledger as rows: nodes, their cards, who is on them, and who is on the node without a card.

Belongs here: reading the book out. Every face of accelshare (HTTP, tables, metrics) is made from these rows.
"""

from collections.abc import Iterable

from msgspec import Struct

from accelshare.ledger.audit import oversold
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.node_ledger import CardLedger, NodeLedger


class PodRow(Struct, frozen=True):
    """One pod's part of one card, or of a node while nobody has said which card."""

    namespace: str
    name: str
    uid: str
    created: str
    kind: str
    units: int
    whole: bool
    bound: bool  # False: held by us, the API server has not been heard yet


class CardRow(Struct, frozen=True):
    kind: str
    index: int
    id: str
    size: int
    used: int
    free: int
    healthy: bool
    present: bool
    pods: tuple[PodRow, ...]


class NodeRow(Struct, frozen=True):
    name: str
    address: str
    known: bool  # False: pods are bound here, the node itself is gone
    cards: tuple[CardRow, ...]
    unplaced: tuple[PodRow, ...]
    problems: tuple[str, ...]

    def of(self, kind: str) -> tuple[CardRow, ...]:
        return tuple(card for card in self.cards if card.kind == kind)

    def has(self, kind: str) -> bool:
        """Does the node have a card of this kind, or a pod that asks for one?"""
        return any(card.kind == kind for card in self.cards) or any(pod.kind == kind for pod in self.unplaced)

    def unplaced_of(self, kind: str) -> tuple[PodRow, ...]:
        return tuple(pod for pod in self.unplaced if pod.kind == kind)


def rows(ledger: Ledger, names: Iterable[str] | None = None) -> list[NodeRow]:
    """All nodes by name, or those named; unknown names are left out."""
    books = ledger.nodes() if names is None else (book for name in names if (book := ledger.node(name)) is not None)
    return [_node(ledger, book) for book in books]


def _node(ledger: Ledger, book: NodeLedger) -> NodeRow:
    pods = [pod.seen for uid in book.pods if (pod := ledger.pod(uid)) is not None]
    # A row is a part of one card: of a pod with several whole cards there are several, of slices there is one with the sum.
    unplaced = [
        _pod(ledger, uid, ask.kind, ask.units, whole=ask.whole)
        for uid, asks in book.unplaced.items()
        for ask in asks
        for _ in range(ask.cards if ask.whole else 1)
    ]
    said = [f"pod {pod.namespace}/{pod.name}: {problem}" for pod in pods for problem in pod.problems]
    missing = [
        f"pod {row.namespace}/{row.name} holds card {card.card.index} ({card.card.id}), which the node no longer has"
        for card in book.missing.values()
        for row in _card(ledger, card).pods
    ]
    return NodeRow(
        name=book.name,
        address=book.fact.address if book.fact else "",
        known=book.fact is not None,
        cards=tuple(_card(ledger, card) for card in sorted(book.all_cards(), key=lambda c: (c.card.kind, c.card.index))),
        unplaced=tuple(unplaced),
        problems=(*(book.fact.problems if book.fact else ()), *oversold(book), *said, *missing),
    )


def _card(ledger: Ledger, book: CardLedger) -> CardRow:
    card = book.card
    return CardRow(
        kind=card.kind,
        index=card.index,
        id=card.id,
        size=card.size,
        used=book.used,
        free=book.room,
        healthy=card.healthy,
        present=book.present,
        pods=tuple(_pod(ledger, uid, card.kind, units, whole=uid in book.wholes) for uid, units in book.holders.items()),
    )


def _pod(ledger: Ledger, uid: str, kind: str, units: int, *, whole: bool) -> PodRow:
    pod = ledger.pod(uid)
    assert pod is not None, "a book holds only pods that the ledger knows; check() would say so"
    seen = pod.seen
    return PodRow(seen.namespace, seen.name, uid, seen.created, kind, units, whole, bool(seen.node))
