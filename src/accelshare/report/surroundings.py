"""What keeps a pod from a node besides its cards: the node is cordoned, tainted, or has no CPU, memory or place for a pod left.

Belongs here: those rules of kube-scheduler that are easy to state and always hold. Never: the others (affinity, spreading,
volumes); whoever waits for one of them reads kube-scheduler's own words.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from accelshare.ledger.facts import Needs

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
