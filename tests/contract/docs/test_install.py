"""The page 'Install': all its commands with the real helm and kubectl, on a real API server.

There is no kubelet: the hook runner runs hook Jobs with their own ServiceAccounts. Each section starts with nothing installed.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from cluster.https import free_port
from tests.contract.docs.machine import Machine
from tests.contract.docs.page_runner import PageRunner
from tests.contract.docs.pages import ROOT, Command, sections
from tests.contract.docs.test_scheduler_config import UNIT
from tests.e2e.install.hook_runner import run_hooks
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
) -> AsyncIterator[PageRunner]:
    """Whatever a section has installed is gone after it."""
    directory.mkdir()
    # The scheduling cluster has the rights of an extender outside the cluster; the chart brings its own of the same name.
    scheduling_cluster.plane.kubectl("delete", "--ignore-not-found", "--filename", str(ROOT / "deploy/extender-rbac.yaml"))
    async with run_hooks(scheduling_cluster, directory, namespace) as hook_runner:
        try:
            yield PageRunner(machine, values)
        finally:
            gone = f"helm uninstall accelshare --ignore-not-found --namespace {namespace}"
            done = await asyncio.to_thread(machine.type, gone)
        assert (done.code, [run for run in hook_runner.runs if run.code != 0]) == (0, []), done.err


def in_prose(words: str) -> Command:
    """A command that stands in a sentence."""
    (found,) = re.findall(rf"`({re.escape(words)}[^`]*)`", (ROOT / PAGE).read_text(encoding="utf-8"))
    return Command(PAGE, 0, "", found)


async def test_install(scheduling_cluster: SchedulingCluster, throwaway_machine: Machine, tmp_path: Path) -> None:
    by_section = sections(PAGE)
    for name in ("worker-0", "worker-1"):
        await scheduling_cluster.node(name, {})

    async with a_stay(scheduling_cluster, throwaway_machine, tmp_path / "kubeadm") as page_runner:
        await page_runner.run(by_section.pop("On a kubeadm cluster"))
        assert "wanted: applied" in page_runner.out("kubectl get configmap")
        nodes = scheduling_cluster.plane.kubectl("get", "nodes", "--selector=gpushare=true", "--output=name").split()
        assert nodes == ["node/worker-0", "node/worker-1"]
        await page_runner.run([in_prose("kubectl label node worker-0")])
        scheduling_cluster.plane.kubectl("delete", "--filename", str(ROOT / "examples/nvidia/app.yaml"))
    await PageRunner(throwaway_machine).run(by_section.pop("With the scripts"))

    async with a_stay(scheduling_cluster, throwaway_machine, tmp_path / "plain") as page_runner:
        await page_runner.run(by_section.pop("Without helm"))
        scheduling_cluster.plane.kubectl("delete", "--filename", str(ROOT / "deploy/manifests/kunlun/samples/xpu_pod.yaml"))

    async with a_stay(scheduling_cluster, throwaway_machine, tmp_path / "binary") as page_runner:
        scheduler_of_systemd(scheduling_cluster, throwaway_machine, tmp_path / "node")
        await page_runner.run(by_section.pop("Binary installations"))
        assert throwaway_machine.read("/etc/kubernetes/accelshare/tls.crt").startswith("-----BEGIN CERTIFICATE-----")
        await page_runner.run([in_prose("accelshare scheduler-config restore --target systemd")])
        throwaway_machine.must("systemctl stop kube-scheduler")

    async with a_stay(scheduling_cluster, throwaway_machine, tmp_path / "second", "accelshare") as page_runner:
        second = by_section.pop("Managed clusters")
        await page_runner.run([*second, in_prose("kubectl label namespace accelshare")])
    assert [command.words for command in by_section.pop("OpenShift")] == [command.words for command in second]

    async with a_stay(scheduling_cluster, throwaway_machine, tmp_path / "vendors") as page_runner:
        uninstall, *why = by_section.pop("Uninstall")
        for part in (by_section.pop("Several vendors"), by_section.pop("Upgrade"), why, [uninstall]):
            await page_runner.run(part)
    assert by_section == {}
    scheduling_cluster.plane.kubectl("delete", "namespace", "accelshare", "--wait=false")


async def test_readme(scheduling_cluster: SchedulingCluster, throwaway_machine: Machine, tmp_path: Path) -> None:
    async with a_stay(scheduling_cluster, throwaway_machine, tmp_path / "readme") as page_runner:
        await scheduling_cluster.node("worker-0", {})
        for part in sections("README.md").values():
            await page_runner.run(part)


def scheduler_of_systemd(scheduling_cluster: SchedulingCluster, machine: Machine, directory: Path) -> None:
    """A kube-scheduler that a unit starts."""
    directory.mkdir()
    node = Node(scheduling_cluster.plane, directory)
    unit = UNIT.format(program=node.programs["kube-scheduler"], kubeconfig=node.kubeconfig, port=free_port())
    machine.write("/etc/systemd/system/kube-scheduler.service", unit)
