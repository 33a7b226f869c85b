"""kube-scheduler's hard rules for one pod and one node, as far as they can be checked without asking it.

Belongs here: one small pure function for each rule. Never: cards (ledger/), rules about other pods (wire/scheduling.py names the
pods that have such rules; they are left to kube-scheduler).
"""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

from accelshare.ledger.facts import Needs
from accelshare.wire.scheduling import (
    HostPort,
    NodeChoice,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    SchedulingNode,
    Taint,
    Toleration,
)

ALL_ADDRESSES: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 – as a host port's address
KEPT_OFF: Final = frozenset({"NoSchedule", "NoExecute"})  # effects of taints that keep pods off
UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def may_be_on(choice: NodeChoice, node: SchedulingNode) -> bool:
    """By what the node is: selector, required node affinity, cordon, taints."""
    return (
        matches_selector(choice.selector, node.labels)
        and matches_affinity(choice.terms, node)
        and tolerates_all(choice.tolerations, node.taints)
        and (not node.unschedulable or tolerates(choice.tolerations, UNSCHEDULABLE))
    )


def matches_selector(selector: Iterable[tuple[str, str]], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector)


def matches_affinity(terms: Iterable[NodeSelectorTerm] | None, node: SchedulingNode) -> bool:
    """One of the terms must match; a term without requirements matches no node."""
    return terms is None or any(_matches_term(term, node) for term in terms)


def _matches_term(term: NodeSelectorTerm, node: SchedulingNode) -> bool:
    labels, fields = term.match_expressions or (), term.match_fields or ()
    if not labels and not fields:
        return False
    names = {"metadata.name": node.name}
    return all(_meets(each, node.labels) for each in labels) and all(_meets(each, names) for each in fields)


def _meets(requirement: NodeSelectorRequirement, values: Mapping[str, str]) -> bool:
    operator = _OPERATORS.get(requirement.operator)
    return operator is not None and operator(values.get(requirement.key), requirement.values or ())


def _larger(value: str | None, values: tuple[str, ...]) -> bool:
    return _number(value) is not None and len(values) == 1 and _compared(value, values[0]) > 0


def _smaller(value: str | None, values: tuple[str, ...]) -> bool:
    return _number(value) is not None and len(values) == 1 and _compared(value, values[0]) < 0


def _compared(value: str | None, other: str) -> int:
    mine, theirs = _number(value), _number(other)
    return 0 if mine is None or theirs is None else (mine > theirs) - (mine < theirs)


def _number(text: str | None) -> int | None:
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isascii() and digits.isdigit() and len(digits) <= 19 else None


_OPERATORS: Final[Mapping[str, Callable[[str | None, tuple[str, ...]], bool]]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": _larger,
    "Lt": _smaller,
}


def tolerates_all(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    return all(taint.effect not in KEPT_OFF or tolerates(tolerations, taint) for taint in taints)


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and bool(toleration.key) and toleration.value == taint.value


def fits_amounts(
    needs: Needs, taken: Mapping[str, int], allocatable: Mapping[str, int], *, uncounted: Container[str] = ()
) -> bool:
    """CPU, memory and every other resource of a node, in thousandths. Those in `uncounted` are counted by card elsewhere."""
    return all(
        taken.get(name, 0) + amount <= allocatable.get(name, 0) for name, amount in needs if amount and name not in uncounted
    )


def fits_one_more(pods: int, allocatable: Mapping[str, int]) -> bool:
    """Whether the node may have one more pod than it has."""
    return (pods + 1) * 1000 <= allocatable.get("pods", 0)


def ports_are_free(ports: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    wanted = tuple(ports)
    numbers = {port[1:] for port in wanted}
    near = [port for port in taken if port[1:] in numbers]  # once: it may be a generator, and a pod can have thousands
    return not any(_collide(mine, theirs) for mine in wanted for theirs in near)


def _collide(mine: HostPort, theirs: HostPort) -> bool:
    if mine[1:] != theirs[1:]:
        return False
    return mine[0] == theirs[0] or mine[0] in ALL_ADDRESSES or theirs[0] in ALL_ADDRESSES
