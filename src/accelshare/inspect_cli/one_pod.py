"""One pod with everything that its owner, the scheduler and kubelet said of it.

Belongs here: the parts of a pod that only an explanation needs. What the ledger needs is read in wire/pods.py.
"""

from typing import Any, NoReturn

import msgspec

from accelshare.inspect_cli.reading import decode_named, names
from accelshare.inspect_cli.troubles import unknown
from accelshare.kube import paths
from accelshare.kube.errors import BadAnswer, KubeError, NotFound
from accelshare.kube.sync_client import SyncClient
from accelshare.ledger.facts import PodSeen
from accelshare.report.surroundings import Toleration
from accelshare.report.world import Asking
from accelshare.vendors.catalog import Catalog
from accelshare.wire.decoding import Decoder, UnreadableError
from accelshare.wire.objects import Condition, Metadata, PodSpec, PodStatus
from accelshare.wire.objects import Pod as BookedPod
from accelshare.wire.pods import PodReader
from accelshare.wire.quantity import whole_number


class _Required(msgspec.Struct):
    required: Any = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class _Affinity(msgspec.Struct, rename="camel"):
    node_affinity: _Required | None = None


class _Toleration(msgspec.Struct):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class _Spec(PodSpec):
    tolerations: list[_Toleration] | None = None
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None


class _Condition(Condition):
    message: str = ""


class _Status(PodStatus):
    reason: str = ""
    message: str = ""
    conditions: list[_Condition] | None = None  # type: ignore[assignment]  # the same, with what they say


class _Pod(msgspec.Struct, rename="camel"):
    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status | None = None


_decode = Decoder(_Pod).decode


def find(client: SyncClient, catalog: Catalog, namespace: str, name: str) -> tuple[PodSeen | None, Asking]:
    """The pod as the book reads it (None: it asks for no card), and as its owner wrote it."""
    try:
        raw = client.get(paths.pod(namespace, name))
    except (NotFound, ValueError):
        _not_there(client, namespace, name)
    try:
        return read(raw, catalog)
    except UnreadableError as error:
        raise BadAnswer(f"pod {namespace}/{name} cannot be read: {error}") from error


def read(raw: bytes, catalog: Catalog) -> tuple[PodSeen | None, Asking]:
    pod = _decode(raw)
    status = pod.status or _Status()
    said = [each.message for each in status.conditions or () if each.type == "PodScheduled" and each.status == "False"]
    failed = ": ".join(part for part in (status.reason, status.message) if part)
    asking = Asking(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        labels=pod.metadata.labels or {},
        annotations=pod.metadata.annotations or {},
        resources=_resources(pod.spec),
        node_selector=pod.spec.node_selector or {},
        tolerations=tuple(Toleration(t.key, t.operator, t.value, t.effect) for t in pod.spec.tolerations or ()),
        has_affinity=bool(pod.spec.affinity and pod.spec.affinity.node_affinity and pod.spec.affinity.node_affinity.required),
        phase=status.phase or "",
        reason=failed,
        scheduler_says=said[0] if said else "",
    )
    return PodReader(catalog).fact(BookedPod(pod.metadata, pod.spec, status)), asking


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
    except KubeError:  # who may not look everywhere is told of this namespace only
        others = []
    if others:
        unknown("pod", name, (), f" in namespace {namespace}; there is one in {', '.join(sorted(others))} (-n)")
    unknown("pod", name, here, f" in namespace {namespace}" + ("" if here else ", which has no pods"))
