"""An administrator's commands (helm, kubectl, deploy/scripts) on a scheduling cluster, which has no kubelet.

Belongs here: the commands and what they print. Never: assertions about the product.
"""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from cluster.build import binaries
from deploy.render import CHART, ROOT, helm
from tests.e2e.install.hook_runner import NAMESPACE, HookRunner
from tests.e2e.scheduling_cluster import SchedulingCluster

KINDS = (
    "all,configmaps,secrets,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,networkpolicies,"
    "poddisruptionbudgets,validatingadmissionpolicies,validatingadmissionpolicybindings,leases"
)

EXTENDERS = 2  # replicas of the chart


class ClusterAdmin:
    def __init__(self, scheduling_cluster: SchedulingCluster, hook_runner: HookRunner) -> None:
        self.scheduling_cluster = scheduling_cluster
        self.hook_runner = hook_runner

    async def helm(self, verb: str, *arguments: str) -> str:
        where = (f"--namespace={NAMESPACE}", "--timeout=300s")
        return await asyncio.to_thread(
            helm, verb, "accelshare", *where, *arguments, kubeconfig=self.scheduling_cluster.plane.kubeconfig
        )

    async def install(self, *arguments: str) -> str:
        return await self.helm("install", str(CHART), f"--values={CHART}/presets/gpushare.yaml", *arguments)

    async def upgrade(self, *arguments: str) -> str:
        return await self.helm("upgrade", str(CHART), f"--values={CHART}/presets/gpushare.yaml", *arguments)

    def ours(self) -> list[str]:
        """Everything of ours in the cluster, by kind and name."""
        listed = self.scheduling_cluster.plane.kubectl(
            "get", KINDS, "--all-namespaces", "--selector=app.kubernetes.io/part-of=accelshare", "--output=name"
        )
        kept = self.scheduling_cluster.plane.kubectl(
            "get", "secrets,leases,configmaps", f"--namespace={NAMESPACE}", "--output=name"
        ).split()
        return sorted({*listed.split(), *(name for name in kept if "accelshare" in name)})

    async def settled(self) -> list[str]:
        """Everything of ours, once controllers have made the pods of the extender and removed those of hook Jobs."""

        def complete() -> list[str]:
            found = self.ours()
            pods = [name for name in found if name.startswith("pod/")]
            return found if len(pods) == EXTENDERS and all("extender" in name for name in pods) else []

        found: list[str] = await self.scheduling_cluster.until(complete, "there are the extender's pods and no others")
        return found

    async def until_there_is(self, expected: list[str]) -> None:
        """Wait until everything of ours is what it was: pods of hook Jobs come and go."""
        await self.scheduling_cluster.until(lambda: self.ours() == expected, f"all that is there is {expected}")

    def certificates(self) -> dict[str, str]:
        """The version of each Secret: unchanged means not written."""
        names = ("accelshare-ca", "accelshare-extender-tls", "accelshare-scheduler-tls")
        return {name: self.read("secret", name)["metadata"]["resourceVersion"] for name in names}

    async def labelled(self) -> list[str]:
        nodes = (await self.scheduling_cluster.read("/api/v1/nodes"))["items"]
        return [node["metadata"]["name"] for node in nodes if (node["metadata"].get("labels") or {}).get("gpushare") == "true"]

    def read(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.scheduling_cluster.plane.kubectl("get", kind, name, f"--namespace={NAMESPACE}", "--output=json")
        )
        return found

    async def apply(self, manifests: Path) -> None:
        """The plain manifests, with kubectl alone, until their certificates are made."""
        self.scheduling_cluster.plane.kubectl("apply", "--filename", str(manifests))
        await self._complete("accelshare-certificates")

    async def take_back(self, manifests: Path) -> None:
        """As docs/how-to/install.md says it."""
        self.scheduling_cluster.plane.kubectl("apply", "--filename", str(manifests / "uninstall"))
        await self._complete("accelshare-uninstall")
        files = ("--filename", str(manifests / "uninstall"), "--filename", str(manifests))
        self.scheduling_cluster.plane.kubectl("delete", "--ignore-not-found", *files)

    async def _complete(self, job: str) -> None:
        wait = ("wait", "--for=condition=complete", f"job/{job}", f"--namespace={NAMESPACE}", "--timeout=300s")
        await asyncio.to_thread(self.scheduling_cluster.plane.kubectl, *wait)

    async def script(self, name: str, *arguments: str, stdin: str = "", helm: str = "") -> subprocess.CompletedProcess[str]:
        """One of deploy/scripts, with the pinned kubectl and helm, or another program in its place."""
        kubeconfig, home = self.scheduling_cluster.plane.kubeconfig, self.hook_runner.directory
        return await asyncio.to_thread(
            run_script, name, *arguments, kubeconfig=kubeconfig, home=home, stdin=stdin, helm_program=helm
        )


def run_script(
    name: str, *arguments: str, kubeconfig: Path, home: Path, stdin: str = "", helm_program: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run one of deploy/scripts with the pinned kubectl and helm, or with another program as helm."""
    programs = binaries(["helm", "kubectl"], lambda _line: None)
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "HELM": helm_program or str(programs["helm"]),
        "KUBECTL": str(programs["kubectl"]),
        "KUBECONFIG": str(kubeconfig),
    }
    command = ["/bin/sh", str(ROOT / "deploy/scripts" / name), *arguments]
    return subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True, check=False, timeout=900)
