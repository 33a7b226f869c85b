"""The cluster as an explanation sees it: the ledger, the inventories, and what else keeps pods from nodes.

Belongs here: these values, and kube-scheduler's own constraints: taints, CPU, memory, the number of pods. Never: reading objects.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from accelshare.ledger.facts import Needs
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.node_ledger import CardLedger
from accelshare.report.units import NO_INVENTORIES, Inventories, unit_label, unit_name
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.profile import Profile

CORDONED: Final = "node.kubernetes.io/unschedulable"
KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
GIB: Final = 2**30
# Amounts are in thousandths, as the ledger has them.
UNIT: Final = 1000


@dataclass(frozen=True, slots=True)
class Taint:
    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def accepts(self, taint: Taint) -> bool:
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        if self.operator in ("", "Equal"):
            return bool(self.key) and self.value == taint.value
        # Exists; and an operator that came after this was written may accept it, so nothing is claimed.
        return True


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """A node as kube-scheduler sees it; `taken` is the sum of the requests of all its pods, with or without cards."""

    cordoned: bool = False
    taints: Sequence[Taint] = ()
    allocatable: Mapping[str, int] = field(default_factory=dict)  # in thousandths; pods are whole
    taken: Mapping[str, int] = field(default_factory=dict)
    pods: int = 0


def obstacles(node: NodeConstraints, tolerations: Sequence[Toleration], needs: Needs) -> Iterator[str]:
    """Each reason that is enough for kube-scheduler not to put the pod there."""

    def tolerated(taint: Taint) -> bool:
        return any(toleration.accepts(taint) for toleration in tolerations)

    if node.cordoned and not tolerated(Taint(CORDONED, effect="NoSchedule")):
        yield "it is cordoned (kubectl uncordon)"
    for taint in node.taints:
        if taint.effect in KEEPS_AWAY and not tolerated(taint) and not (node.cordoned and taint.key == CORDONED):
            yield f"the pod does not tolerate its taint {taint}"
    for resource, shown in (("cpu", _cpu), ("memory", _memory)):
        asked = dict(needs).get(resource, 0)
        if asked and resource in node.allocatable:
            free = max(0, node.allocatable[resource] - node.taken.get(resource, 0))
            if asked > free:
                has = shown(node.allocatable[resource])
                yield f"not enough {resource}: {shown(asked)} requested, {shown(free)} of {has} not requested by other pods"
    most = node.allocatable.get("pods")
    if most is not None and node.pods >= most:
        yield f"it already has {most} pods, its maximum"


def _cpu(thousandths: int) -> str:
    return f"{thousandths / UNIT:g}"


def _memory(thousandths: int) -> str:
    return f"{thousandths / UNIT / GIB:.4g} GiB"


@dataclass(frozen=True, slots=True)
class PodDetails:
    """A pod as its owner wrote it, and what the scheduler and kubelet report about it."""

    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)  # every resource that its containers request, as written
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Toleration] = ()
    has_affinity: bool = False  # it has a required node affinity, which is not evaluated here
    phase: str = ""
    reason: str = ""  # of its status: why it failed
    scheduler_message: str = ""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Everything that an explanation is made from."""

    ledger: Ledger
    catalog: Catalog
    inventories: Inventories = field(default_factory=lambda: NO_INVENTORIES)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of every node
    constraints: Mapping[str, NodeConstraints] = field(default_factory=dict)  # of every node

    def cards(self, kind: str) -> Iterator[tuple[str, CardLedger]]:
        """Every card of this kind with its node's name, by name and index."""
        for node in self.ledger.nodes():
            for card in node.cards.get(kind, ()):
                yield node.name, card

    def unit(self, profile: Profile, node: str) -> str:
        """The unit of this vendor's cards on this node, as people read it."""
        return unit_label(profile, node, self._first_size(profile, node), self.inventories)

    def unit_mib(self, profile: Profile, node: str) -> float:
        """The size of this unit in MiB; 0 if it is not known."""
        return float(profile.unit.mib.get(unit_name(profile, node, self._first_size(profile, node), self.inventories), 0))

    def _first_size(self, profile: Profile, node: str) -> int:
        node_ledger = self.ledger.node(node)
        cards = node_ledger.cards.get(profile.name, ()) if node_ledger else ()
        return cards[0].card.size if cards else 0
