"""Install, upgrade, uninstall: every command of the page with the real helm and kubectl, on a real API server.

There is no kubelet: the porter runs what hook Jobs say with their own accounts. Each section begins with nothing installed.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from cluster.https import free_port
from tests.contract.docs.machine import Machine
from tests.contract.docs.pages import ROOT, Command, sections
from tests.contract.docs.play import Play
from tests.contract.docs.test_scheduler_config import UNIT
from tests.e2e.install.porter import on_duty
from tests.e2e.scheduling_cluster import SchedulingCluster
from tests.e2e.test_scheduler_config import Node

pytestmark = pytest.mark.real
PAGE = "docs/how-to/install.md"
KUBE_SYSTEM = "kube-system"


@contextlib.asynccontextmanager
async def a_stay(
    scheduling_cluster: SchedulingCluster,
    machine: Machine,
    directory: Path,
    namespace: str = KUBE_SYSTEM,
    values: Mapping[str, str] | None = None,
) -> AsyncIterator[Play]:
    """Whatever a section has installed is gone after it."""
    directory.mkdir()
    # A house has the rights of an extender that runs by hand; the chart brings its own of the same name.
    scheduling_cluster.plane.kubectl("delete", "--ignore-not-found", "--filename", str(ROOT / "deploy/extender-rbac.yaml"))
    async with on_duty(scheduling_cluster, directory, namespace) as porter:
        try:
            yield Play(machine, values)
        finally:
            gone = f"helm uninstall accelshare --ignore-not-found --namespace {namespace}"
            done = await asyncio.to_thread(machine.type, gone)
        assert (done.code, [run for run in porter.runs if run.code != 0]) == (0, []), done.err


def in_prose(words: str) -> Command:
    """A command that stands in a sentence."""
    (found,) = re.findall(rf"`({re.escape(words)}[^`]*)`", (ROOT / PAGE).read_text(encoding="utf-8"))
    return Command(PAGE, 0, "", found)


async def test_install(scheduling_cluster: SchedulingCluster, operators_machine: Machine, tmp_path: Path) -> None:
    told = sections(PAGE)
    for name in ("worker-0", "worker-1"):
        await scheduling_cluster.node(name, {})

    async with a_stay(scheduling_cluster, operators_machine, tmp_path / "kubeadm") as play:
        await play.go(told.pop("On a kubeadm cluster"))
        assert "wanted: applied" in play.out("kubectl get configmap")
        nodes = scheduling_cluster.plane.kubectl("get", "nodes", "--selector=gpushare=true", "--output=name").split()
        assert nodes == ["node/worker-0", "node/worker-1"]
        await play.go([in_prose("kubectl label node worker-0")])
        scheduling_cluster.plane.kubectl("delete", "--filename", str(ROOT / "examples/nvidia/app.yaml"))
    await Play(operators_machine).go(told.pop("With the scripts"))

    async with a_stay(scheduling_cluster, operators_machine, tmp_path / "plain") as play:
        await play.go(told.pop("Without helm"))
        scheduling_cluster.plane.kubectl("delete", "--filename", str(ROOT / "deploy/manifests/kunlun/samples/xpu_pod.yaml"))

    async with a_stay(scheduling_cluster, operators_machine, tmp_path / "binary") as play:
        scheduler_of_systemd(scheduling_cluster, operators_machine, tmp_path / "node")
        await play.go(told.pop("Binary installations"))
        assert operators_machine.read("/etc/kubernetes/accelshare/tls.crt").startswith("-----BEGIN CERTIFICATE-----")
        await play.go([in_prose("accelshare scheduler-config restore --target systemd")])
        operators_machine.must("systemctl stop kube-scheduler")

    async with a_stay(scheduling_cluster, operators_machine, tmp_path / "second", "accelshare") as play:
        second = told.pop("Managed clusters")
        await play.go([*second, in_prose("kubectl label namespace accelshare")])
    assert [command.words for command in told.pop("OpenShift")] == [command.words for command in second]

    async with a_stay(scheduling_cluster, operators_machine, tmp_path / "vendors") as play:
        uninstall, *why = told.pop("Uninstall")
        for part in (told.pop("Several vendors"), told.pop("Upgrade"), why, [uninstall]):
            await play.go(part)
    assert told == {}
    scheduling_cluster.plane.kubectl("delete", "namespace", "accelshare", "--wait=false")


async def test_readme(scheduling_cluster: SchedulingCluster, operators_machine: Machine, tmp_path: Path) -> None:
    async with a_stay(scheduling_cluster, operators_machine, tmp_path / "readme") as play:
        await scheduling_cluster.node("worker-0", {})
        for part in sections("README.md").values():
            await play.go(part)


def scheduler_of_systemd(scheduling_cluster: SchedulingCluster, machine: Machine, directory: Path) -> None:
    """A kube-scheduler that a unit starts."""
    directory.mkdir()
    node = Node(scheduling_cluster.plane, directory)
    unit = UNIT.format(program=node.programs["kube-scheduler"], kubeconfig=node.kubeconfig, port=free_port())
    machine.write("/etc/systemd/system/kube-scheduler.service", unit)
