"""The parts of Kubernetes objects that only the doctor reads.

Belongs here: shapes beyond those of preflight, and times as values. Every field that a server may omit or set to null has a
default. Never: judging.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from accelshare.install.preflight.snapshot import (
    ContainerWithCommand,
    NodeWithVersions,
    PodWithCommands,
    SpecWithCommands,
    StatusWithVersions,
)
from accelshare.report.cluster_state import Taint, Toleration
from accelshare.wire.objects import Condition, PodStatus

_LONGEST_TIME: Final = 64  # characters


class ContainerPort(msgspec.Struct, frozen=True, rename="camel"):
    name: str | None = None
    container_port: int = 0


class LiveContainer(ContainerWithCommand):
    image: str | None = None
    ports: list[ContainerPort] | None = None


class NodeAffinity(msgspec.Struct, frozen=True):
    required: Any = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class PodAffinities(msgspec.Struct, frozen=True, rename="camel"):
    """Which required affinities a pod has; they are not evaluated here."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: NodeAffinity | None = None
    pod_anti_affinity: NodeAffinity | None = None

    @property
    def required(self) -> bool:
        return any(part is not None and part.required for part in (self.node_affinity, self.pod_affinity, self.pod_anti_affinity))


class LiveSpec(SpecWithCommands):
    containers: list[LiveContainer] | None = None  # type: ignore[assignment]  # it is only read
    init_containers: list[LiveContainer] | None = None  # type: ignore[assignment]
    scheduler_name: str | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = None
    affinity: PodAffinities | None = None
    topology_spread_constraints: list[msgspec.Raw] | None = None
    scheduling_gates: list[msgspec.Raw] | None = None


class LiveCondition(Condition):
    reason: str | None = None
    message: str | None = None


class LivePodStatus(PodStatus):
    conditions: list[LiveCondition] | None = None  # type: ignore[assignment]


class LivePod(PodWithCommands):
    """A Pod with its scheduler, its image and the messages of its conditions."""

    spec: LiveSpec = msgspec.field(default_factory=LiveSpec)
    status: LivePodStatus | None = None

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels or {}

    @property
    def running(self) -> bool:
        return self.status is not None and self.status.phase == "Running"

    @property
    def ready(self) -> bool:
        return self.condition("Ready").status == "True"

    @property
    def image(self) -> str:
        """The image of its first container."""
        return (self.spec.containers[0].image or "") if self.spec.containers else ""

    @property
    def probe_port(self) -> int:
        """The port named `probes`, which serves health and metrics; 0: it has none."""
        ports = [port for container in self.spec.containers or () for port in container.ports or ()]
        number = next((port.container_port for port in ports if port.name == "probes"), 0)
        return number if 0 < number < 65536 else 0

    def condition(self, kind: str) -> LiveCondition:
        conditions = (self.status.conditions if self.status is not None else None) or ()
        return next((each for each in conditions if each.type == kind), LiveCondition())

    def flag(self, name: str) -> str:
        """The value of `--name=value` on a command line of its containers; empty without one."""
        return next((word.partition("=")[2] for word in self.words if word.startswith(f"--{name}=")), "")


class NodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None


class LiveNodeStatus(StatusWithVersions):
    conditions: list[Condition] | None = None


class LiveNode(NodeWithVersions):
    """A Node with what keeps pods from it."""

    status: LiveNodeStatus = msgspec.field(default_factory=LiveNodeStatus)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels or {}

    @property
    def ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions or ())


class ManagedFields(msgspec.Struct, frozen=True):
    time: str | None = None


class LeaseMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    managed_fields: list[ManagedFields] | None = None


class LiveLeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    renew_time: str | None = None


class LiveLease(msgspec.Struct, frozen=True):
    """A Lease: the renewal by its holder's clock, and the last write by the API server's clock."""

    metadata: LeaseMetadata
    spec: LiveLeaseSpec = LiveLeaseSpec()

    @property
    def skew_s(self) -> float | None:
        """How far the holder's clock is ahead of the API server's; None if it cannot be told."""
        writes = [time for each in self.metadata.managed_fields or () if (time := time_of(each.time)) is not None]
        renewed = time_of(self.spec.renew_time)
        return None if renewed is None or not writes else (renewed - max(writes)).total_seconds()


def time_of(text: str | None) -> datetime | None:
    """A time as Kubernetes writes it; None if it is none, or has no time zone."""
    if not text or len(text) > _LONGEST_TIME:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None
