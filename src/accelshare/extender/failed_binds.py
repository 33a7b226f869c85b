"""Counts the failed binds of each node, so that a node on which binds fail is offered last.

Belongs here: counting them. Never: why a bind failed (binder.py).
"""

from typing import Final

from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Card

FAILED_BINDS: Final = 2  # of different pods: one pod's bind may fail for a reason of its own


class FailedBinds:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._failing: dict[str, tuple[set[str], tuple[Card, ...]]] = {}  # node → pods not bound there in a row, its cards then

    def bind_ended(self, node: str, uid: str, *, bound: bool) -> None:
        """Count failed binds of this node. The failed bind of a pod that is gone proves nothing about the node."""
        node_ledger = self._ledger.node(node)
        if bound or node_ledger is None or node_ledger.fact is None:
            self._failing.pop(node, None)
        elif self._ledger.pod(uid) is not None:
            uids, cards = self._failing.get(node, (set(), node_ledger.fact.cards))
            self._failing[node] = (
                ({uid}, node_ledger.fact.cards) if cards != node_ledger.fact.cards else ({*list(uids)[:FAILED_BINDS], uid}, cards)
            )

    def nodes(self) -> set[str]:
        """Nodes on which binds of several pods failed in a row, until one succeeds or the node's cards change."""
        failing: set[str] = set()
        for node, (uids, cards) in list(self._failing.items()):
            node_ledger = self._ledger.node(node)
            if node_ledger is None or node_ledger.fact is None or node_ledger.fact.cards != cards:
                del self._failing[node]
            elif len(uids) >= FAILED_BINDS:
                failing.add(node)
        return failing
