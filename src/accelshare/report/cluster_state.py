"""What an explanation is made from: the book, and beside it what only the objects themselves say.

Belongs here: two values and small questions to them. Never: reading objects, words.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from accelshare.ledger.facts import Needs
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.node_ledger import CardLedger
from accelshare.report.units import NOTHING_TOLD, Told, unit_label, unit_name
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.profile import Profile

CORDONED: Final = "node.kubernetes.io/unschedulable"
KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
GIB: Final = 2**30
# Amounts are in thousandths, as the ledger has them.
UNIT: Final = 1000


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
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
class Surroundings:
    """A node as kube-scheduler sees it; `taken` is the sum of what all its pods ask, whether they have cards or not."""

    cordoned: bool = False
    taints: Sequence[Taint] = ()
    allocatable: Mapping[str, int] = field(default_factory=dict)  # in thousandths; pods are whole
    taken: Mapping[str, int] = field(default_factory=dict)
    pods: int = 0


def keeps_away(node: Surroundings, tolerations: Sequence[Toleration], needs: Needs) -> Iterator[str]:
    """Each thing that alone is enough for kube-scheduler not to put the pod there."""

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
                yield f"not enough {resource}: {shown(asked)} asked, {shown(free)} of {has} not asked for by other pods"
    most = node.allocatable.get("pods")
    if most is not None and node.pods >= most:
        yield f"it has all the {most} pods that it may have"


def _cpu(thousandths: int) -> str:
    return f"{thousandths / UNIT:g}"


def _memory(thousandths: int) -> str:
    return f"{thousandths / UNIT / GIB:.4g} GiB"


@dataclass(frozen=True, slots=True)
class Asking:
    """A pod as its owner wrote it, and what others have said on it."""

    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)  # every resource that its containers name, as written
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Toleration] = ()
    has_affinity: bool = False  # it requires nodes of us in a language that is not looked at here
    phase: str = ""
    reason: str = ""  # of its status: why it failed, in kubelet's words
    scheduler_says: str = ""


@dataclass(frozen=True, slots=True)
class World:
    ledger: Ledger
    catalog: Catalog
    told: Told = field(default_factory=lambda: NOTHING_TOLD)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of every node
    surroundings: Mapping[str, Surroundings] = field(default_factory=dict)  # of every node

    def cards(self, kind: str) -> Iterator[tuple[str, CardLedger]]:
        """Every card of this kind that a node shows, with the node's name; by name and index."""
        for node in self.ledger.nodes():
            for card in node.cards.get(kind, ()):
                yield node.name, card

    def unit(self, profile: Profile, node: str) -> str:
        """What the node counts this vendor's cards in, for people."""
        return unit_label(profile, node, self._first_size(profile, node), self.told)

    def unit_mib(self, profile: Profile, node: str) -> float:
        """How many MiB that is; 0 if nobody knows."""
        return float(profile.unit.mib.get(unit_name(profile, node, self._first_size(profile, node), self.told), 0))

    def _first_size(self, profile: Profile, node: str) -> int:
        book = self.ledger.node(node)
        cards = book.cards.get(profile.name, ()) if book else ()
        return cards[0].card.size if cards else 0
