"""The migration pages: all their commands on a real API server, there and back."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelshare.vendors import originals
from tests.contract.docs.machine import Machine
from tests.contract.docs.pages import commands, sections
from tests.contract.docs.test_install import a_stay
from tests.e2e.scheduling_cluster import SchedulingCluster

pytestmark = pytest.mark.real
SYSTEMS = {system.page: system for system in originals.load().systems}
PAGES = (
    "docs/migrate-from-gcushare.md",
    "docs/migrate-from-gpushare.md",
    "docs/migrate-from-stc.md",
    "docs/migrate-from-xpushare.md",
)
Object = dict[str, Any]


def workload(kind: str, name: str) -> Object:
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "main", "image": "none", "command": ["x"]}]},
    }
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


class Original:
    """One of the systems that accelshare takes the place of, as its guide installs it."""

    def __init__(self, system: originals.Original, scheduling_cluster: SchedulingCluster, machine: Machine) -> None:
        self.system = system
        self.scheduling_cluster = scheduling_cluster
        self.machine = machine
        self.names = (*system.schedulers, *system.plugins)
        # gcushare's guide installs charts; the others' have plain files.
        self.by_helm = [words for words in commands(system.page) if words.words.startswith("helm get ")] != []

    async def make(self) -> None:
        """Its workloads, and the rest that its guide makes; a pod and a node for the page's POD and NODE."""
        for name in self.names:
            kind, _, called = name.partition("/")
            short = called.removesuffix("-ds")
            objects: list[Object] = [
                workload(kind, called),
                {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": short}},
                {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": short}},
            ]
            if name in self.system.schedulers:
                ports = {"selector": {"app": "x"}, "ports": [{"port": 32766}]}
                objects.append({"apiVersion": "v1", "kind": "Service", "metadata": {"name": called}, "spec": ports})
            self._install(called, objects)
        await self.scheduling_cluster.node("migration-node", {})
        await self.scheduling_cluster.pod("migration-pod", {}, nodeName="migration-node")

    def _install(self, name: str, objects: list[Object]) -> None:
        text = yaml.safe_dump_all(objects)
        if not self.by_helm:
            self.scheduling_cluster.plane.kubectl("create", "--namespace=kube-system", "--filename=-", stdin=text)
            return
        self.machine.write(f"/charts/{name}/Chart.yaml", f"apiVersion: v2\nname: {name}\nversion: 1.0.0\n")
        self.machine.write(f"/charts/{name}/values.yaml", "memoryUnit: 1\n")
        self.machine.write(f"/charts/{name}/templates/all.yaml", text)
        self.machine.must(f"helm install {name} /charts/{name} --namespace kube-system")

    def specs(self) -> dict[str, Any]:
        """What its workloads ask for."""
        found = {}
        for name in self.names:
            text = self.scheduling_cluster.plane.kubectl("get", name.lower(), "--namespace=kube-system", "--output=json")
            spec = json.loads(text)["spec"]
            spec["template"]["spec"].setdefault("nodeSelector", {})  # a selector that became empty is one that never was
            found[name] = spec
        return found

    def left(self) -> list[str]:
        listed = self.scheduling_cluster.plane.kubectl(
            "get", "deployments,daemonsets", "--namespace=kube-system", "--output=name"
        ).split()
        return [name for name in self.names if any(one.endswith(name.partition("/")[2]) for one in listed)]


@pytest.mark.parametrize("page", PAGES)
async def test_every_command_works_and_the_way_back_leads_back(
    page: str, scheduling_cluster: SchedulingCluster, throwaway_machine: Machine, tmp_path: Path
) -> None:
    """Stopped as the page says, the original makes no pods; brought back as the page says, it is what it was."""
    original = Original(SYSTEMS[page], scheduling_cluster, throwaway_machine)
    await original.make()
    before = original.specs()
    by_section = sections(page)
    back, clean = by_section.pop("The way back"), by_section.pop("When you are sure")
    values = {"POD": "migration-pod", "NODE": "migration-node", "CLUSTER_IP": "10.0.0.77"}
    async with a_stay(scheduling_cluster, throwaway_machine, tmp_path / "migration", values=values) as page_runner:
        for part in by_section.values():
            await page_runner.run(part)
        for name, spec in original.specs().items():
            if name.startswith("Deployment/"):
                assert spec["replicas"] == 0
            else:
                assert spec["template"]["spec"]["nodeSelector"]["moved-to"] == "accelshare"
        await page_runner.run(back)
        assert original.specs() == before
        await page_runner.run(clean)
        await scheduling_cluster.until(lambda: original.left() == [], "nothing is left of the original")
