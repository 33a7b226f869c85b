"""Control-plane nodes as directories, their reconcilers, and a namespace of the real API server as the chart creates it.

Each node has kubeadm's manifest and a simulated kubelet. Belongs here: set-up of tests. Never: assertions.
"""

import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from accelshare.install.certificates.renewal import Lifetimes
from accelshare.install.certificates.secrets import Names
from accelshare.install.host_files.disk import Disk
from accelshare.install.scheduler.desired_config import DesiredConfig, TlsFiles
from accelshare.install.scheduler.host import SchedulerHost
from accelshare.install.scheduler.leadership import ReadLease
from accelshare.install.scheduler.manager import state_configmap
from accelshare.install.scheduler.manager.node_reconciler import ManagedNode, NodeReconciler
from accelshare.install.scheduler.plan import Intent
from accelshare.install.scheduler.release import parse
from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.leases import Lease
from accelshare.kube.named_data import Place
from tests.e2e.rights import STATE, grant
from tests.e2e.scheduling_cluster import Object, SchedulingCluster
from tests.unit.install.scheduler.builders import RESOURCES, Host

USER = "accelshare-scheduler-manager"
LEFT = {"manifests", "manifests/kube-scheduler.yaml"}  # on a host that has nothing of ours


def intent(scheduler_host: SchedulerHost, url: str, tls: TlsFiles | None) -> Intent:
    return Intent(DesiredConfig(url, RESOURCES, tls), parse("v1.36.4"), str(scheduler_host.directory))


class Cluster:
    """A namespace with a chart's ConfigMap and Service, and control-plane nodes as directories."""

    def __init__(self, scheduling_cluster: SchedulingCluster, client: Client, namespace: str, root: Path) -> None:
        self.scheduling_cluster = scheduling_cluster
        self.client = client  # the managers'
        self.namespace = namespace
        self.root = root
        self.place = Place("ConfigMap", namespace, STATE)
        self.now = datetime.now(UTC)

    def host(self, name: str) -> Host:
        root = self.root / name
        root.mkdir(exist_ok=True)
        return Host(root)

    def reconciler(
        self, name: str, host: Host, *, disk: Disk | None = None, read_lease: ReadLease | None = None, **task: Any
    ) -> NodeReconciler:
        made = ManagedNode(name, Names(self.namespace), Lifetimes(), self.place, STATE, 12345)
        return NodeReconciler(
            self.client,
            replace(made, **task),
            host.scheduler_host(disk),
            make_intent=intent,
            scheduler=lambda _scheduler_host: host.kubelet,
            patience=host.kubelet.patience,
            read_lease=read_lease,
            host_name=name,
            now=lambda: self.now,
        )

    async def state_map(self) -> dict[str, str]:
        found = await self.scheduling_cluster.read(f"/api/v1/namespaces/{self.namespace}/configmaps/{STATE}")
        return dict(found.get("data") or {})

    async def states(self) -> dict[str, str]:
        return {key.removeprefix("node."): value for key, value in (await self.state_map()).items() if key.startswith("node.")}

    async def write(self, **data: str | None) -> None:
        await self.scheduling_cluster.patch(f"/api/v1/namespaces/{self.namespace}/configmaps/{STATE}", {"data": data})

    async def events(self) -> dict[str, str]:
        found = await self.scheduling_cluster.read(f"/api/v1/namespaces/{self.namespace}/events")
        return {event["reason"]: event["message"] for event in found["items"] if event["involvedObject"]["name"] == STATE}

    async def service(self) -> str:
        content: Object = {"metadata": {"name": "accelshare-extender"}, "spec": {"ports": [{"port": 12345}]}}
        place = f"/api/v1/namespaces/{self.namespace}/services"
        return str(
            (await self.scheduling_cluster.create(place, {"apiVersion": "v1", "kind": "Service", **content}))["spec"]["clusterIP"]
        )

    async def remove_service(self) -> None:
        await self.scheduling_cluster.delete(f"/api/v1/namespaces/{self.namespace}/services/accelshare-extender")

    async def restore_all(self, limit_s: float = 60.0) -> list[str]:
        lines: list[str] = []
        lease = Lease(self.scheduling_cluster.client, self.namespace, STATE, identity="restore-all")
        await state_configmap.restore_all(self.scheduling_cluster.client, self.place, lease, limit_s=limit_s, say=lines.append)
        return lines


@contextlib.asynccontextmanager
async def open_cluster(scheduling_cluster: SchedulingCluster, root: Path) -> AsyncIterator[Cluster]:
    namespace = f"managing-{secrets.token_hex(4)}"
    await scheduling_cluster.create(
        "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    await grant(scheduling_cluster, USER, namespace)
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": STATE}, "data": {"wanted": "applied"}}
    await scheduling_cluster.create(f"/api/v1/namespaces/{namespace}/configmaps", config_map)
    async with Client(config.load(scheduling_cluster.plane.kubeconfig_for(USER)), user_agent="accelshare-tests") as client:
        yield Cluster(scheduling_cluster, client, namespace, root)
    await scheduling_cluster.delete(f"/api/v1/namespaces/{namespace}")


def extender_of(host: Host) -> Object:
    found: Object = yaml.safe_load(host.config.read_text())["extenders"][0]
    return found
