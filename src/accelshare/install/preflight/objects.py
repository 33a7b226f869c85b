"""The parts of Kubernetes' objects that a preflight looks at.

Belongs here: their shape. Never: asking for them, judging them.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

# The node selector by which a DaemonSet of an original rests, ready to come back.
PARKED: Final[Mapping[str, str]] = {"moved-to": "accelshare"}


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None

    @property
    def title(self) -> str:
        """The name as kubectl's users write it."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class NodeInfo(msgspec.Struct, frozen=True, rename="camel"):
    kubelet_version: str = ""
    container_runtime_version: str = ""


class NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    node_info: NodeInfo = NodeInfo()
    allocatable: dict[str, str] = {}


class Node(msgspec.Struct, frozen=True):
    metadata: Metadata
    status: NodeStatus = NodeStatus()


class ServicePort(msgspec.Struct, frozen=True, rename="camel"):
    port: int = 0
    node_port: int = 0


class ServiceSpec(msgspec.Struct, frozen=True):
    ports: tuple[ServicePort, ...] = ()


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
        """It is there and makes no pods: scaled to none, or sent to nodes that do not exist, as our guides do."""
        return self.spec.replicas == 0 or PARKED.items() <= self.spec.template.spec.node_selector.items()


class Resources(msgspec.Struct, frozen=True):
    limits: dict[str, str | int] | None = None
    requests: dict[str, str | int] | None = None


class Container(msgspec.Struct, frozen=True):
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    resources: Resources = Resources()


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()


class Pod(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: PodSpec = PodSpec()

    @property
    def asked(self) -> set[str]:
        """The resources that its containers ask for, by name; none of a resource is no question."""
        containers = (*self.spec.containers, *self.spec.init_containers)
        said = [amounts or {} for each in containers for amounts in (each.resources.limits, each.resources.requests)]
        return {name for amounts in said for name, amount in amounts.items() if str(amount) != "0"}


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None


class Lease(msgspec.Struct, frozen=True):
    spec: LeaseSpec = LeaseSpec()
