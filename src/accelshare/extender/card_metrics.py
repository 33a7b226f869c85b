"""Prometheus metrics of every node, every card, every pod's share of a card, and of the pods that wait for cards.

Belongs here: names, help and labels of these metrics, and writing them without delaying kube-scheduler. Never: counting capacity
(ledger/), the extender's own metrics (metrics.py).

The client library would block the extender for a third of a second for tens of thousands of series. So the text is written here,
a few nodes at a time, with other requests in between. The ledger may change meanwhile: one node is consistent, the page as a
whole is not a snapshot.
"""

import asyncio
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from typing import Final

from accelshare.ledger.ledger import Ledger
from accelshare.ledger.node_ledger import CardLedger, NodeLedger
from accelshare.report.view import who_enforces
from accelshare.terminal import visible
from accelshare.vendors.profile import Profile

NODES_AT_ONCE: Final = 16  # about a third of a millisecond with eight cards each
PODS_AT_ONCE: Final = 2_000  # that are looked at to count the pending ones
# The card label of a pod whose card is unknown.
UNKNOWN_CARD: Final = "unknown"
# The families whose series belong to a node. A card that can only be taken whole counts as one unit.
_OF_NODES: Final = {
    "accelshare_node_ready_agents": "Ready agents of this node; a node with cards needs one",
    "accelshare_node_delivers": "1 while the node delivers cards of this vendor, 0 while pods are refused there",
    "accelshare_card_units": "Size of the card in its node's units; 1 for a card that is only assigned whole",
    "accelshare_card_held_units": "Units of the card that pods hold",
    "accelshare_card_healthy": "1 while the card is healthy, 0 while it is not or its node no longer reports it",
    "accelshare_card_enforcement": "1 while shares of the card are enforced in this way, 0 with the way nobody",
    "accelshare_pod_held_units": "Units of the card that this pod holds",
    "accelshare_pod_held_ratio": "Share of the card that this pod holds, from 0 to 1",
}
_PENDING: Final = "accelshare_pending_pods"
_NOT_LIMITED: Final = "accelshare_enforcement_not_limited"
# Every family in the order of the page; all are gauges.
FAMILIES: Final = {
    **_OF_NODES,
    _PENDING: "Pods that request cards of this vendor and are not bound to a node",
    _NOT_LIMITED: "1 for everything that a container can use beyond its share although this way enforces it",
}


async def page(ledger: Ledger, *, only_whole: Container[str] = (), profiles: Iterable[Profile] = ()) -> list[bytes]:
    """All families, each with its series, in pieces of some kilobytes: joining megabytes would block the loop, too.

    `only_whole`: the vendors whose cards have no shares, so that there is nothing to enforce. `profiles`: whose
    ways of enforcement are described.
    """
    parts: tuple[list[bytes], ...] = tuple([_head(name)] for name in _OF_NODES)
    names = [node.name for node in ledger.nodes()]
    for start in range(0, len(names), NODES_AT_ONCE):
        lines: tuple[list[str], ...] = tuple([] for _ in _OF_NODES)
        for name in names[start : start + NODES_AT_ONCE]:
            node = ledger.node(name)
            if node is not None:
                _write(ledger, node, only_whole, *lines)
        for part, written in zip(parts, lines, strict=True):
            part.append("".join(written).encode())
        await asyncio.sleep(0)
    pending = [_head(_PENDING), await _pending(ledger)]
    not_limited = [_head(_NOT_LIMITED), _not_limited(profiles)]
    return [text for part in (*parts, pending, not_limited) for text in part if text]


def _head(name: str) -> bytes:
    return f"# HELP {name} {FAMILIES[name]}\n# TYPE {name} gauge\n".encode()


