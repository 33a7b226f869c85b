"""A cluster at one moment, as far as an install is concerned.

Belongs here: what was read, and what could not be. Never: reading it, judging it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from accelshare.install.preflight.objects import Metadata, Node, Pod, Service, Workload
from accelshare.kube.access import Right

PART_OF: Final = "app.kubernetes.io/part-of"
OURS: Final = "accelshare"


class Part(Enum):
    """What can be read of a cluster, each with a right of its own."""

    VERSION = "version"
    NODES = "nodes"
    PODS = "pods"
    SERVICES = "services"
    DEPLOYMENTS = "deployments"
    DAEMON_SETS = "daemonsets"
    LEASE = "lease"
    RIGHTS = "your rights"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that the checks know. `unread` says in words what the API server did not show, by what it is."""

    version: str = ""
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    services: tuple[Service, ...] = ()
    deployments: tuple[Workload, ...] = ()
    daemon_sets: tuple[Workload, ...] = ()
    scheduler_holder: str = ""  # who holds kube-scheduler's Lease: its host's name and an id
    rights: Mapping[Right, bool] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)

    def workloads(self) -> Iterator[tuple[str, Workload]]:
        """Each with its name as Kind/name."""
        for kind, those in (("Deployment", self.deployments), ("DaemonSet", self.daemon_sets)):
            for workload in those:
                yield f"{kind}/{workload.metadata.name}", workload


def ours(metadata: Metadata) -> bool:
    """Whether an install of accelshare made it, under whatever name."""
    return (metadata.labels or {}).get(PART_OF) == OURS
