"""Control-plane nodes as directories, their caretakers, and a namespace of the real API server as the chart would make it.

Each node has kubeadm's manifest and a kubelet that does as told. Belongs here: words to set a scene. Never: expectations.
"""

import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from accelshare.certificates.keeping import Names
from accelshare.certificates.renewal import Lives
from accelshare.files.disk import Disk
from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.leases import Lease
from accelshare.kube.named_data import Place
from accelshare.scheduler_config.managing import restoring
from accelshare.scheduler_config.managing.caretaker import Caretaker, Task
from accelshare.scheduler_config.plan import Intent
from accelshare.scheduler_config.release import parse
from accelshare.scheduler_config.site import Site
from accelshare.scheduler_config.wish import Tls, Wish
from tests.e2e.house import House, Object
from tests.e2e.rights import STATE, grant
from tests.unit.scheduler_config.builders import RESOURCES, Host

USER = "accelshare-scheduler-manager"
LEFT = {"manifests", "manifests/kube-scheduler.yaml"}  # on a host that has nothing of ours


def intent(site: Site, url: str, tls: Tls | None) -> Intent:
    return Intent(Wish(url, RESOURCES, tls), parse("v1.36.4"), str(site.directory))


class Cluster:
    """A namespace with a chart's ConfigMap and Service, and control-plane nodes as directories."""

    def __init__(self, house: House, client: Client, namespace: str, root: Path) -> None:
        self.house = house
        self.client = client  # the managers'
        self.namespace = namespace
        self.root = root
        self.place = Place("ConfigMap", namespace, STATE)
        self.now = datetime.now(UTC)

    def host(self, name: str) -> Host:
        root = self.root / name
        root.mkdir(exist_ok=True)
        return Host(root)

    def caretaker(self, name: str, host: Host, *, disk: Disk | None = None, **task: Any) -> Caretaker:
        made = Task(name, Names(self.namespace), Lives(), self.place, STATE, 12345)
        return Caretaker(
            self.client,
            replace(made, **task),
            host.site(disk),
            make_intent=intent,
            scheduler=lambda _site: host.kubelet,
            patience=host.kubelet.patience,
            now=lambda: self.now,
        )

    async def board(self) -> dict[str, str]:
        found = await self.house.read(f"/api/v1/namespaces/{self.namespace}/configmaps/{STATE}")
        return dict(found.get("data") or {})

    async def states(self) -> dict[str, str]:
        return {key.removeprefix("node."): value for key, value in (await self.board()).items() if key.startswith("node.")}

    async def write(self, **data: str | None) -> None:
        await self.house.patch(f"/api/v1/namespaces/{self.namespace}/configmaps/{STATE}", {"data": data})

    async def events(self) -> dict[str, str]:
        found = await self.house.read(f"/api/v1/namespaces/{self.namespace}/events")
        return {event["reason"]: event["message"] for event in found["items"] if event["involvedObject"]["name"] == STATE}

    async def service(self) -> str:
        content: Object = {"metadata": {"name": "accelshare-extender"}, "spec": {"ports": [{"port": 12345}]}}
        place = f"/api/v1/namespaces/{self.namespace}/services"
        return str((await self.house.create(place, {"apiVersion": "v1", "kind": "Service", **content}))["spec"]["clusterIP"])

    async def remove_service(self) -> None:
        await self.house.delete(f"/api/v1/namespaces/{self.namespace}/services/accelshare-extender")

    async def restore_all(self, limit_s: float = 60.0) -> list[str]:
        said: list[str] = []
        lease = Lease(self.house.client, self.namespace, STATE, identity="restore-all")
        await restoring.restore_all(self.house.client, self.place, lease, limit_s=limit_s, say=said.append)
        return said


@contextlib.asynccontextmanager
async def open_cluster(house: House, root: Path) -> AsyncIterator[Cluster]:
    namespace = f"managing-{secrets.token_hex(4)}"
    await house.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    await grant(house, USER, namespace)
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": STATE}, "data": {"wanted": "applied"}}
    await house.create(f"/api/v1/namespaces/{namespace}/configmaps", config_map)
    async with Client(config.load(house.plane.kubeconfig_for(USER)), user_agent="accelshare-tests") as client:
        yield Cluster(house, client, namespace, root)
    await house.delete(f"/api/v1/namespaces/{namespace}")


def extender_of(host: Host) -> Object:
    found: Object = yaml.safe_load(host.config.read_text())["extenders"][0]
    return found
