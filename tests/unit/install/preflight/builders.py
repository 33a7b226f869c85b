"""Words for clusters that a preflight looks at."""

from accelshare.install.preflight.objects import (
    Container,
    Metadata,
    Node,
    NodeInfo,
    NodeStatus,
    Pod,
    PodSpec,
    Resources,
    Service,
    ServicePort,
    ServiceSpec,
    Template,
    TemplateSpec,
    Workload,
    WorkloadSpec,
)
from accelshare.wire import inventory
from accelshare.wire.inventory import KindEntry


def node(
    name: str,
    *,
    kubelet: str = "v1.36.4",
    runtime: str = "containerd://2.4.2",
    labels: dict[str, str] | None = None,
    gives: dict[str, str] | None = None,
    tells: dict[str, KindEntry] | None = None,
) -> Node:
    """`tells` is what its agent has written there."""
    annotations = {inventory.KEY: inventory.write(tells)} if tells is not None else None
    return Node(Metadata(name, labels=labels, annotations=annotations), NodeStatus(NodeInfo(kubelet, runtime), gives or {}))


def pod(name: str, limits: dict[str, str | int], *, on: str = "n1", annotations: dict[str, str] | None = None) -> Pod:
    containers = (Container(resources=Resources(limits=limits)),)
    return Pod(Metadata(name, "default", annotations=annotations), PodSpec(on, containers))


def scheduler_pod(node_name: str, *words: str, static: bool = True, namespace: str = "kube-system") -> Pod:
    annotations = {"kubernetes.io/config.mirror": "hash"} if static else None
    metadata = Metadata(f"kube-scheduler-{node_name}", namespace, {"component": "kube-scheduler"}, annotations)
    return Pod(metadata, PodSpec(node_name, (Container(command=("kube-scheduler", *words)),)))


def workload(
    name: str,
    namespace: str = "kube-system",
    labels: dict[str, str] | None = None,
    *,
    replicas: int = 1,
    selector: dict[str, str] | None = None,
) -> Workload:
    return Workload(Metadata(name, namespace, labels), WorkloadSpec(replicas, Template(TemplateSpec(selector or {}))))


def service(name: str, *node_ports: int, labels: dict[str, str] | None = None) -> Service:
    return Service(Metadata(name, "kube-system", labels), ServiceSpec(tuple(ServicePort(12345, port) for port in node_ports)))
