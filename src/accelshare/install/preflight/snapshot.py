"""One snapshot of a cluster: the objects that the checks need, read once.

Belongs here: the shapes beyond those of `wire/objects.py`, and reading them; what the API server refuses is recorded as unread.
Never: judging, writing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

import msgspec

from accelshare.kube.client import Client
from accelshare.kube.errors import BadAnswer, Forbidden, NotFound
from accelshare.kube.leases import read_lease
from accelshare.wire import inventory
from accelshare.wire.decoding import Decoder, UnreadableError
from accelshare.wire.inventory import KindEntry
from accelshare.wire.objects import Container, Metadata, Node, NodeStatus, Pod, PodSpec

T = TypeVar("T")

PART_OF: Final = "app.kubernetes.io/part-of"
OURS: Final = "accelshare"
NOT_ENDED: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
# The node selector that stops the DaemonSet of another system, so that removing it starts the DaemonSet again.
PARKED: Final[Mapping[str, str]] = {"moved-to": "accelshare"}


class NodeInfo(msgspec.Struct, frozen=True, rename="camel"):
    kubelet_version: str = ""
    container_runtime_version: str = ""


class StatusWithVersions(NodeStatus):
    node_info: NodeInfo = NodeInfo()


class NodeWithVersions(Node):
    """A Node with the versions of its kubelet and container runtime."""

    status: StatusWithVersions = msgspec.field(default_factory=StatusWithVersions)

    def inventory(self) -> Mapping[str, KindEntry]:
        """The inventory that the node's agent published, by vendor; empty without an agent, or if it cannot be read."""
        try:
            return inventory.entries_of((self.metadata.annotations or {}).get(inventory.KEY, "{}"))
        except UnreadableError:
            return {}


class ContainerWithCommand(Container):
    command: list[str] | None = None
    args: list[str] | None = None


class SpecWithCommands(PodSpec):
    containers: list[ContainerWithCommand] | None = None  # type: ignore[assignment]  # it is only read
    init_containers: list[ContainerWithCommand] | None = None  # type: ignore[assignment]


class PodWithCommands(Pod):
    """A Pod with the command lines of its containers."""

    spec: SpecWithCommands = msgspec.field(default_factory=SpecWithCommands)

    @property
    def words(self) -> list[str]:
        """The command lines of its containers."""
        return [word for each in self.spec.containers or [] for word in (*(each.command or ()), *(each.args or ()))]

    @property
    def requested(self) -> set[str]:
        """The resources that its containers request; an amount of 0 is no request."""
        containers = (*(self.spec.containers or ()), *(self.spec.init_containers or ()))
        resources = [each.resources for each in containers if each.resources is not None]
        amounts = [amounts or {} for each in resources for amounts in (each.limits, each.requests)]
        return {name for each in amounts for name, amount in each.items() if str(amount) != "0"}


class ServicePort(msgspec.Struct, frozen=True, rename="camel"):
    port: int = 0
    node_port: int = 0


class ServiceSpec(msgspec.Struct, frozen=True):
    ports: tuple[ServicePort, ...] = ()
    selector: dict[str, str] | None = None


class Service(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: ServiceSpec = ServiceSpec()


class TemplateSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_selector: dict[str, str] = {}


class Template(msgspec.Struct, frozen=True):
    spec: TemplateSpec = TemplateSpec()


class WorkloadSpec(msgspec.Struct, frozen=True):
    replicas: int = 1
    template: Template = Template()


class Workload(msgspec.Struct, frozen=True):
    """A Deployment or a DaemonSet."""

    metadata: Metadata
    spec: WorkloadSpec = WorkloadSpec()

    @property
    def stopped(self) -> bool:
        """Whether it creates no pods: scaled to zero, or parked by a node selector as the migration guides do."""
        return self.spec.replicas == 0 or PARKED.items() <= self.spec.template.spec.node_selector.items()


class ClusterVersion(msgspec.Struct, rename="camel"):
    git_version: str = ""


class ClusterPart(Enum):
    """What can be read from a cluster, each with a right of its own."""

    VERSION = "version"
    NODES = "nodes"
    PODS = "pods"
    SERVICES = "services"
    DEPLOYMENTS = "deployments"
    DAEMON_SETS = "daemonsets"
    LEASE = "lease"
    RIGHTS = "your rights"


@dataclass(frozen=True, slots=True)
class Right:
    """A verb on a resource; in one namespace, or without one in the whole cluster."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        where = f"in namespace {self.namespace}" if self.namespace else "in the whole cluster"
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''} {where}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that the checks know. `unread`: what the API server did not return, with its error."""

    version: str = ""
    nodes: tuple[NodeWithVersions, ...] = ()
    pods: tuple[PodWithCommands, ...] = ()
    services: tuple[Service, ...] = ()
    deployments: tuple[Workload, ...] = ()
    daemon_sets: tuple[Workload, ...] = ()
    scheduler_holder: str = ""  # the holder of kube-scheduler's Lease: its host's name and an id
    rights: Mapping[Right, bool] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)

    def workloads(self) -> Iterator[tuple[str, Workload]]:
        """Deployments and DaemonSets, each with its name as Kind/name."""
        for kind, workloads in (("Deployment", self.deployments), ("DaemonSet", self.daemon_sets)):
            for workload in workloads:
                yield f"{kind}/{workload.metadata.name}", workload


