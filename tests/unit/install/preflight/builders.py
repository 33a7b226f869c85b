"""Objects of clusters for tests of preflight."""

from collections.abc import Mapping

from accelshare.install.preflight.snapshot import (
    ContainerWithCommand,
    NodeInfo,
    NodeWithVersions,
    PodWithCommands,
    Service,
    ServicePort,
    ServiceSpec,
    SpecWithCommands,
    StatusWithVersions,
    Template,
    TemplateSpec,
    Workload,
    WorkloadSpec,
)
from accelshare.wire import inventory
from accelshare.wire.inventory import KindEntry
from accelshare.wire.objects import Metadata, Quantity, Resources


def node(
    name: str,
    *,
    kubelet: str = "v1.36.4",
    runtime: str = "containerd://2.4.2",
    labels: dict[str, str] | None = None,
    gives: dict[str, str] | None = None,
    inventory_entries: dict[str, KindEntry] | None = None,
) -> NodeWithVersions:
    """`inventory_entries`: what its agent published."""
    annotations = {inventory.KEY: inventory.write(inventory_entries)} if inventory_entries is not None else None
    status = StatusWithVersions(allocatable=dict(gives or {}), node_info=NodeInfo(kubelet, runtime))
    return NodeWithVersions(Metadata(name, labels=labels, annotations=annotations), status)


def pod(
    name: str, limits: Mapping[str, str | int], *, on: str = "n1", annotations: dict[str, str] | None = None
) -> PodWithCommands:
    amounts: dict[str, Quantity] = dict(limits)
    spec = SpecWithCommands(node_name=on, containers=[ContainerWithCommand(resources=Resources(limits=amounts))])
    return PodWithCommands(Metadata(name, "default", annotations=annotations), spec)


def scheduler_pod(node_name: str, *words: str, static: bool = True, namespace: str = "kube-system") -> PodWithCommands:
    annotations = {"kubernetes.io/config.mirror": "hash"} if static else None
    labels = {"component": "kube-scheduler"}
    metadata = Metadata(f"kube-scheduler-{node_name}", namespace, labels=labels, annotations=annotations)
    container = ContainerWithCommand(command=["kube-scheduler", *words])
    return PodWithCommands(metadata, SpecWithCommands(node_name=node_name, containers=[container]))


def workload(
    name: str,
    namespace: str = "kube-system",
    labels: dict[str, str] | None = None,
    *,
    replicas: int = 1,
    selector: dict[str, str] | None = None,
) -> Workload:
    return Workload(Metadata(name, namespace, labels=labels), WorkloadSpec(replicas, Template(TemplateSpec(selector or {}))))


def service(name: str, *node_ports: int, labels: dict[str, str] | None = None) -> Service:
    return Service(
        Metadata(name, "kube-system", labels=labels), ServiceSpec(tuple(ServicePort(12345, port) for port in node_ports))
    )
