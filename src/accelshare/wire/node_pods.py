"""Reads pods for the agent of their node: what each container requests, in kubelet's order, and the pod's cards.

Belongs here: reading pods for the agent. What the ledger needs of a pod is read in pods.py.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from accelshare.ledger.facts import PodSeen
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.container_edits import all_variables
from accelshare.wire.decoding import Decoder, UnreadableError
from accelshare.wire.objects import Container, Metadata, PodSpec, PodStatus, Quantity, Resources, has_binding
from accelshare.wire.objects import Pod as WholePod
from accelshare.wire.pods import ENDED, PodReader
from accelshare.wire.quantity import whole_number

_MIRROR: Final = "kubernetes.io/config.mirror"
Want: TypeAlias = tuple[str, bool, int]  # kind, whole cards?, amount


@dataclass(frozen=True, slots=True)
class ContainerNeeds:
    """What one container of a pod requests."""

    container: str
    wants: tuple[Want, ...]
    ends_first: bool = False  # it has ended before any later container starts, which then uses the same whole cards
    variables: frozenset[str] = frozenset()  # of those that come with cards: the ones that its manifest sets itself


class _ContainerResources(Resources):
    claims: list[msgspec.Raw] | None = None


class _Variable(msgspec.Struct, gc=False):
    name: str = ""


class _Container(Container):
    resources: _ContainerResources | None = None
    env: list[_Variable] | None = None


class _Spec(PodSpec):
    containers: list[_Container] | None = None  # type: ignore[assignment]  # the same, with claims
    init_containers: list[_Container] | None = None  # type: ignore[assignment]
    runtime_class_name: str | None = None


class _SpecFields(msgspec.Struct):
    node_name: msgspec.Raw = msgspec.field(name="f:nodeName", default=msgspec.Raw())


class _Fields(msgspec.Struct):
    spec: _SpecFields | None = msgspec.field(name="f:spec", default=None)


class _FieldManager(msgspec.Struct, rename={"fields": "fieldsV1"}):
    fields: _Fields | None = None


class _Metadata(Metadata):
    deletion_timestamp: str | None = None
    managed_fields: msgspec.Raw = msgspec.Raw()


class _Status(PodStatus):
    start_time: str | None = None


class _Pod(msgspec.Struct, rename="camel", gc=False):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status | None = None


@dataclass(frozen=True, slots=True)
class NodePod:
    """One pod of this node. `seen` is its fact for the ledger."""

    seen: PodSeen
    parts: tuple[ContainerNeeds, ...]
    annotations: Mapping[str, str]
    phase: str
    terminating: bool
    runtime_class: str = ""  # empty: the node's default runtime handler makes its containers
    by_hand: bool = False  # it named its node itself, so no card was chosen for it, whatever its record has
    extended_resources: Mapping[str, frozenset[str]] = field(default_factory=dict)  # that each container requests, by its name
    claims: frozenset[str] = frozenset()  # containers with devices by a resource claim, of whichever driver
    resized_units: int = 0  # the amount of its only slice after a resize; 0: as requested

    @property
    def uid(self) -> str:
        return self.seen.uid

    @property
    def uid_at_kubelet(self) -> str:
        """A static pod has another uid at kubelet; its mirror pod at the API server has that uid in an annotation."""
        return self.annotations.get(_MIRROR, self.uid)

    @property
    def name(self) -> str:
        return f"{self.seen.namespace}/{self.seen.name}"


def by_uid_at_kubelet(pods: Iterable[NodePod]) -> dict[str, NodePod]:
    """Pods by the uid that kubelet has for them. Any user can write the annotation of a mirror pod, so a pod's own uid takes
    precedence.
    """
    known = list(pods)
    return {pod.uid_at_kubelet: pod for pod in known} | {pod.uid: pod for pod in known if pod.uid_at_kubelet == pod.uid}


_decoder = Decoder(_Pod)
_field_managers = Decoder(list[_FieldManager])


class NodePodReader:
    """Reads the pods of one node with the resource names of a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._pods = PodReader(catalog)
        self._variables = frozenset(name for profile in catalog.profiles for name in all_variables(profile))

    def decode(self, raw: msgspec.Raw | bytes) -> NodePod:
        """The pod; one that requests no card has no parts."""
        pod = _decoder.decode(raw)
        seen = self._pods.fact(WholePod(pod.metadata, pod.spec, pod.status))
        if seen is None:
            seen = PodSeen(pod.metadata.uid, pod.metadata.namespace, pod.metadata.name, request=())
        phase = (pod.status.phase if pod.status else None) or ""
        # kubelet admits init containers in their order, then the others; sidecars are init containers that stay.
        containers = [*(pod.spec.init_containers or ()), *(pod.spec.containers or ())]
        ordinary = {container.name for container in pod.spec.init_containers or () if container.restart_policy != "Always"}
        return NodePod(
            seen=seen,
            parts=tuple(part for container in containers if (part := self._part(container, ordinary)).wants),
            annotations=pod.metadata.annotations or {},
            phase=phase,
            terminating=pod.metadata.deletion_timestamp is not None or phase in ENDED,
            runtime_class=pod.spec.runtime_class_name or "",
            by_hand=_by_hand(pod),
            extended_resources={container.name: names for container in containers if (names := _extended(container))},
            claims=frozenset(c.name for c in containers if c.resources is not None and c.resources.claims),
        )

    def _part(self, container: _Container, ordinary: Collection[str]) -> ContainerNeeds:
        amounts = _amounts(container)
        wants: list[Want] = []
        for resource, value in sorted(amounts.items()):
            found = self._catalog.by_resource(resource)
            amount = whole_number(value) or 0
            if found is not None and amount:
                wants.append((found[0].name, found[1] == "whole", amount))
        own = self._variables.intersection(variable.name for variable in container.env or ())
        return ContainerNeeds(container.name, tuple(wants), ends_first=container.name in ordinary, variables=own)


def _amounts(container: _Container) -> dict[str, Quantity]:
    resources = container.resources
    return {**(resources.requests or {}), **(resources.limits or {})} if resources is not None else {}


def _extended(container: _Container) -> frozenset[str]:
    return frozenset(name for name, value in _amounts(container).items() if "/" in name and whole_number(value))


def _created_with_a_node(raw: msgspec.Raw) -> bool:
    try:
        managers = _field_managers.decode(raw) if bytes(raw) not in (b"", b"null") else []
    except UnreadableError:
        return False
    return any(bytes(each.fields.spec.node_name) for each in managers if each.fields and each.fields.spec)


def _by_hand(pod: _Pod) -> bool:
    """Did the pod name its node itself? A bind adds a condition to the pod, and kubelet writes the same condition with the start
    time. But a bind has no field manager: if nodeName has one, the pod was created with it.
    """
    if _created_with_a_node(pod.metadata.managed_fields):
        return True
    status = pod.status
    if status is None or status.start_time is not None:
        return False
    return not has_binding(status)
