"""Reads the parts of pods and nodes that only `explain` needs: selectors, tolerations, taints, CPU and memory.

Belongs here: reading objects for an explanation. What the ledger needs is read in wire/. Never: what follows from it (report/).
"""

from typing import Any, NoReturn

import msgspec

from accelshare.inspect_cli.cluster_reader import decode_named, names, require_namespace
from accelshare.inspect_cli.error_messages import unknown
from accelshare.kube import paths
from accelshare.kube.errors import BadAnswer, KubeError, NotFound
from accelshare.kube.sync_client import SyncClient
from accelshare.ledger.facts import PodSeen
from accelshare.report.cluster_state import NodeConstraints, PodDetails, Taint, Toleration
from accelshare.wire.decoding import Decoder, UnreadableError
from accelshare.wire.objects import Condition, Metadata, NodeStatus, Pod, PodSpec, PodStatus, pod_decoder
from accelshare.wire.pods import PodReader, needs_of
from accelshare.wire.quantity import thousandths, whole_number


class _Required(msgspec.Struct):
    required: Any = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class _Affinity(msgspec.Struct, rename="camel"):
    node_affinity: _Required | None = None


class _Spec(PodSpec):
    tolerations: tuple[Toleration, ...] | None = None
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None


class _Condition(Condition):
    message: str = ""


class _Status(PodStatus):
    reason: str = ""
    message: str = ""
    conditions: list[_Condition] | None = None  # type: ignore[assignment]  # the same, with their messages


class _Pod(msgspec.Struct, rename="camel"):
    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status | None = None


_decode = Decoder(_Pod).decode


def get(client: SyncClient, namespace: str, name: str) -> bytes:
    """The pod as the API server has it; an error with the nearest name if there is none."""
    try:
        return client.get(paths.pod(namespace, name))
    except (NotFound, ValueError):
        _not_there(client, namespace, name)


def read(raw: bytes, reader: PodReader) -> tuple[PodSeen | None, PodDetails]:
    """The pod as the ledger knows it (None: it requests no card), and as its owner wrote it."""
    try:
        pod = _decode(raw)
    except UnreadableError as error:
        raise BadAnswer(f"the pod cannot be read: {error}") from error
    return reader.fact(Pod(pod.metadata, pod.spec, pod.status or _Status())), _details(pod)


def _details(pod: _Pod) -> PodDetails:
    status = pod.status or _Status()
    messages = [each.message for each in status.conditions or () if each.type == "PodScheduled" and each.status == "False"]
    failed = ": ".join(part for part in (status.reason, status.message) if part)
    return PodDetails(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        labels=pod.metadata.labels or {},
        annotations=pod.metadata.annotations or {},
        resources=_resources(pod.spec),
        node_selector=pod.spec.node_selector or {},
        tolerations=pod.spec.tolerations or (),
        has_affinity=bool(pod.spec.affinity and pod.spec.affinity.node_affinity and pod.spec.affinity.node_affinity.required),
        phase=status.phase or "",
        reason=failed,
        scheduler_message=messages[0] if messages else "",
    )


def _resources(spec: PodSpec) -> dict[str, str]:
    named: dict[str, str] = {}
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        resources = container.resources
        for amounts in (resources.limits, resources.requests) if resources else ():
            for key, value in (amounts or {}).items():
                readable = whole_number(value)
                # API servers write 4000 as 4k; people do not.
                named.setdefault(key, str(value if readable is None else readable))
    return named


def _not_there(client: SyncClient, namespace: str, name: str) -> NoReturn:
    here = names(client, f"/api/v1/namespaces/{namespace}/pods")
    try:
        others = [
            pod.namespace for pod in (decode_named(raw).metadata for raw in client.items("/api/v1/pods")) if pod.name == name
        ]
    except KubeError:  # without permission for all namespaces only this one is searched
        others = []
    if others:
        unknown("pod", name, (), f" in namespace {namespace}; there is one in {', '.join(sorted(others))} (-n)")
    if not here:
        require_namespace(client, namespace)
    unknown("pod", name, here, f" in namespace {namespace}" + ("" if here else ", which has no pods"))


class _NodeSpec(msgspec.Struct):
    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None


class _Node(msgspec.Struct):
    metadata: Metadata
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: NodeStatus | None = None


_decode_node = Decoder(_Node).decode


class ConstraintReader:
    """Collects what every node has and what its pods request, and pods without a node as their owners wrote them.

    Objects that cannot be read are reported elsewhere.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, PodDetails] = {}  # by uid
        self._nodes: dict[str, _Node] = {}
        self._taken: dict[str, dict[str, int]] = {}
        self._pods: dict[str, int] = {}

    def node(self, raw: msgspec.Raw | bytes) -> None:
        node = _decode_node(raw)
        self._nodes[node.metadata.name] = node

    def pod(self, raw: msgspec.Raw | bytes) -> None:
        pod = pod_decoder.decode(raw)
        node = pod.spec.node_name
        if not node:
            self.waiting[pod.metadata.uid] = _details(_decode(raw))
            return
        self._pods[node] = self._pods.get(node, 0) + 1
        taken = self._taken.setdefault(node, {})
        for resource, amount in needs_of(pod):
            taken[resource] = taken.get(resource, 0) + amount

    def by_node(self) -> dict[str, NodeConstraints]:
        return {name: self._of(name, node) for name, node in self._nodes.items()}

    def _of(self, name: str, node: _Node) -> NodeConstraints:
        amounts = (node.status.allocatable if node.status else None) or {}
        allocatable = {resource: thousandths(amounts[resource]) for resource in ("cpu", "memory") if resource in amounts}
        most_pods = whole_number(amounts.get("pods"))
        return NodeConstraints(
            cordoned=bool(node.spec.unschedulable),
            taints=node.spec.taints or (),
            allocatable=allocatable | ({"pods": most_pods} if most_pods is not None else {}),
            taken=self._taken.get(name, {}),
            pods=self._pods.get(name, 0),
        )
