"""A small cluster as the API server would send it: JSON in, a LiveCluster out.

Belongs here: objects of a healthy installation, and the door that decodes them. Never: assertions.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from accelshare.doctor.live_cluster import LiveCluster
from accelshare.doctor.objects import LiveLease, LiveNode, LivePod
from accelshare.install.preflight.snapshot import Service, Workload
from accelshare.kube.named_data import Place
from accelshare.vendors import catalog
from accelshare.wire.decoding import Decoder

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
OLD = "2026-05-01T11:00:00Z"
NAMESPACE = "kube-system"
PART_OF = {"app.kubernetes.io/part-of": "accelshare", "app.kubernetes.io/name": "accelshare"}
IMAGE = "accelshare:0.2"
CATALOG = catalog.load([])
Json = dict[str, Any]


def labelled(component: str) -> dict[str, str]:
    return {**PART_OF, "app.kubernetes.io/component": component}


def ready_status(*, ready: bool = True) -> Json:
    return {"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}


def part_pod(name: str, component: str, *, node: str = "n1", account: str = "", words: Sequence[str] = (), **more: Any) -> Json:
    """A pod of accelshare; `more`: ready, image, labels."""
    labels = {**labelled(component), **more.get("labels", {})}
    container = {"name": "main", "image": more.get("image", IMAGE), "args": [component, *words]}
    container["ports"] = [{"name": "probes", "containerPort": 12346}]
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "labels": labels, "creationTimestamp": OLD},
        "spec": {"nodeName": node, "serviceAccountName": account or f"accelshare-{component}", "containers": [container]},
        "status": ready_status(ready=more.get("ready", True)),
    }


def inventory(**changes: Any) -> str:
    cards = [{"index": index, "size": 16, "id": f"GPU-{index}"} for index in range(2)]
    kind = {"cards": cards, "unit": "GiB", "delivery": "nri", "insists": True, **changes}
    return json.dumps({"nvidia": kind})


def node(name: str = "n1", *, entries: str | None = None, ready: bool = True, **more: Any) -> Json:
    annotations = {"accelshare.io/inventory": inventory() if entries is None else entries}
    return {
        "metadata": {
            "name": name,
            "resourceVersion": "5",
            "labels": {"gpushare": "true", **more.get("labels", {})},
            "annotations": annotations,
        },
        "spec": more.get("spec", {}),
        "status": {
            "allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "nodeInfo": {"kubeletVersion": "v1.36.4", "containerRuntimeVersion": more.get("runtime", "containerd://2.4.2")},
        },
    }


def asking(name: str, units: int = 4, *, on: str = "", message: str | None = "0/1 nodes are available", **more: Any) -> Json:
    """A pod of a user that requests a slice; `more`: annotations, spec."""
    status: Json = {"phase": "Running" if on else "Pending"}
    if message is not None and not on:
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
    spec = {"containers": [{"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": str(units)}}}], **more.get("spec", {})}
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "resourceVersion": "9",
            "creationTimestamp": more.get("created", OLD),
            "annotations": more.get("annotations", {}),
            "labels": more.get("labels", {}),
        },
        "spec": {**spec, **({"nodeName": on} if on else {})},
        "status": status,
    }


def scheduler(node_name: str = "n1", *, configured: bool = True, words: Sequence[str] = ()) -> Json:
    annotations = {"kubernetes.io/config.mirror": "hash"}
    if configured:
        annotations["checksum/accelshare-scheduler-config"] = "1"
    return {
        "metadata": {
            "name": f"kube-scheduler-{node_name}",
            "namespace": NAMESPACE,
            "uid": f"uid-scheduler-{node_name}",
            "labels": {"component": "kube-scheduler"},
            "annotations": annotations,
        },
        "spec": {"nodeName": node_name, "containers": [{"name": "kube-scheduler", "command": ["kube-scheduler", *words]}]},
        "status": ready_status(),
    }


def workload(name: str, component: str, **spec: Any) -> Json:
    return {"metadata": {"name": name, "namespace": NAMESPACE, "labels": labelled(component)}, "spec": spec}


def extender_service(name: str = "accelshare-extender", port: int = 12345) -> Json:
    selector = {"app.kubernetes.io/name": "accelshare", "app.kubernetes.io/component": "extender"}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labelled("extender")}
    return {"metadata": metadata, "spec": {"ports": [{"port": port}], "selector": selector}}


def lease(name: str, namespace: str = "kube-node-lease", *, renewed: str = OLD, written: str = OLD) -> Json:
    metadata = {"name": name, "namespace": namespace, "managedFields": [{"time": written}]}
    return {"metadata": metadata, "spec": {"holderIdentity": name, "renewTime": renewed}}


@dataclass
class Objects:
    """The objects of a healthy installation on one node, to be changed before they are decoded."""

    nodes: list[Json] = field(default_factory=lambda: [node()])
    pods: list[Json] = field(
        default_factory=lambda: [
            part_pod(
                "extender-1", "extender", words=["--agent-namespace=kube-system", "--agent-service-account=accelshare-agent"]
            ),
            part_pod("agent-1", "agent", labels={"accelshare.io/agent": "true"}),
            part_pod("manager-1", "scheduler-manager", words=["--service=accelshare-extender", "--port=12345"]),
            scheduler(),
        ]
    )
    services: list[Json] = field(default_factory=lambda: [extender_service()])
    deployments: list[Json] = field(default_factory=lambda: [workload("accelshare-extender", "extender", replicas=1)])
    daemon_sets: list[Json] = field(
        default_factory=lambda: [
            workload("accelshare-agent", "agent"),
            workload("accelshare-scheduler-manager", "scheduler-manager"),
        ]
    )
    leases: list[Json] = field(default_factory=lambda: [lease("n1")])
    config_maps: dict[Place, Mapping[str, str]] = field(
        default_factory=lambda: {
            Place("ConfigMap", NAMESPACE, "accelshare-scheduler-config"): {"wanted": "applied", "node.n1": "applied"}
        }
    )

    def live(self, **more: Any) -> LiveCluster:
        def decoded(kind: type, objects: list[Json]) -> tuple[Any, ...]:
            return tuple(Decoder(kind).decode(json.dumps(each)) for each in objects)

        return LiveCluster(
            CATALOG,
            NOW,
            "v1.36.4",
            timedelta(seconds=60),
            decoded(LiveNode, self.nodes),
            decoded(LivePod, self.pods),
            decoded(Service, self.services),
            decoded(Workload, self.deployments),
            decoded(Workload, self.daemon_sets),
            decoded(LiveLease, self.leases),
            self.config_maps,
            **more,
        )

    def pod(self, name: str) -> Json:
        return next(pod for pod in self.pods if pod["metadata"]["name"] == name)
