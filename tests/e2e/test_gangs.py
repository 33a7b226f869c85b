"""Gangs of Kubernetes' Workload API (alpha in 1.36) with the real kube-scheduler: all members get their cards, or none does."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cluster.components import extender_entry
from cluster.control_plane import ControlPlane
from tests.e2e.oversell_watch import watch_for_oversell
from tests.e2e.scheduling_cluster import MANAGED, SchedulingCluster, names, open_scheduling_cluster
from tests.e2e.test_rush import CARDS, MEMORY, SIZE, many_nodes

pytestmark = pytest.mark.real

GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
UNITS = 9  # of 16: one pod a card, though kube-scheduler's sum for a node has space for fourteen
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"


@pytest.fixture(scope="module")
def gang_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, with the feature gates on."""
    if sys.platform != "linux":
        pytest.skip(f"the real control plane is built for Linux only, this is {sys.platform}")
    flags = (GATES, "--runtime-config=scheduling.k8s.io/v1alpha2=true")
    with ControlPlane.start(tmp_path_factory.mktemp("gang-plane"), say=print, controllers=None, api_server_args=flags) as plane:
        yield plane


@pytest.fixture
async def gangs(gang_plane: ControlPlane, tmp_path: Path, extender_flags: list[str]) -> AsyncIterator[SchedulingCluster]:
    """A cluster whose kube-scheduler schedules gangs and calls our extender."""
    async with open_scheduling_cluster(gang_plane, tmp_path, extender_flags) as cluster:
        await cluster.start_extender()
        entry = extender_entry(f"{cluster.extender_url}/accelshare", MANAGED)
        cluster.scheduler = gang_plane.start_scheduler({"percentageOfNodesToScore": 100, "extenders": [entry]}, args=[GATES])
        yield cluster


async def gang(cluster: SchedulingCluster, name: str, members: int, *, least: int | None = None) -> None:
    """A PodGroup that needs `least` of its members at once, or all of them."""
    policy = {"gang": {"minCount": members if least is None else least}}
    await cluster.create(
        GROUPS,
        {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"schedulingPolicy": policy},
        },
    )
    await asyncio.gather(
        *(cluster.pod(f"{name}{number}", {MEMORY: UNITS}, schedulingGroup={"podGroupName": name}) for number in range(members))
    )


async def bound(cluster: SchedulingCluster, name: str) -> int:
    return sum("nodeName" in pod["spec"] for pod_name, pod in (await cluster.pods()).items() if pod_name.startswith(name))


async def test_every_member_of_a_gang_gets_a_card_of_its_own(gangs: SchedulingCluster) -> None:
    """The gang fills the cluster, so that a card offered twice would leave it half bound. No bind is refused."""
    await many_nodes(gangs, 2)
    async with watch_for_oversell(gangs.client, size=SIZE) as watch:
        await gang(gangs, "whole", 2 * CARDS)
        await gangs.bound(*names("whole", range(2 * CARDS)))
        assert watch.wrong == []
    assert gangs.extender is not None
    assert "outcome=refused error='node" not in gangs.extender.log.read_text()


async def test_of_two_gangs_that_race_for_one_cluster_one_is_bound_and_the_other_waits(gangs: SchedulingCluster) -> None:
    await many_nodes(gangs, 2)
    size = 2 * CARDS - 4
    async with watch_for_oversell(gangs.client, size=SIZE) as watch:
        await asyncio.gather(gang(gangs, "red", size), gang(gangs, "blue", size))

        async def one_is_bound() -> bool:
            return size in (await bound(gangs, "red"), await bound(gangs, "blue"))

        await gangs.until(one_is_bound, "one gang is bound")
        first, second = ("red", "blue") if await bound(gangs, "red") else ("blue", "red")
        assert await bound(gangs, second) == 0
        await gangs.pod("single", {MEMORY: UNITS})
        await gangs.bound("single")  # what the second gang was offered is free again
        assert await bound(gangs, second) == 0
        await asyncio.gather(*(gangs.delete(f"/api/v1/namespaces/default/pods/{first}{number}") for number in range(size)))
        await gangs.bound(*names(second, range(size)))
        assert watch.wrong == []


async def test_a_gang_without_its_last_member_holds_no_card(gangs: SchedulingCluster) -> None:
    await many_nodes(gangs, 1)
    await gang(gangs, "partial", CARDS - 1, least=CARDS)
    for number in range(CARDS):
        await gangs.pod(f"single{number}", {MEMORY: SIZE})
    await gangs.bound(*names("single", range(CARDS)))
    assert await bound(gangs, "partial") == 0
