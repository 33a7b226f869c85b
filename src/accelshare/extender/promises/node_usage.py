"""What the pods of each node take of it, bound and promised: amounts, host ports, and how many pods there are.

Belongs here: these sums, and the nodes as kube-scheduler's rules see them. Never: cards (ledger/), rules (rules.py).
"""

from collections.abc import Container
from typing import Final

from accelshare.extender.promises.rules import fits_amounts, fits_one_more, may_be_on, ports_are_free
from accelshare.ledger.facts import Needs
from accelshare.wire.scheduling import HostPort, NodeChoice, SchedulingNode

MOST_CHOICES: Final = 64  # of which the nodes are remembered, a set of names each
CHANGES_REMEMBERED: Final = 4096


class _Usage:
    __slots__ = ("ports", "taken", "uids")

    def __init__(self) -> None:
        self.uids: set[str] = set()
        self.taken: dict[str, int] = {}
        self.ports: dict[str, tuple[HostPort, ...]] = {}  # uid → of the pods that have any


class NodeUsage:
    def __init__(self, *, uncounted: Container[str] = ()) -> None:
        """`uncounted`: resources that the ledger counts by card, and kube-scheduler perhaps not at all."""
        self._uncounted = uncounted
        self._nodes: dict[str, SchedulingNode] = {}
        self._usages: dict[str, _Usage] = {}
        self._pods: dict[str, tuple[str, Needs]] = {}  # uid → node, needs
        self._choices: dict[NodeChoice, tuple[set[str], int]] = {}  # which nodes, and how much of the log they have applied
        self._log: list[str] = []  # nodes that became others, oldest first
        self._log_start = 0

    # Nodes.

    def __len__(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    def node_seen(self, node: SchedulingNode) -> bool:
        """Returns whether another set of pods may be on the node than before."""
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        if before is not None and (before.labels, before.taints, before.unschedulable) == (
            *(node.labels, node.taints, node.unschedulable),
        ):
            return False
        self._changed(node.name)
        return True

    def node_gone(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self._changed(name)

    def nodes_for(self, choice: NodeChoice) -> Container[str]:
        """The nodes that a pod may be on by what they are. It is a cache: read it, do not keep it."""
        nodes, known = self._choices.pop(choice, (None, 0))
        if nodes is None or known < self._log_start:
            nodes = {name for name, node in self._nodes.items() if may_be_on(choice, node)}
        else:
            for name in set(self._log[known - self._log_start :]):
                node = self._nodes.get(name)
                (nodes.add if node is not None and may_be_on(choice, node) else nodes.discard)(name)
        self._choices[choice] = nodes, self._log_start + len(self._log)
        if len(self._choices) > MOST_CHOICES:
            del self._choices[next(iter(self._choices))]
        return nodes

    def may_be_on(self, name: str, choice: NodeChoice) -> bool:
        node = self._nodes.get(name)
        return node is not None and may_be_on(choice, node)

    def _changed(self, name: str) -> None:
        self._log.append(name)
        if len(self._log) > 2 * CHANGES_REMEMBERED:
            del self._log[:CHANGES_REMEMBERED]
            self._log_start += CHANGES_REMEMBERED

    # Pods.

    def add(self, uid: str, node: str, needs: Needs, ports: tuple[HostPort, ...] = ()) -> None:
        """Count a pod on this node, and on no other from now on."""
        if self._pods.get(uid) == (node, needs):
            return
        self.remove(uid)
        self._pods[uid] = node, needs
        usage = self._usages.get(node)
        if usage is None:
            usage = self._usages[node] = _Usage()
        usage.uids.add(uid)
        taken = usage.taken
        for name, amount in needs:
            if amount:
                taken[name] = taken.get(name, 0) + amount
        if ports:
            usage.ports[uid] = ports

    def remove(self, uid: str) -> None:
        node, needs = self._pods.pop(uid, ("", ()))
        if not node:
            return
        usage = self._usages[node]
        usage.uids.discard(uid)
        usage.ports.pop(uid, None)
        for name, amount in needs:
            if not amount:
                continue
            usage.taken[name] -= amount
            if not usage.taken[name]:
                del usage.taken[name]
        if not usage.uids:
            del self._usages[node]

    def fits(self, name: str, needs: Needs, ports: tuple[HostPort, ...] = (), *, uid: str = "") -> bool:
        """Whether the node has enough left for one more pod. A pod that is counted there already fits beside the others."""
        node, usage = self._nodes.get(name), self._usages.get(name)
        if node is None:
            return False
        if usage is None:
            return fits_amounts(needs, {}, node.allocatable, uncounted=self._uncounted) and fits_one_more(0, node.allocatable)
        counted = uid in usage.uids
        taken = {name: usage.taken.get(name, 0) - amount for name, amount in needs} if counted else usage.taken
        others = (port for other, all_ in usage.ports.items() if other != uid for port in all_)
        return (
            fits_amounts(needs, taken, node.allocatable, uncounted=self._uncounted)
            and fits_one_more(len(usage.uids) - counted, node.allocatable)
            and (not ports or ports_are_free(ports, others))
        )
