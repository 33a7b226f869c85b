"""Everything that the checks know about a running cluster, as one value.

Belongs here: the value, and which objects in it belong to accelshare. Never: reading a cluster, judging.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from accelshare.doctor.objects import LiveLease, LiveNode, LivePod
from accelshare.install.preflight.snapshot import Service, Snapshot, Workload, is_ours
from accelshare.kube.named_data import Place
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.report.cluster_state import NodeConstraints
from accelshare.vendors.catalog import Catalog
from accelshare.wire.nodes import NodeReader
from accelshare.wire.pods import AGENT_LABEL, AgentIdentity, PodReader, needs_of
from accelshare.wire.quantity import thousandths, whole_number

# What is read from a cluster, each with a right of its own; the keys of `unread`.
NODES: Final = "nodes"
PODS: Final = "pods"
SERVICES: Final = "services"
DEPLOYMENTS: Final = "deployments"
DAEMON_SETS: Final = "daemonsets"
LEASES: Final = "leases"
CONFIG_MAPS: Final = "configmaps of accelshare"
SECRETS: Final = "secrets of accelshare"
PAGES: Final = "metrics of extenders and agents"

COMPONENT: Final = "app.kubernetes.io/component"
EXTENDER: Final = "extender"
AGENT: Final = "agent"
MANAGER: Final = "scheduler-manager"
SECOND_SCHEDULER: Final = "second-scheduler"
_DEFAULT_IDENTITY: Final = AgentIdentity("kube-system", "accelshare-agent")


@dataclass(frozen=True, slots=True)
class LiveCertificate:
    """One certificate of accelshare. `problem`: why it cannot be read."""

    place: str
    made: datetime | None = None
    until: datetime | None = None
    problem: str = ""


@dataclass(frozen=True)
class LiveCluster:
    """A snapshot of a running cluster. `unread`: what could not be read, with the reason."""

    catalog: Catalog
    now: datetime
    version: str = ""
    patience: timedelta = timedelta(seconds=60)  # a pod that waits for less is not judged
    nodes: tuple[LiveNode, ...] = ()
    pods: tuple[LivePod, ...] = ()
    services: tuple[Service, ...] = ()
    deployments: tuple[Workload, ...] = ()
    daemon_sets: tuple[Workload, ...] = ()
    leases: tuple[LiveLease, ...] = ()
    config_maps: Mapping[Place, Mapping[str, str]] = field(default_factory=dict)
    certificates: tuple[LiveCertificate, ...] = ()
    pages: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by pod, as namespace/name: the series of its metrics
    unread: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def snapshot(self) -> Snapshot:
        """The part that the checks of preflight see."""
        return Snapshot(
            version=self.version,
            nodes=self.nodes,
            pods=self.pods,
            services=self.services,
            deployments=self.deployments,
            daemon_sets=self.daemon_sets,
            unread=self.unread,
        )

    @cached_property
    def requests(self) -> Mapping[str, PodSeen]:
        """The pods that request cards, by uid."""
        reader = PodReader(self.catalog, agents=self.agent_identity)
        facts = [reader.fact(pod) for pod in self.pods]
        return {fact.uid: fact for fact in facts if fact is not None}

    @cached_property
    def ledger(self) -> Ledger:
        """The sums over all nodes and pods, as the extender has them."""
        ledger = Ledger()
        read = NodeReader(self.catalog).fact
        for node in self.nodes:
            ledger.apply(read(node))
        for pod in self.requests.values():
            ledger.apply(pod)
        return ledger

    @cached_property
    def labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each node."""
        return {node.metadata.name: node.labels for node in self.nodes}

    @cached_property
    def constraints(self) -> Mapping[str, NodeConstraints]:
        """What keeps pods from each node, beside cards."""
        taken: dict[str, dict[str, int]] = {}
        count: dict[str, int] = {}
        for pod in self.pods:
            if node := pod.spec.node_name:
                count[node] = count.get(node, 0) + 1
                for resource, amount in needs_of(pod):
                    sums = taken.setdefault(node, {})
                    sums[resource] = sums.get(resource, 0) + amount
        found: dict[str, NodeConstraints] = {}
        for each in self.nodes:
            name, amounts = each.metadata.name, each.status.allocatable or {}
            allocatable: dict[str, int] = {
                resource: thousandths(amounts[resource]) for resource in ("cpu", "memory") if resource in amounts
            }
            most = whole_number(amounts.get("pods"))
            allocatable |= {"pods": most} if most is not None else {}
            cordoned, taints = bool(each.spec.unschedulable), each.spec.taints or ()
            found[name] = NodeConstraints(cordoned, taints, allocatable, taken.get(name, {}), count.get(name, 0))
        return found

    def ours(self, component: str, workloads: tuple[Workload, ...]) -> list[Workload]:
        """The workloads of accelshare of this component."""
        return [each for each in workloads if is_ours(each.metadata) and (each.metadata.labels or {}).get(COMPONENT) == component]

    @cached_property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces in which accelshare is installed."""
        workloads = (*self.deployments, *self.daemon_sets)
        return tuple(sorted({each.metadata.namespace for each in workloads if is_ours(each.metadata)}))

    def pods_of(self, component: str) -> Iterator[LivePod]:
        """The pods of accelshare of this component; a pod in another namespace only claims to be one."""
        for pod in self.pods:
            if pod.metadata.namespace in self.namespaces and is_ours(pod.metadata) and pod.labels.get(COMPONENT) == component:
                yield pod

    @cached_property
    def agent_identity(self) -> AgentIdentity:
        """Namespace and service account of the agents: as the extender was told, else as the chart names them."""
        for pod in self.pods_of(EXTENDER):
            namespace, account = pod.flag("agent-namespace"), pod.flag("agent-service-account")
            if namespace or account:
                return AgentIdentity(namespace or _DEFAULT_IDENTITY.namespace, account or _DEFAULT_IDENTITY.service_account)
        for workload in self.ours(AGENT, self.daemon_sets):
            return AgentIdentity(workload.metadata.namespace, workload.metadata.name)
        return _DEFAULT_IDENTITY

    @cached_property
    def agents(self) -> Mapping[str, LivePod]:
        """The agent's pod on each node; of several, a ready one."""
        found: dict[str, LivePod] = {}
        for pod in sorted(self.pods, key=lambda pod: pod.ready):
            identity = (pod.metadata.namespace, pod.spec.service_account_name)
            if pod.spec.node_name and AGENT_LABEL in pod.labels and identity == self.agent_identity:
                found[pod.spec.node_name] = pod
        return found

    @cached_property
    def ready_extenders(self) -> tuple[LivePod, ...]:
        return tuple(pod for pod in self.pods_of(EXTENDER) if pod.ready)

    @cached_property
    def extender_services(self) -> tuple[Service, ...]:
        return tuple(
            each for each in self.services if is_ours(each.metadata) and (each.metadata.labels or {}).get(COMPONENT) == EXTENDER
        )


def title(pod: LivePod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
