"""Prometheus metrics of every node, every card and every pod's share of a card.

Belongs here: names, help and labels of these metrics, and writing them without delaying kube-scheduler. Never: counting capacity
(ledger/), the extender's own metrics (metrics.py).

The client library would block the extender for a third of a second for tens of thousands of series. So the text is written here,
a few nodes at a time, with other requests in between. The ledger may change meanwhile: one node is consistent, the page as a
whole is not a snapshot.
"""

import asyncio
from collections.abc import Container, Iterator
from typing import Final

from accelshare.ledger.ledger import Ledger
from accelshare.ledger.node_ledger import CardLedger, NodeLedger
from accelshare.report.view import who_enforces
from accelshare.terminal import visible

NODES_AT_ONCE: Final = 16  # about a third of a millisecond with eight cards each
# The card label of a pod whose card is unknown.
UNKNOWN_CARD: Final = "unknown"
# Every family in the order of the page; all are gauges. A card that can only be taken whole counts as one unit.
FAMILIES: Final = {
    "accelshare_node_ready_agents": "Ready agents of this node; a node with cards needs one",
    "accelshare_node_delivers": "1 while the node delivers cards of this vendor, 0 while pods are refused there",
    "accelshare_card_units": "Size of the card in its node's units; 1 for a card that is only assigned whole",
    "accelshare_card_held_units": "Units of the card that pods hold",
    "accelshare_card_healthy": "1 while the card is healthy, 0 while it is not or its node no longer reports it",
    "accelshare_card_enforcement": "1 while shares of the card are enforced in this way, 0 with the way nobody",
    "accelshare_pod_held_units": "Units of the card that this pod holds",
}


async def page(ledger: Ledger, *, only_whole: Container[str] = ()) -> list[bytes]:
    """All families, each with its series, in pieces of some kilobytes: joining megabytes would block the loop, too.

    `only_whole`: the vendors whose cards have no shares, so that there is nothing to enforce.
    """
    parts: tuple[list[bytes], ...] = tuple(
        [f"# HELP {name} {text}\n# TYPE {name} gauge\n".encode()] for name, text in FAMILIES.items()
    )
    names = [node.name for node in ledger.nodes()]
    for start in range(0, len(names), NODES_AT_ONCE):
        lines: tuple[list[str], ...] = tuple([] for _ in FAMILIES)
        for name in names[start : start + NODES_AT_ONCE]:
            node = ledger.node(name)
            if node is not None:
                _write(ledger, node, only_whole, *lines)
        for part, written in zip(parts, lines, strict=True):
            part.append("".join(written).encode())
        await asyncio.sleep(0)
    return [text for part in parts for text in part if text]


def _write(
    ledger: Ledger,
    node: NodeLedger,
    only_whole: Container[str],
    agents: list[str],
    delivers: list[str],
    sizes: list[str],
    held: list[str],
    healthy: list[str],
    enforcement: list[str],
    pods: list[str],
) -> None:
    """One node's lines. Names of nodes, pods, vendors and ways are like DNS names, so no label has anything to escape."""
    at = f'{{node="{node.name}"'
    if node.cards:
        agents.append(f"accelshare_node_ready_agents{at}}} {ledger.ready_agents(node.name)}\n")
    for kind in node.cards:
        delivers.append(f'accelshare_node_delivers{at},vendor="{kind}"}} {int(not node.paused(kind))}\n')
    for card in node.all_cards():
        place = f'{at},vendor="{card.card.kind}",card="{_name(card)}"'
        sizes.append(f"accelshare_card_units{place}}} {_size(card)}\n")
        held.append(f"accelshare_card_held_units{place}}} {_held(card)}\n")
        healthy.append(f"accelshare_card_healthy{place}}} {int(card.card.healthy)}\n")
        if card.card.kind not in only_whole and (way := who_enforces(card)):
            enforcement.append(f'accelshare_card_enforcement{place},way="{way}"}} {int(card.card.limited)}\n')
        for uid, units in card.holders.items():
            pods.append(f"accelshare_pod_held_units{place},{_pod(ledger, uid)} {units or 1}\n")
    for kind, uid, units in _unplaced(node):
        place = f'{at},vendor="{kind}",card="{UNKNOWN_CARD}"'
        pods.append(f"accelshare_pod_held_units{place},{_pod(ledger, uid)} {units}\n")


def _name(card: CardLedger) -> str:
    """The index; for a card that the node no longer reports its id, because another card may have its index now."""
    if card.present:
        return str(card.card.index)
    # The id comes from a record that any user could have written.
    id_ = visible(card.card.id).replace("\\", "\\\\").replace('"', '\\"')
    return f"missing {id_}"


def _size(card: CardLedger) -> int:
    if not card.present:
        return 0
    return card.card.size or 1


def _held(card: CardLedger) -> int:
    return card.used or len(card.holders)


def _unplaced(node: NodeLedger) -> Iterator[tuple[str, str, int]]:
    """(kind, uid, units) of the pods whose card is unknown; several asks of one kind are one series."""
    for uid, asks in node.unplaced.items():
        for kind in dict.fromkeys(ask.kind for ask in asks):
            yield kind, uid, sum(ask.units or ask.cards for ask in asks if ask.kind == kind)


def _pod(ledger: Ledger, uid: str) -> str:
    pod = ledger.pod(uid)
    assert pod is not None, "a node holds only pods that the ledger knows; check() verifies it"
    return f'namespace="{pod.seen.namespace}",pod="{pod.seen.name}"}}'
