"""A manager killed at every single step, by a real SIGKILL in a process of its own; the cluster's side is real."""

import asyncio
import json
import secrets
import shutil
import ssl
import urllib.request
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelshare.install.certificates.renewal import Lifetimes
from accelshare.install.certificates.secrets import Names
from accelshare.install.host_files.disk import Disk
from accelshare.install.scheduler import static_pod
from accelshare.install.scheduler.host import HostState
from accelshare.install.scheduler.manager.node_reconciler import ManagedNode, NodeReconciler
from accelshare.install.scheduler.plan import CHECKSUM
from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.named_data import Place
from cluster.control_plane import ControlPlane
from tests.e2e.node_reconcilers import LEFT, USER, extender_of, intent
from tests.e2e.rights import STATE, grant
from tests.e2e.scheduling_cluster import open_scheduling_cluster
from tests.unit.install.host_files.ending import killed_at
from tests.unit.install.scheduler.builders import KUBEADM, Host

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning is pure, and the same host is killed again and again."""
    monkeypatch.setattr(static_pod, "plan", cache(static_pod.plan))
    monkeypatch.setattr(static_pod, "existing_path", cache(static_pod.existing_path))


@pytest.fixture
def steps(control_plane: ControlPlane, tmp_path: Path) -> Iterator["Steps"]:
    made = Steps(control_plane, tmp_path)
    yield made
    made.clear()


class Steps:
    """The same as above without an event loop of its own between two looks, so that a look can be made in a child process."""

    def __init__(self, plane: ControlPlane, root: Path) -> None:
        self.plane = plane
        self.root = root
        self.namespace = ""

        async def prepare() -> None:
            async with open_scheduling_cluster(plane, root) as scheduling_cluster:
                self.namespace = f"killing-{secrets.token_hex(4)}"
                await scheduling_cluster.create(
                    "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
                )
                await grant(scheduling_cluster, USER, self.namespace)

        asyncio.run(prepare())
        self.kubeconfig = plane.kubeconfig_for(USER)
        tls = ssl.create_default_context(cafile=str(plane.ca_file))
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
        self.plane.kubectl("-n", self.namespace, "create", "service", "clusterip", "accelshare-extender", "--tcp=12345")
        self.plane.kubectl("-n", self.namespace, "create", "configmap", STATE, "--from-literal=wanted=applied")

    def clear(self) -> None:
        self.plane.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def want(self, what: str) -> None:
        self._ask("PATCH", json.dumps({"data": {"wanted": what}}).encode())

    def state(self) -> str:
        return str(self._ask("GET")["data"].get("node.cp-1", ""))

    def _ask(self, method: str, body: bytes | None = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.plane.token}", "Content-Type": "application/merge-patch+json"}
        url = f"{self.plane.url}/api/v1/namespaces/{self.namespace}/configmaps/{STATE}"
        request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310 – ours
        with self._opener.open(request, timeout=120) as answer:
            return dict(json.load(answer))

    def look(self, host: Host, disk: Disk | None = None) -> None:
        async def once() -> None:
            async with Client(config.load(self.kubeconfig), user_agent="accelshare-tests") as client:
                place = Place("ConfigMap", self.namespace, STATE)
                task = ManagedNode("cp-1", Names(self.namespace), Lifetimes(), place, STATE, 12345)
                await NodeReconciler(
                    client,
                    task,
                    host.scheduler_host(disk),
                    make_intent=intent,
                    scheduler=lambda _scheduler_host: host.kubelet,
                    patience=host.kubelet.patience,
                ).reconcile()

        asyncio.run(once())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_killed_at_every_step(steps: Steps) -> None:
    """Of putting in and of taking out: kubelet finds a whole manifest, the next look finishes, and at the end nothing is left."""
    for step in range(1000):
        root = steps.root / "cp-1"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        host = Host(root)
        steps.want("applied")
        applying = killed_at(step, lambda disk, host=host: steps.look(host, disk))  # type: ignore[misc]
        whole(host)
        steps.look(host)
        assert (host.state(), steps.state()) == (HostState.INSTALLED, "applied"), step
        steps.want("restored")
        restoring_ = killed_at(step, lambda disk, host=host: steps.look(host, disk))  # type: ignore[misc]
        whole(host)
        steps.look(host)
        assert (host.places(), steps.state()) == (LEFT, "restored"), step
        assert host.manifest.read_bytes() == KUBEADM
        if not applying and not restoring_:
            assert step > 30
            return
    raise AssertionError("it never ends")


def whole(host: Host) -> None:
    content = host.manifest.read_bytes()
    assert yaml.load(content, yaml.CSafeLoader)["kind"] == "Pod"
    if CHECKSUM.encode() in content:
        tls = extender_of(host)["tlsConfig"]
        assert all(Path(tls[key]).read_text() for key in ("caFile", "certFile", "keyFile"))
