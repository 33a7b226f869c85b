"""Reads what kube-scheduler's own rules look at: of pods that wait, of pods that have a node, and of nodes.

Belongs here: reading these parts of pods and nodes. Never: the rules (extender/promises/rules.py), cards (pods.py, nodes.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Final, TypeAlias

import msgspec

from accelshare.ledger.facts import Needs
from accelshare.wire.decoding import Decoder
from accelshare.wire.groups import group_of
from accelshare.wire.objects import Condition, Container, Metadata, Pod, PodSpec, PodStatus, Quantity, Resources, version_of
from accelshare.wire.pods import ENDED, needs_of
from accelshare.wire.quantity import thousandths

# Volumes that are on every node.
ANYWHERE: Final = frozenset({"configMap", "secret", "emptyDir", "projected", "downwardAPI", "hostPath", "image", "nfs"})
MOST_CONTAINERS_REMEMBERED: Final = 32  # of one pod
LONGEST_TEMPLATE: Final = 4_000  # characters of all amounts of a pod whose needs are remembered
MOST_RULES: Final = 64  # of one pod, each checked on every node: 0.1 s at 5,000 nodes
GATED: Final = "SchedulingGated"  # the API server writes it when the pod is created, and nobody removes it with the gates
DEFAULT_SCHEDULER: Final = "default-scheduler"

HostPort: TypeAlias = tuple[str, str, int]  # address (0.0.0.0: all), protocol, number


class _Part(msgspec.Struct, rename="camel", gc=False):
    pass


class _Value(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """A part that is also a cache key."""


class Toleration(_Value, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class NodeSelectorRequirement(_Value, frozen=True):
    """A label or field of a node, an operator and values."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(_Value, frozen=True):
    """All requirements of a term must be met."""

    match_expressions: tuple[NodeSelectorRequirement, ...] | None = None
    match_fields: tuple[NodeSelectorRequirement, ...] | None = None