async def _pending(ledger: Ledger) -> bytes:
    """Pending pods by namespace and vendor. A pod that requests cards of two vendors waits for both."""
    waiting: Counter[tuple[str, str]] = Counter()
    pods = list(ledger.pods())
    for start in range(0, len(pods), PODS_AT_ONCE):
        for pod in pods[start : start + PODS_AT_ONCE]:
            if pod.place is None:
                kinds = {ask.kind for ask in pod.seen.request}
                if pod.seen.refusal is not None:
                    kinds.add(pod.seen.refusal.kind)
                waiting.update((pod.seen.namespace, kind) for kind in kinds)
        await asyncio.sleep(0)
    return "".join(
        f'{_PENDING}{{namespace="{namespace}",vendor="{kind}"}} {count}\n' for (namespace, kind), count in sorted(waiting.items())
    ).encode()


def _not_limited(profiles: Iterable[Profile]) -> bytes:
    """Of every way in the profiles, whether a card has it now or not: to be joined with accelshare_card_enforcement."""
    return "".join(
        f'{_NOT_LIMITED}{{vendor="{profile.name}",way="{way}",what="{_escaped(what)}"}} 1\n'
        for profile in profiles
        for way in profile.enforcement.ways
        for what in profile.enforcement.not_limited(way)
    ).encode()


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
    ratios: list[str],
) -> None:
    """One node's lines. Names of nodes, pods, vendors and ways are like DNS names, so no label has anything to escape."""
    at = f'{{node="{node.name}"'
    if node.cards:
        agents.append(f"accelshare_node_ready_agents{at}}} {ledger.ready_agents(node.name)}\n")
    for kind in node.cards:
        delivers.append(f'accelshare_node_delivers{at},vendor="{kind}"}} {int(not node.paused(kind))}\n')
    for card in node.all_cards():
        place = f'{at},vendor="{card.card.kind}",card="{_name(card)}"'
        # A card that is only assigned whole is one unit, also if its node reports its memory.
        whole = card.card.kind in only_whole or card.used == 0 == card.card.size
        size = (1 if whole else card.card.size) if card.present else 0
        sizes.append(f"accelshare_card_units{place}}} {size}\n")
        held.append(f"accelshare_card_held_units{place}}} {len(card.holders) if whole else card.used}\n")
        healthy.append(f"accelshare_card_healthy{place}}} {int(card.card.healthy)}\n")
        if not whole and (way := who_enforces(card)):
            enforcement.append(f'accelshare_card_enforcement{place},way="{way}"}} {int(card.card.limited)}\n')
        for uid, units in card.holders.items():
            pod, counted = _pod(ledger, uid), 1 if whole else units
            pods.append(f"accelshare_pod_held_units{place},{pod} {counted}\n")
            if size:  # not of a card that the node no longer reports
                ratios.append(f"accelshare_pod_held_ratio{place},{pod} {counted / size:.6g}\n")
    for kind, uid, units in _unplaced(node):
        place = f'{at},vendor="{kind}",card="{UNKNOWN_CARD}"'
        pods.append(f"accelshare_pod_held_units{place},{_pod(ledger, uid)} {units}\n")


def _name(card: CardLedger) -> str:
    """The index; for a card that the node no longer reports its id, because another card may have its index now."""
    if card.present:
        return str(card.card.index)
    # The id comes from a record that any user could have written.
    return f"missing {_escaped(card.card.id)}"


def _escaped(text: str) -> str:
    return visible(text).replace("\\", "\\\\").replace('"', '\\"')


def _unplaced(node: NodeLedger) -> Iterator[tuple[str, str, int]]:
    """(kind, uid, units) of the pods whose card is unknown; several asks of one kind are one series."""
    for uid, asks in node.unplaced.items():
        for kind in dict.fromkeys(ask.kind for ask in asks):
            yield kind, uid, sum(ask.units or ask.cards for ask in asks if ask.kind == kind)


def _pod(ledger: Ledger, uid: str) -> str:
    pod = ledger.pod(uid)
    assert pod is not None, "a node holds only pods that the ledger knows; check() verifies it"
    return f'namespace="{pod.seen.namespace}",pod="{pod.seen.name}"}}'
