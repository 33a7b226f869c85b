"""Jobs in the queues of the page 'Queues and quotas', on nodes that are objects.

Belongs here: creating and reading Jobs, and what a kubelet would do with their pods. Never: assertions about the product.
"""

import asyncio
import contextlib
import copy
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from accelshare.kube.errors import Conflict, NotFound
from tests.e2e.scheduling_cluster import RETRY_ON, SchedulingCluster

Object = dict[str, Any]
PAGE: Final = Path(__file__).parents[3] / "docs/how-to/queues-and-quotas.md"
MEMORY: Final = "aliyun.com/gpu-mem"
NPU: Final = "streamcomputing.com/npu"
CARDS, SIZE = 4, 16  # together what the two queues of the page have
TEAMS: Final = ("team-a", "team-b")
JOBS, JOBSETS = "apis/batch/v1/namespaces/{team}/jobs", "apis/jobset.x-k8s.io/v1alpha2/namespaces/{team}/jobsets"
_BLOCKS: Final = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def manifests(section: str) -> list[Object]:
    """The objects that the page shows under this heading, up to the next one."""
    _, found, after = PAGE.read_text(encoding="utf-8").partition(f"# {section}\n")
    assert found, f"{PAGE.name} has no section {section!r}"
    text = re.split(r"^##+ ", after, maxsplit=1, flags=re.MULTILINE)[0]
    return [content for block in _BLOCKS.findall(text) for content in yaml.safe_load_all(block)]


class QueueCluster:
    """One test's Jobs."""

    def __init__(self, cluster: SchedulingCluster) -> None:
        self.cluster = cluster

    async def nodes(self) -> None:
        """One node with 4 cards of 16 units, and the example node with two NPUs."""
        entries = [{"index": index, "id": f"GPU-{index}", "size": SIZE} for index in range(CARDS)]
        await self.cluster.node(
            "gpus", {MEMORY: CARDS * SIZE, "aliyun.com/gpu-count": CARDS}, inventory={"nvidia": {"cards": entries}}
        )
        await self.cluster.example_node("stream")

    async def job(self, name: str, team: str = TEAMS[0], *, limits: Mapping[str, int] | None = None, priority: str = "") -> None:
        """The Job of the page under another name; `limits` replace what its two pods request."""
        (job,) = copy.deepcopy(manifests("A Job in a queue"))
        job["metadata"] = {"name": name, "labels": job["metadata"]["labels"]}
        if priority:
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = priority
        if limits:
            job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = dict(limits)
        await self.cluster.create("/" + JOBS.format(team=team), job)

    async def pods(self, owner: str, team: str = TEAMS[0]) -> list[Object]:
        """The pods of a Job, or of a JobSet, that have not ended."""
        found = (await self.cluster.pods(team)).values()
        keys = ("batch.kubernetes.io/job-name", "jobset.sigs.k8s.io/jobset-name")
        return [
            pod
            for pod in found
            if owner in (pod["metadata"].get("labels", {}).get(key) for key in keys)
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]

    async def placed(self, owner: str, count: int, team: str = TEAMS[0]) -> list[Object]:
        """The pods of a Job or JobSet, once so many of them have a node."""

        async def all_placed() -> list[Object]:
            pods = [pod for pod in await self.pods(owner, team) if pod["spec"].get("nodeName")]
            return pods if len(pods) == count and not any("deletionTimestamp" in pod["metadata"] for pod in pods) else []

        placed: list[Object] = await self.cluster.until(all_placed, f"{count} pods of {team}/{owner} have a node")
        return placed

    async def gone(self, owner: str, team: str = TEAMS[0]) -> None:
        async def none() -> bool:
            return not await self.pods(owner, team)

        await self.cluster.until(none, f"no pod of {team}/{owner} is left")

    async def waits(self, job: str, words: str, team: str = TEAMS[0]) -> None:
        """Wait until Kueue says on the Job's Workload, in these words, that it holds no quota."""

        async def told() -> bool:
            listed = await self.cluster.read(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{team}/workloads")
            conditions = [
                condition
                for workload in listed["items"]
                if job in (owner["name"] for owner in workload["metadata"].get("ownerReferences", []))
                for condition in workload.get("status", {}).get("conditions", [])
            ]
            return any(
                condition["type"] == "QuotaReserved" and condition["status"] == "False" and words in condition["message"]
                for condition in conditions
            )

        await self.cluster.until(told, f"Kueue says on {team}/{job}: {words}")

    async def suspended(self, job: str, team: str = TEAMS[0]) -> bool:
        return bool((await self.cluster.read(f"/{JOBS.format(team=team)}/{job}"))["spec"].get("suspend"))

    async def end(self, owner: str, team: str = TEAMS[0]) -> None:
        """Every pod of a Job or JobSet succeeds."""
        for pod in await self.pods(owner, team):
            path = f"/api/v1/namespaces/{team}/pods/{pod['metadata']['name']}/status"
            await self.cluster.patch(path, {"status": {"phase": "Succeeded"}})

    async def units_held(self) -> list[int]:
        """What the extender counts as held of each card of the node `gpus`."""
        shown = await self.cluster.inspect("/gpushare-scheduler/inspect")
        (node,) = [found for found in shown["nodes"] if found["name"] == "gpus"]
        return [card["usedGPU"] for card in node["devs"]]

    async def holds(self, expected: list[int]) -> None:
        async def same() -> bool:
            return sorted(await self.units_held()) == sorted(expected)

        await self.cluster.until(same, f"the cards hold {expected}")

    async def clear(self) -> None:
        """Delete all Jobs and JobSets, and wait until Kueue has given back their quota."""

        async def cleared() -> bool:
            left = 0
            for team in TEAMS:
                for path in (JOBSETS.format(team=team), JOBS.format(team=team)):
                    with contextlib.suppress(NotFound):  # no JobSet is installed
                        left += len((await self.cluster.read(f"/{path}"))["items"])
                        await self.cluster.client.request("DELETE", f"/{path}", params={"propagationPolicy": "Background"})
                left += len((await self.cluster.read(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{team}/workloads"))["items"])
                left += len(await self.cluster.pods(team))
            return left == 0

        await self.cluster.until(cleared, "no Job, Workload or pod is left")


@contextlib.asynccontextmanager
async def pods_that_end(cluster: SchedulingCluster) -> AsyncIterator[None]:
    """Remove each pod that is being deleted, as the kubelet of its node does when its containers have ended."""

    async def remove() -> None:
        while True:
            for team in TEAMS:
                with contextlib.suppress(*RETRY_ON, Conflict):
                    for name, pod in (await cluster.pods(team)).items():
                        if "deletionTimestamp" in pod["metadata"] and pod["metadata"].get("deletionGracePeriodSeconds"):
                            await cluster.delete(f"/api/v1/namespaces/{team}/pods/{name}")
            await asyncio.sleep(0.1)

    task = asyncio.create_task(remove())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
