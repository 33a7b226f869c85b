"""The page 'Configure kube-scheduler' with kubeadm's own manifest and a real kube-scheduler started from it.

Only kubelet and systemd are stand-ins: they start what a manifest and a unit say.
"""

import asyncio
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from cluster.certificates import Authority
from cluster.https import free_port
from tests.contract.docs.machine import Machine
from tests.contract.docs.page_runner import PageRunner
from tests.contract.docs.pages import ROOT, sections
from tests.e2e.scheduling_cluster import SchedulingCluster
from tests.e2e.test_scheduler_config import Node

pytestmark = pytest.mark.real
MANIFEST = "/etc/kubernetes/manifests/kube-scheduler.yaml"
KUBELET = f"""
from pathlib import Path
from cluster.build import binaries
from tests.e2e.test_scheduler_config import Kubelet
Kubelet(Path("{MANIFEST}"), binaries(["kube-scheduler"]), Path("/var/log/pods")).run()
"""
UNIT = """[Service]
ExecStart={program} --kubeconfig={kubeconfig} --authentication-kubeconfig={kubeconfig} \\
  --authorization-kubeconfig={kubeconfig} --leader-elect=false --secure-port={port}
"""


async def test_scheduler_config(scheduling_cluster: SchedulingCluster, throwaway_machine: Machine, tmp_path: Path) -> None:
    machine = throwaway_machine
    page_runner = PageRunner(machine, {r"manage --node-name": "manage --every-s 0.2 --node-name"})
    by_section = sections("docs/how-to/scheduler-config.md")
    node = await control_plane_node(scheduling_cluster, machine, tmp_path)

    await page_runner.run(by_section.pop("On a kubeadm cluster")[:3])
    assert "+    - --config=" in page_runner.out("accelshare scheduler-config plan")
    certificates(machine, tmp_path)
    await page_runner.run(sections("docs/how-to/scheduler-config.md")["On a kubeadm cluster"][3:])
    await page_runner.run(by_section.pop("Put it back"))
    assert machine.read(MANIFEST) == node.original.decode()

    await chart(scheduling_cluster)
    for title in ("On every control-plane node by itself", "When a node failed"):
        await page_runner.run(by_section.pop(title))
    assert "wanted: applied" in page_runner.out("kubectl -n kube-system get configmap")
    await scheduling_cluster.until(lambda: stands(scheduling_cluster), "the manager has looked again")
    await page_runner.run(by_section.pop("Put it back everywhere"))
    assert "cp-1: restored" in page_runner.out("accelshare scheduler-config manage --restore-all")
    assert machine.read(MANIFEST) == node.original.decode()
    await page_runner.end()

    unit = UNIT.format(program=node.programs["kube-scheduler"], kubeconfig=node.kubeconfig, port=free_port())
    machine.write("/etc/systemd/system/kube-scheduler.service", unit)
    await page_runner.run(by_section.pop("Binary installations (systemd)"))
    assert "--config=" in machine.read("/etc/systemd/system/kube-scheduler.service.d/50-accelshare.conf")

    for part in by_section.values():
        await page_runner.run(part)
    rendered = page_runner.out("accelshare scheduler-config render --kubernetes-version 1.36")
    assert yaml.safe_load(rendered)["extenders"][0]["urlPrefix"] == "http://127.0.0.1:12345/accelshare"
    scheduling_cluster.plane.kubectl("delete", "--filename=-", stdin=machine.read("second-scheduler.yaml"))


async def control_plane_node(scheduling_cluster: SchedulingCluster, machine: Machine, directory: Path) -> Node:
    """kubeadm's manifest in its place, and somebody who starts what it says."""
    root = directory / "node"
    root.mkdir()
    node = Node(scheduling_cluster.plane, root)
    machine.write(MANIFEST, node.original)
    machine.begin(f"PYTHONPATH={shlex.quote(str(ROOT))} {sys.executable} -c {shlex.quote(KUBELET)}")
    await scheduling_cluster.until(lambda: node.health.check_health().healthy, "kubeadm's kube-scheduler is healthy")
    return node


def certificates(machine: Machine, directory: Path) -> None:
    """Where the page says that they lie."""
    authority = Authority(directory / "certificates")
    client = authority.client_certificate("kube-scheduler")
    for name, file in zip(("ca.crt", "client.crt", "client.key"), (authority.file, *client), strict=True):
        machine.write(f"/etc/kubernetes/accelshare/{name}", file.read_bytes())


async def stands(scheduling_cluster: SchedulingCluster) -> bool:
    board = await scheduling_cluster.read("/api/v1/namespaces/kube-system/configmaps/accelshare-scheduler-config")
    return bool(board["data"].get("node.cp-1") == "applied")


async def chart(scheduling_cluster: SchedulingCluster) -> None:
    """What the chart makes for a manager."""
    where = "/api/v1/namespaces/kube-system"
    state = {"metadata": {"name": "accelshare-scheduler-config"}, "data": {"wanted": "applied"}}
    service = {"metadata": {"name": "accelshare-extender"}, "spec": {"ports": [{"port": 12345}]}}
    await asyncio.gather(
        scheduling_cluster.create(f"{where}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", **state}),
        scheduling_cluster.create(f"{where}/services", {"apiVersion": "v1", "kind": "Service", **service}),
    )