class _Terms(_Value, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class _NodeAffinity(_Part):
    required: _Terms | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[msgspec.Raw] | None = msgspec.field(name="preferredDuringSchedulingIgnoredDuringExecution", default=None)


class _PodAffinity(_Part):
    required: list[msgspec.Raw] | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[msgspec.Raw] | None = msgspec.field(name="preferredDuringSchedulingIgnoredDuringExecution", default=None)


class _Affinity(_Part):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class _Port(_Part):
    host_port: int | None = None
    host_ip: str | None = msgspec.field(name="hostIP", default=None)
    protocol: str | None = None


class _ContainerWithPorts(Container):
    ports: list[_Port] | None = None


class _Spec(PodSpec):
    containers: list[_ContainerWithPorts] | None = None  # type: ignore[assignment]
    init_containers: list[_ContainerWithPorts] | None = None  # type: ignore[assignment]
    scheduler_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    scheduling_gates: list[msgspec.Raw] | None = None
    topology_spread_constraints: list[msgspec.Raw] | None = None
    resource_claims: list[msgspec.Raw] | None = None
    volumes: list[dict[str, msgspec.Raw]] | None = None
    scheduling_group: msgspec.Raw = msgspec.Raw()
    workload_ref: msgspec.Raw = msgspec.Raw()
    preemption_policy: str | None = None


class _Condition(Condition):
    reason: str | None = None


class _Status(PodStatus):
    conditions: list[_Condition] | None = None  # type: ignore[assignment]
    nominated_node_name: str | None = None


class _Metadata(Metadata):
    deletion_timestamp: str | None = None


class PodWithRules(Pod):
    """A pod with what kube-scheduler's rules look at, beside what the ledger reads."""

    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status | None = None


class Taint(_Value, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class _NodeSpec(_Part):
    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None


class _NodeStatus(_Part):
    allocatable: dict[str, Quantity] | None = None


class _Node(_Part):
    metadata: Metadata
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The nodes that a pod may be on, by what nodes are and not by what is on them. Equal for pods of one template."""

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None  # one of them must match; None: any node
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulingPod:
    """A pod as kube-scheduler's rules see it."""

    uid: str
    namespace: str
    name: str
    version: int
    node: str  # empty: it waits
    needs: Needs
    ports: tuple[HostPort, ...] = ()
    priority: int = 0
    created: str = ""
    scheduler: str = DEFAULT_SCHEDULER
    nominated: str = ""  # the node that kube-scheduler tries first
    refused: bool = False  # kube-scheduler has tried it and found no node
    preempts: bool = True  # kube-scheduler may then evict others for it, and nominates the node itself
    choice: NodeChoice = NodeChoice()
    unchecked: str = ""  # why its node is not for us to choose; empty: it is
    ended: bool = False  # it takes nothing from its node


@dataclass(frozen=True, slots=True)
class SchedulingNode:
    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: Mapping[str, int]  # in thousandths


pod_decoder: Final = Decoder(PodWithRules)
_nodes: Final = Decoder(_Node)


def scheduling_pod(pod: PodWithRules, needs: Needs = ()) -> SchedulingPod:
    """`needs`: if they were read already."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status or _Status()
    node = intern(spec.node_name or "")
    if status.phase in ENDED:
        return SchedulingPod(metadata.uid, metadata.namespace, metadata.name, version_of(metadata), node, (), ended=True)
    needs = needs or _read_needs(pod)
    ports = _host_ports(spec)
    if node:
        return SchedulingPod(metadata.uid, metadata.namespace, metadata.name, version_of(metadata), node, needs, ports)
    rules = _rules(spec)
    return SchedulingPod(
        metadata.uid,
        metadata.namespace,
        metadata.name,
        version_of(metadata),
        node,
        needs,
        ports,
        priority=spec.priority or 0,
        created=metadata.creation_timestamp or "",
        scheduler=spec.scheduler_name or DEFAULT_SCHEDULER,
        nominated=status.nominated_node_name or "",
        refused=any(
            each.type == "PodScheduled" and each.status == "False" and each.reason != GATED for each in status.conditions or ()
        ),
        preempts=spec.preemption_policy != "Never",
        choice=_choice(spec) if rules <= MOST_RULES else NodeChoice(),
        unchecked=_unchecked(pod) or ("" if rules + len(ports) <= MOST_RULES else "many-rules"),
    )


def _read_needs(pod: PodWithRules) -> Needs:
    small = len(pod.spec.containers or ()) + len(pod.spec.init_containers or ()) <= MOST_CONTAINERS_REMEMBERED
    amounts = _amounts(pod)
    small = small and _size(amounts) <= LONGEST_TEMPLATE
    return _needs(amounts) if small else _needs.__wrapped__(amounts)


def read_node(raw: msgspec.Raw | bytes) -> SchedulingNode:
    node = _nodes.decode(raw)
    spec, status = node.spec or _NodeSpec(), node.status or _NodeStatus()
    return SchedulingNode(
        name=intern(node.metadata.name),
        labels=node.metadata.labels or {},
        taints=spec.taints or (),
        unschedulable=bool(spec.unschedulable),
        allocatable={name: thousandths(amount) for name, amount in (status.allocatable or {}).items()},
    )


def _choice(spec: _Spec) -> NodeChoice:
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    return NodeChoice(
        selector=tuple(sorted((spec.node_selector or {}).items())),
        terms=(required.node_selector_terms or ()) if required is not None else None,
        tolerations=spec.tolerations or (),
    )


def _rules(spec: _Spec) -> int:
    """How much there is to compare with each node."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    terms = (required.node_selector_terms or ()) if required is not None else ()
    requirements = [each for term in terms for each in (*(term.match_expressions or ()), *(term.match_fields or ()))]
    values = sum(len(each.values or ()) for each in requirements)
    return len(spec.node_selector or ()) + len(spec.tolerations or ()) + len(terms) + len(requirements) + values


def _unchecked(pod: PodWithRules) -> str:
    """What of a waiting pod other rules than ours decide about; or that it prefers some nodes."""
    spec, metadata = pod.spec, pod.metadata
    if metadata.deletion_timestamp is not None:
        return "deleted"
    if spec.scheduling_gates:
        return "gated"
    if spec.resource_claims:
        return "resource-claims"
    if spec.topology_spread_constraints:
        return "topology-spread"
    if spec.affinity is not None:
        nodes, pods, anti = spec.affinity.node_affinity, spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity
        if any(part is not None and (part.required or part.preferred) for part in (pods, anti)):
            return "pod-affinity"
        if nodes is not None and nodes.preferred:
            return "preferred-nodes"
    if any(not (volume.keys() - {"name"} <= ANYWHERE) for volume in spec.volumes or ()):
        return "volumes"
    if group_of(metadata, spec.scheduling_group, spec.workload_ref):
        return "group"
    return ""


def _host_ports(spec: _Spec) -> tuple[HostPort, ...]:
    return tuple(
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)  # noqa: S104 – the meaning of an absent address
        for container in (*(spec.containers or ()), *(spec.init_containers or ()))
        for port in container.ports or ()
        if port.host_port
    )


_Amounts: TypeAlias = tuple[tuple[str, Quantity], ...]
_Template: TypeAlias = tuple[
    tuple[tuple[_Amounts, _Amounts], ...],
    tuple[tuple[_Amounts, _Amounts, str], ...],
    tuple[_Amounts, _Amounts],
    _Amounts,
]


def _amounts(pod: PodWithRules) -> _Template:
    """Everything that a pod's needs are read from, as a cache key."""
    spec = pod.spec
    return (
        tuple([_of(container.resources) for container in spec.containers or ()]),
        tuple([(*_of(container.resources), container.restart_policy or "") for container in spec.init_containers or ()]),
        _of(spec.resources),
        tuple((spec.overhead or {}).items()),
    )


def _size(template: _Template) -> int:
    """In characters, about."""
    apps, inits, whole, overhead = template
    parts: list[_Amounts] = [overhead, *whole]
    for limits, requests in apps:
        parts += (limits, requests)
    for limits, requests, _ in inits:
        parts += (limits, requests)
    return sum(len(name) + len(str(amount)) for part in parts for name, amount in part)


def _of(resources: Resources | None) -> tuple[_Amounts, _Amounts]:
    if resources is None:
        return (), ()
    return tuple((resources.limits or {}).items()), tuple((resources.requests or {}).items())


@lru_cache(maxsize=4096)  # there are few templates and many pods
def _needs(template: _Template) -> Needs:
    apps, inits, whole, overhead = template
    spec = PodSpec(
        containers=[Container(resources=Resources(dict(limits), dict(requests))) for limits, requests in apps],
        init_containers=[
            Container(resources=Resources(dict(limits), dict(requests)), restart_policy=policy or None)
            for limits, requests, policy in inits
        ],
        resources=Resources(dict(whole[0]), dict(whole[1])),
        overhead=dict(overhead),
    )
    return needs_of(Pod(metadata=Metadata(), spec=spec))
