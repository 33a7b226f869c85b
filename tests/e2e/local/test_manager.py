"""The manager on a real control-plane node: kubelet restarts kube-scheduler, which calls the extender over TLS."""

import base64
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ClusterError
from cluster.https import free_port
from cluster.local import LocalCluster
from cluster.process import Process
from cluster.waiting import wait_until
from tests.e2e.local.kubectl_steps import create, delete, pod, read

pytestmark = pytest.mark.real
LIMIT_S = 240.0
STATE = "accelshare-scheduler-config"
SECRETS = ("accelshare-ca", "accelshare-extender-tls", "accelshare-scheduler-tls")
MEMORY, COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"


class Installation:
    """What the chart would make, with the programs as processes of this machine."""

    def __init__(self, local: LocalCluster, directory: Path) -> None:
        self.local = local
        self.directory = directory
        self.port = free_port()
        self.manifest = local.path("/etc/kubernetes/manifests") / "kube-scheduler.yaml"
        self.original = self.manifest.read_bytes()
        self.manager: Process | None = None
        self.extender: Process | None = None

    def make(self) -> None:
        port = {"port": 12345, "targetPort": self.port, "name": "https"}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": named("accelshare-extender"), "spec": {"ports": [port]}}
        slices = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**named("accelshare-extender"), "labels": {"kubernetes.io/service-name": "accelshare-extender"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [self.local.address]}],
            "ports": [{"name": "https", "port": self.port, "protocol": "TCP"}],
        }
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named(STATE), "data": {"wanted": "applied"}}
        for content in (service, slices, config_map):
            self.local.kubectl("apply", "-f", "-", stdin=json.dumps(content))
        self.accelshare("certificates", "ensure")
        tls = self.directory / "tls"
        tls.mkdir()
        secret = self.read("secret", "accelshare-extender-tls")
        for name, value in secret["data"].items():
            (tls / name).write_bytes(base64.b64decode(value))
        files = [f"--tls-cert={tls}/tls.crt", f"--tls-key={tls}/tls.key", f"--client-ca={tls}/ca.crt"]
        where = [f"--listen={self.local.address}:{self.port}", f"--kubeconfig={self.local.kubeconfig}"]
        command = [sys.executable, "-m", "accelshare", "extender", *where, *files]
        self.extender = Process("extender", command, self.directory / "extender.log")
        command = [sys.executable, "-m", "accelshare", "scheduler-config", "manage", f"--kubeconfig={self.local.kubeconfig}"]
        command += [f"--node-name={self.local.node_name}", "--every-s=0.5"]
        self.manager = self.local.run_inside("manager", command, self.directory / "manager.log")

    def read(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.local.kubectl("get", kind, name, "--namespace=kube-system", "--output=json"))
        return found

    def accelshare(self, *words: str) -> str:
        """A command of ours, as the administrator."""
        return self.local.call_inside(sys.executable, "-m", "accelshare", *words, f"--kubeconfig={self.local.kubeconfig}")

    def amounts(self, amount: str | None) -> None:
        amounts = {MEMORY: amount, COUNT: amount and "1"}
        patch = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
        self.local.kubectl("patch", "node", self.local.node_name, "--subresource=status", "--type=merge", f"--patch={patch}")

    def until_applied(self) -> None:
        def applied() -> bool:
            assert self.manager is not None
            assert self.manager.running, self.manager.last_lines()
            try:
                data = self.read("configmap", STATE)["data"]
            except ClusterError:
                return False
            ours = b"accelshare" in self.manifest.read_bytes()
            return ours and data.get(f"node.{self.local.node_name}") == "applied"

        wait_until(applied, "the manager has put it in", LIMIT_S)

    def bound(self, name: str) -> None:
        """A pod that asks for a slice has a card, so kube-scheduler has asked the extender."""
        content = pod(name)
        content["spec"]["containers"][0]["resources"] = {"limits": {MEMORY: "1"}}
        create(self.local, content)

        def card() -> Any:
            found = read(self.local, "pod", name)
            return found["spec"].get("nodeName") and (found["metadata"].get("annotations") or {}).get("accelshare.io/assignment")

        try:
            wait_until(card, f"{name} is bound with a card", LIMIT_S)
        finally:
            delete(self.local, name)

    def left(self) -> list[str]:
        place = self.local.path("/etc/kubernetes")
        return sorted(str(path.relative_to(place)) for path in place.rglob("*accelshare*"))

    def put_back(self) -> None:
        """kubeadm's manifest again, of which nobody reads half."""
        fresh = self.manifest.with_name(".fresh")
        fresh.write_bytes(self.original)
        fresh.chmod(0o600)
        os.replace(fresh, self.manifest)  # noqa: PTH105 – the rename is the point

    def end(self) -> None:
        for process in (self.manager, self.extender):
            if process is not None:
                process.stop()
        self.amounts(None)
        for kind, name in (("service", "accelshare-extender"), ("configmap", STATE), *(("secret", each) for each in SECRETS)):
            self.local.kubectl("delete", kind, name, "--namespace=kube-system", "--ignore-not-found")
        self.local.kubectl("delete", "endpointslice", "accelshare-extender", "--namespace=kube-system", "--ignore-not-found")


def named(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": "kube-system"}


@pytest.fixture
def installation(local: LocalCluster, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(local, tmp_path)
    try:
        made.make()
        yield made
    finally:
        if b"accelshare" in made.manifest.read_bytes():
            made.put_back()
        made.end()


def test_put_in_healed_and_taken_out_by_itself(installation: Installation) -> None:
    """From kubeadm's manifest to a bound pod, through what kubeadm upgrade does, and back to kubeadm's bytes."""
    installation.until_applied()
    installation.amounts("16")
    installation.bound("by-the-manager")

    installation.put_back()
    installation.until_applied()
    installation.bound("after-an-upgrade")

    output = installation.accelshare("scheduler-config", "manage", "--restore-all", "--deadline-s=200")
    assert output.splitlines()[-1] == f"{installation.local.node_name}: restored"
    assert installation.manifest.read_bytes() == installation.original
    assert installation.left() == []
    assert installation.accelshare("certificates", "remove").count("removed") == 3