def title(metadata: Metadata) -> str:
    """The name as kubectl users write it."""
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def is_ours(metadata: Metadata) -> bool:
    """Whether an install of accelshare created it, under whatever name."""
    return (metadata.labels or {}).get(PART_OF) == OURS


async def read(client: Client, parts: Collection[ClusterPart], rights: Iterable[Right]) -> Snapshot:
    """Read these parts of the cluster. Raises KubeError if the API server is unreachable or rejects the credentials."""
    reader = SnapshotReader(client, parts)
    return Snapshot(
        version=await reader.version(),
        nodes=await reader.all(ClusterPart.NODES, "/api/v1/nodes", NodeWithVersions),
        pods=await reader.all(ClusterPart.PODS, "/api/v1/pods", PodWithCommands, NOT_ENDED),
        services=await reader.all(ClusterPart.SERVICES, "/api/v1/services", Service),
        deployments=await reader.all(ClusterPart.DEPLOYMENTS, "/apis/apps/v1/deployments", Workload),
        daemon_sets=await reader.all(ClusterPart.DAEMON_SETS, "/apis/apps/v1/daemonsets", Workload),
        scheduler_holder=await reader.holder(),
        rights=await reader.rights(rights),
        unread=reader.unread,
    )


class SnapshotReader:
    """Reads only the parts that are needed; `unread` collects what the API server refused."""

    def __init__(self, client: Client, parts: Collection[ClusterPart]) -> None:
        self._client = client
        self._parts = parts
        self.unread: dict[str, str] = {}

    async def version(self) -> str:
        if ClusterPart.VERSION not in self._parts:
            return ""
        answer = await self._client.request("GET", "/version")
        try:
            return Decoder(ClusterVersion).decode(answer).git_version
        except ValueError as error:
            raise BadAnswer(f"GET /version: not a version: {error}") from error

    async def all(self, part: ClusterPart, path: str, kind: type[T], params: dict[str, str] | None = None) -> tuple[T, ...]:
        """Every object of this part, if it is needed."""
        return await self.listed(part.value, path, kind, params) if part in self._parts else ()

    async def listed(self, what: str, path: str, kind: type[T], params: dict[str, str] | None = None) -> tuple[T, ...]:
        """Every object that can be read; if the API server refuses, none and an entry in `unread`."""
        decoder = Decoder(kind)
        objects: list[T] = []
        try:
            async for page in self._client.pages(path, params=params):
                for item in page.items:
                    try:
                        objects.append(decoder.decode(item))
                    except UnreadableError as error:
                        self.unread[f"one of the {what}"] = str(error)
        except (Forbidden, NotFound) as error:
            self.unread[what] = str(error)
        return tuple(objects)

    async def holder(self) -> str:
        """The holder of kube-scheduler's Lease; empty in a cluster that has none (before 1.20) or does not show it."""
        if ClusterPart.LEASE not in self._parts:
            return ""
        try:
            lease = await read_lease(self._client, "kube-system", "kube-scheduler")
        except (Forbidden, BadAnswer):
            return ""
        return (lease.spec.holder_identity or "") if lease is not None else ""

    async def rights(self, rights: Iterable[Right]) -> dict[Right, bool]:
        if ClusterPart.RIGHTS not in self._parts:
            return {}
        try:
            return {right: await _is_allowed(self._client, right) for right in rights}
        except (Forbidden, NotFound) as error:
            self.unread[ClusterPart.RIGHTS.value] = str(error)
            return {}


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _ReviewStatus


_reviews = Decoder(_Review)


async def _is_allowed(client: Client, right: Right) -> bool:
    """Whether our identity has this right, by a SelfSubjectAccessReview, which the API server does not store."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": right.namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    body = await client.request("POST", path, body=msgspec.json.encode(review))
    try:
        return _reviews.decode(body).status.allowed
    except ValueError as error:
        raise BadAnswer(f"POST {path}: not a SelfSubjectAccessReview: {error}") from error
