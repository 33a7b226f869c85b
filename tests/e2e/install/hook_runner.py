"""Runs the pods of hook Jobs where there is no kubelet: their commands become processes of this machine.

Each process has only the token of its pod's own ServiceAccount, bound to the pod as kubelet binds it. So a right that the chart
forgot to grant is missing here too.

Belongs here: running containers' arguments in order, and reporting the pod's phase. Never: assertions about the product.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelshare.kube.errors import KubeError
from cluster.errors import KubectlError
from cluster.kubeconfig import Token, write_kubeconfig
from tests.e2e.scheduling_cluster import SchedulingCluster

NAMESPACE = "kube-system"


@dataclass(frozen=True, slots=True)
class Run:
    """What one container did."""

    container: str
    code: int
    output: str


@dataclass(slots=True)
class HookRunner:
    scheduling_cluster: SchedulingCluster
    directory: Path
    namespace: str = NAMESPACE
    runs: list[Run] = field(default_factory=list)
    refuses: Collection[str] = ()  # containers that fail without being run
    _taken: set[str] = field(default_factory=set)

    def output(self, container: str) -> str:
        """What every run of this container printed, each with its exit code."""
        return "\n".join(f"{run.code} {run.output}" for run in self.runs if run.container == container)

    async def serve(self) -> None:
        while True:
            for pod in await self._pods():
                labels = pod["metadata"].get("labels") or {}
                if labels.get("app.kubernetes.io/component") == "hook" and pod["metadata"]["uid"] not in self._taken:
                    self._taken.add(pod["metadata"]["uid"])
                    await self._run_pod(pod)
            await asyncio.sleep(0.1)

    async def _pods(self) -> list[dict[str, Any]]:
        """None while a busy API server does not answer: the next look finds them."""
        with contextlib.suppress(KubeError):
            return list((await self.scheduling_cluster.pods(self.namespace)).values())
        return []

    async def _run_pod(self, pod: dict[str, Any]) -> None:
        name, spec = pod["metadata"]["name"], pod["spec"]
        try:
            kubeconfig = await asyncio.to_thread(self._kubeconfig, name, spec["serviceAccountName"])
        except KubectlError as error:
            if "not found" not in str(error):
                raise
            return  # a Job that was deleted takes its pod along
        phase = "Succeeded"
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            run = await self._run(container, kubeconfig)
            self.runs.append(run)
            if run.code != 0:
                phase = "Failed"
                break
        with contextlib.suppress(KubeError):  # a Job that was deleted takes its pod along
            await self.scheduling_cluster.patch(
                f"/api/v1/namespaces/{self.namespace}/pods/{name}/status", {"status": {"phase": phase}}
            )

    def _kubeconfig(self, pod: str, account: str) -> Path:
        bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod}")
        token = self.scheduling_cluster.plane.kubectl("create", "token", account, f"--namespace={self.namespace}", *bound).strip()
        path = self.directory / f"{pod}.kubeconfig"
        return write_kubeconfig(
            path, url=self.scheduling_cluster.plane.url, ca_file=self.scheduling_cluster.plane.ca_file, user=Token(token)
        )

    async def _run(self, container: dict[str, Any], kubeconfig: Path) -> Run:
        if container["name"] in self.refuses:
            return Run(container["name"], 1, "refused by the test")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "accelshare",
            *container["args"],
            env={"PATH": os.environ.get("PATH", os.defpath), "KUBECONFIG": str(kubeconfig), "PYTHONPATH": "src"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return Run(container["name"], process.returncode or 0, output.decode())


@contextlib.asynccontextmanager
async def run_hooks(
    scheduling_cluster: SchedulingCluster, directory: Path, namespace: str = NAMESPACE
) -> AsyncIterator[HookRunner]:
    hook_runner = HookRunner(scheduling_cluster, directory, namespace)
    serving = asyncio.create_task(hook_runner.serve())
    try:
        yield hook_runner
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
