"""Promises with the real kube-scheduler: pods are bound to their nominated nodes, and nothing is lost, oversold or blocked."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError
from tests.e2e.oversell_watch import watch_for_oversell
from tests.e2e.scheduling_cluster import TEST_LABEL, SchedulingCluster, names
from tests.e2e.test_rush import CARDS, MEMORY, SIZE, many_nodes, rush, why_waiting

pytestmark = pytest.mark.real

PODS = "/api/v1/namespaces/default/pods"
PROMISES = ("--promises=8", "--promises-from-nodes=1")


@pytest.fixture
async def promising(scheduling_cluster: SchedulingCluster) -> SchedulingCluster:
    """A cluster whose extender plans ahead; its kube-scheduler is started by the test."""
    await scheduling_cluster.start_extender(*PROMISES)
    return scheduling_cluster


class Nominations:
    """The nodes that were nominated for each pod, as the API server showed them."""

    def __init__(self) -> None:
        self.nominated: dict[str, list[str]] = {}
        self.bound: dict[str, str] = {}

    @property
    def kept(self) -> int:
        return sum(self.bound.get(pod) == nodes[-1] for pod, nodes in self.nominated.items())

    def see(self, pod: dict[str, dict[str, str]]) -> None:
        name, node = pod["metadata"]["name"], pod["status"].get("nominatedNodeName", "")
        seen = self.nominated.setdefault(name, []) if node else []
        if node and seen[-1:] != [node]:
            seen.append(node)
        if pod["spec"].get("nodeName"):
            self.bound[name] = pod["spec"]["nodeName"]


@asynccontextmanager
async def watch_nominations(client: Client) -> AsyncIterator[Nominations]:
    nominations = Nominations()
    version = json.loads(await client.request("GET", PODS, params={"limit": "1"}))["metadata"]["resourceVersion"]

    async def follow() -> None:
        since = version
        while True:
            try:
                async with aclosing(client.watch(PODS, resource_version=since, timeout_s=600)) as events:
                    async for event in events:
                        pod = json.loads(bytes(event.object))
                        since = pod["metadata"]["resourceVersion"]
                        if event.type != "BOOKMARK":
                            nominations.see(pod)
            except KubeError:  # a busy API server may end a watch; the next one goes on where this one was
                await asyncio.sleep(0.1)

    following = asyncio.create_task(follow())
    try:
        yield nominations
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_a_queue_is_bound_to_its_nominated_nodes(promising: SchedulingCluster) -> None:
    """The pods wait before kube-scheduler starts; all fit, none is oversold, and no nomination is left that is not true."""
    await many_nodes(promising, 30)
    sizes = [(4, 12, 8, 16)[number % 4] for number in range(300)]  # 3,000 units of 3,840
    await rush(promising, sizes)
    async with watch_for_oversell(promising.client, size=SIZE) as watch, watch_nominations(promising.client) as nominations:
        promising.start_scheduler()
        await promising.until(lambda: len(watch.pods) == len(sizes), f"{len(sizes)} pods are bound", 300)
        await promising.until(lambda: len(nominations.bound) == len(sizes), "all binds are seen")
        assert watch.wrong == []
    print(f"{len(nominations.nominated)} of {len(sizes)} pods were nominated a node, {nominations.kept} are there")
    metrics = (await promising.get("/metrics"))[1]
    print(*(line for line in metrics.splitlines() if line.startswith("accelshare_promises")), sep="\n")
    assert nominations.kept > 0  # how many is measured in bench/; on a busy machine promises expire
    assert 'accelshare_promises_total{outcome="kept"} 0.0' not in metrics
    pods = await promising.pods()
    assert not [
        name for name, pod in pods.items() if pod["status"].get("nominatedNodeName", "") not in ("", pod["spec"]["nodeName"])
    ]


async def test_killed_in_a_rush_with_promises_nothing_is_lost_or_oversold(promising: SchedulingCluster, rounds: int) -> None:
    await many_nodes(promising, 30)
    promising.start_scheduler()
    sizes = [(4, 12, 8, 16)[number % 4] for number in range(240)]
    async with watch_for_oversell(promising.client, size=SIZE) as watch:
        creating = asyncio.create_task(rush(promising, sizes))
        for kill in range(1, rounds + 1):
            enough = kill * 20
            await promising.until(lambda: len(watch.pods) >= enough, f"{enough} pods are bound", 300)  # noqa: B023 – awaited here
            assert promising.extender is not None
            promising.extender.kill()
            await promising.start_extender(*PROMISES)
        await creating
        await promising.until(lambda: len(watch.pods) == len(sizes), f"{len(sizes)} pods are bound", 300)
        assert watch.wrong == []


async def test_promises_block_no_pod_of_a_higher_priority(promising: SchedulingCluster) -> None:
    """The queue would fill the cluster; pods of a higher priority that come later are all bound, and the rest has a reason."""
    await many_nodes(promising, 4)  # 32 cards
    await promising.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "promises-high", "labels": dict([TEST_LABEL.split("=")])},
            "value": 1000,
            "preemptionPolicy": "Never",
        },
    )
    await asyncio.gather(*(promising.pod(f"low{number}", {MEMORY: SIZE}) for number in range(60)))
    await asyncio.gather(
        *(promising.pod(f"high{number}", {MEMORY: SIZE}, priorityClassName="promises-high") for number in range(16))
    )
    async with watch_for_oversell(promising.client, size=SIZE) as watch:
        promising.start_scheduler()
        await promising.bound(*names("high", range(16)))

        async def settled() -> bool:
            pods = await promising.pods()
            waiting = [pod for pod in pods.values() if "nodeName" not in pod["spec"]]
            reasons = all("nodes are available" in why_waiting(pod) for pod in waiting)
            return len(waiting) == 60 + 16 - 4 * CARDS and reasons

        await promising.until(settled, "the cluster is full and the others have a reason")
        assert watch.wrong == []


async def test_preemption_takes_place_with_promises(promising: SchedulingCluster) -> None:
    """A full cluster and a long queue: a pod of a higher priority evicts one and gets its card, not a promised pod."""
    await many_nodes(promising, 2)
    await promising.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "promises-preempting", "labels": dict([TEST_LABEL.split("=")])},
            "value": 1000,
        },
    )
    promising.start_scheduler()
    await asyncio.gather(
        *(promising.pod(f"low{number}", {MEMORY: SIZE}, terminationGracePeriodSeconds=0) for number in range(40))
    )

    async def full() -> bool:
        return sum("nodeName" in pod["spec"] for pod in (await promising.pods()).values()) == 2 * CARDS

    await promising.until(full, "the cluster is full")
    async with watch_for_oversell(promising.client, size=SIZE) as watch:
        await promising.pod("high", {MEMORY: SIZE}, priorityClassName="promises-preempting")
        await promising.bound("high")
        assert watch.wrong == []
