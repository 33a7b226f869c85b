"""Keeps the plan current from the watches that keep the ledger current.

Belongs here: reading an object for both from one event. Never: watching (feed.py), deciding.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from accelshare.extender.promises.plan import Plan
from accelshare.ledger.facts import AgentSeen, NodeSeen, PodSeen
from accelshare.wire.decoding import UnreadableError
from accelshare.wire.nodes import NodeReader
from accelshare.wire.pods import PodReader
from accelshare.wire.scheduling import SchedulingNode, SchedulingPod, pod_decoder, read_node, scheduling_pod


# Objects as the ledger and as the plan see them; None: it does not matter there or, for the plan, cannot be read.
class ShownPod(NamedTuple):
    uid: str
    fact: PodSeen | AgentSeen | None
    rules: SchedulingPod | None


class ShownNode(NamedTuple):
    name: str
    fact: NodeSeen
    rules: SchedulingNode | None


class PlanFeed:
    def __init__(self, plan: Plan, pods: PodReader, nodes: NodeReader, *, on_change: Callable[[], None]) -> None:
        """`on_change` is called after each change that the plan has got."""
        self._plan = plan
        self._pods = pods
        self._nodes = nodes
        self._on_change = on_change

    def read_pod(self, raw: msgspec.Raw) -> ShownPod | None:
        """UnreadableError if the ledger cannot read it."""
        try:
            pod = pod_decoder.decode(raw)
        except UnreadableError:
            fact = self._pods.decode(raw)
            return ShownPod(fact.uid, fact, None) if fact is not None else None
        fact = self._pods.read(pod)
        return ShownPod(pod.metadata.uid, fact, scheduling_pod(pod, fact.needs if isinstance(fact, PodSeen) else ()))

    def read_node(self, raw: msgspec.Raw) -> ShownNode:
        """UnreadableError if the ledger cannot read it."""
        fact = self._nodes.decode(raw)
        try:
            return ShownNode(fact.name, fact, read_node(raw))
        except UnreadableError:
            return ShownNode(fact.name, fact, None)

    def pod_seen(self, pod: SchedulingPod, *, listed: bool) -> None:
        if pod.ended:
            self._plan.pod_gone(pod.uid)
        else:
            self._plan.pod_seen(pod, listed=listed)
        self._on_change()

    def pod_gone(self, uid: str) -> None:
        self._plan.pod_gone(uid)
        self._on_change()

    def node_seen(self, node: SchedulingNode) -> None:
        self._plan.node_seen(node)
        self._on_change()

    def node_gone(self, name: str) -> None:
        self._plan.node_gone(name)
        self._on_change()
