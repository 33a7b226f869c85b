"""The ledger as rows: nodes, their cards, the pods on each card, and pods of the node whose card is not known.

Belongs here: reading the ledger into rows. The inspect tables and the inspect JSON are made from them.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from accelshare.ledger.audit import oversold
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.node_ledger import CardLedger, NodeLedger
from accelshare.ledger.nouns import LimitNeed
from accelshare.vendors.profile import NOBODY


class PodRow(Struct, frozen=True):
    """One pod's part of one card; or of a node, while its card is not known."""

    namespace: str
    name: str
    uid: str
    created: str
    kind: str
    units: int
    whole: bool
    bound: bool  # False: only held; the Binding is not confirmed yet


class CardRow(Struct, frozen=True):
    kind: str
    index: int
    id: str
    size: int
    used: int
    free: int
    healthy: bool
    present: bool
    enforced_by: str  # the way that enforces shares of the card, or `nobody`; empty: the card is only allocated whole, or gone
    min_units: int  # the smallest slice that can run on the card; 0: any
    pods: tuple[PodRow, ...]


class NodeRow(Struct, frozen=True):
    name: str
    address: str
    known: bool  # False: pods are bound here, but the node object is gone
    cards: tuple[CardRow, ...]
    unplaced: tuple[PodRow, ...]
    problems: tuple[str, ...]

    def of(self, kind: str) -> tuple[CardRow, ...]:
        return tuple(card for card in self.cards if card.kind == kind)

    def has(self, kind: str) -> bool:
        """Whether the node has a card of this kind, or a pod that requests one."""
        return any(card.kind == kind for card in self.cards) or any(pod.kind == kind for pod in self.unplaced)

    def unplaced_of(self, kind: str) -> tuple[PodRow, ...]:
        return tuple(pod for pod in self.unplaced if pod.kind == kind)


def rows(ledger: Ledger, names: Iterable[str] | None = None) -> list[NodeRow]:
    """All nodes by name, or those named; unknown names are left out."""
    node_ledgers = (
        ledger.nodes() if names is None else (node_ledger for name in names if (node_ledger := ledger.node(name)) is not None)
    )
    return [_node(ledger, node_ledger) for node_ledger in node_ledgers]


def _node(ledger: Ledger, node_ledger: NodeLedger) -> NodeRow:
    pods = [pod.seen for uid in node_ledger.pods if (pod := ledger.pod(uid)) is not None]
    # A row is a part of one card: a pod with several whole cards has several rows, a pod with slices has one with the sum.
    unplaced = [
        _pod(ledger, uid, ask.kind, ask.units, whole=ask.whole)
        for uid, asks in node_ledger.unplaced.items()
        for ask in asks
        for _ in range(ask.cards if ask.whole else 1)
    ]
    lines = [f"pod {pod.namespace}/{pod.name}: {problem}" for pod in pods for problem in pod.problems]
    missing = [
        f"pod {row.namespace}/{row.name} holds card {card.card.index} ({card.card.id}), which the node no longer has"
        for card in node_ledger.missing.values()
        for row in _card(ledger, card).pods
    ]
    return NodeRow(
        name=node_ledger.name,
        address=node_ledger.fact.address if node_ledger.fact else "",
        known=node_ledger.fact is not None,
        cards=tuple(_card(ledger, card) for card in sorted(node_ledger.all_cards(), key=lambda c: (c.card.kind, c.card.index))),
        unplaced=tuple(unplaced),
        problems=(
            *(node_ledger.fact.problems if node_ledger.fact else ()),
            *oversold(node_ledger),
            *lines,
            *missing,
            *_without_limit(ledger, node_ledger),
        ),
    )


def who_enforces(card: CardLedger) -> str:
    """The way that enforces shares of this card, or `nobody`; empty if it has no shares."""
    return card.card.way or NOBODY if card.card.size and card.present else ""


def _without_limit(ledger: Ledger, node_ledger: NodeLedger) -> Iterator[str]:
    """Pods that require a limit, by what their owner says now, on cards that have none. They stay: the limit may come back."""
    for pod in (pod for uid in node_ledger.pods if (pod := ledger.pod(uid)) is not None):
        uid, name = pod.seen.uid, f"{pod.seen.namespace}/{pod.seen.name}"
        for kind in (ask.kind for ask in pod.latest.request if ask.limits is LimitNeed.REQUIRED):
            for card in node_ledger.cards.get(kind, ()):
                if uid in card.holders and uid not in card.wholes and not card.card.limited:
                    what = "requires an enforced memory limit, and nobody enforces it"
                    yield f"pod {name} {what} on {kind} card {card.card.index}"


def _card(ledger: Ledger, node_ledger: CardLedger) -> CardRow:
    card = node_ledger.card
    return CardRow(
        kind=card.kind,
        index=card.index,
        id=card.id,
        size=card.size,
        used=node_ledger.used,
        free=node_ledger.free_units,
        healthy=card.healthy,
        present=node_ledger.present,
        enforced_by=who_enforces(node_ledger),
        min_units=card.min_units,
        pods=tuple(
            _pod(ledger, uid, card.kind, units, whole=uid in node_ledger.wholes) for uid, units in node_ledger.holders.items()
        ),
    )


def _pod(ledger: Ledger, uid: str, kind: str, units: int, *, whole: bool) -> PodRow:
    pod = ledger.pod(uid)
    assert pod is not None, "a node has only pods that the ledger knows; check() reports any other"
    seen = pod.seen
    return PodRow(seen.namespace, seen.name, uid, seen.created, kind, units, whole, bool(seen.node))
