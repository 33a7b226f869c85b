"""The parts of Kubernetes objects that accelshare reads; other fields are skipped while decoding.

Belongs here: their types. Every field that a server may omit or set to null has a default.
"""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from accelshare.wire.decoding import Decoder, version_number

Quantity: TypeAlias = str | int | float


class _Part(msgspec.Struct, rename="camel", gc=False):
    pass


class Metadata(_Part):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class Resources(_Part):
    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None


class Container(_Part):
    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None


class PodSpec(_Part):
    node_name: str | None = None
    service_account_name: str | None = None
    priority: int | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: dict[str, Quantity] | None = None
    resources: Resources | None = None  # of the pod as a whole
    scheduling_group: msgspec.Raw = msgspec.Raw()
    workload_ref: msgspec.Raw = msgspec.Raw()


class Condition(_Part):
    type: str = ""
    status: str = ""


class PodStatus(_Part):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    start_time: str | None = None
    conditions: list[Condition] | None = None


def has_binding(status: PodStatus | None) -> bool:
    """Whether a Binding gave the pod its node: the API server writes this condition with it; for others, kubelet does later."""
    conditions = (status.conditions if status else None) or ()
    return any(condition.type == "PodScheduled" and condition.status == "True" for condition in conditions)


class Pod(_Part):
    metadata: Metadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus | None = None


class Preferred(_Part):
    preferred: list[msgspec.Raw] | None = msgspec.field(name="preferredDuringSchedulingIgnoredDuringExecution", default=None)


class Affinity(_Part):
    node_affinity: Preferred | None = None
    pod_affinity: Preferred | None = None
    pod_anti_affinity: Preferred | None = None


class SpreadConstraint(_Part):
    when_unsatisfiable: str | None = None


class SpecWithPreferences(PodSpec):
    affinity: Affinity | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None


class PodToSchedule(_Part):
    """A pod as kube-scheduler sends it, with what it prefers."""

    metadata: Metadata
    spec: SpecWithPreferences = msgspec.field(default_factory=SpecWithPreferences)
    status: PodStatus | None = None


class Address(_Part):
    type: str = ""
    address: str = ""


class NodeStatus(_Part):
    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None
    addresses: list[Address] | None = None


class Node(_Part):
    metadata: Metadata
    status: NodeStatus | None = None


class AnyObject(_Part):
    metadata: Metadata


pod_decoder: Decoder[Pod] = Decoder(Pod)
node_decoder: Decoder[Node] = Decoder(Node)
metadata_decoder: Decoder[AnyObject] = Decoder(AnyObject)


def version_of(metadata: Metadata) -> int:
    return version_number(metadata.resource_version)
