"""Gangs with real schedulers: all members get their cards, or none does.

Each case runs with the Workload API (alpha in 1.36) of kube-scheduler, with `--coscheduling` also with the coscheduling plugin.
Cases in which members wait at Permit run with coscheduling only.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cluster.control_plane import ControlPlane
from tests.e2e.gang_cluster import COSCHEDULING, GATES, UNITS, WHOLE, WORKLOAD, GangApi, GangCluster
from tests.e2e.oversell_watch import watch_for_oversell
from tests.e2e.scheduling_cluster import cards, names, open_scheduling_cluster
from tests.e2e.test_rush import CARDS, MEMORY, SIZE

pytestmark = pytest.mark.real

only_coscheduling = pytest.mark.parametrize("gangs", [COSCHEDULING], indirect=True, ids=lambda api: api.name)


@pytest.fixture(scope="module")
def gang_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, with the feature gates on."""
    if sys.platform != "linux":
        pytest.skip(f"the real control plane is built for Linux only, this is {sys.platform}")
    flags = (GATES, "--runtime-config=scheduling.k8s.io/v1alpha2=true")
    with ControlPlane.start(tmp_path_factory.mktemp("gang-plane"), say=print, controllers=None, api_server_args=flags) as plane:
        yield plane


@pytest.fixture(params=[WORKLOAD, COSCHEDULING], ids=lambda api: api.name)
async def gangs(
    request: pytest.FixtureRequest, gang_plane: ControlPlane, tmp_path: Path, extender_flags: list[str]
) -> AsyncIterator[GangCluster]:
    """A cluster whose scheduler schedules gangs and calls our extender."""
    api: GangApi = request.param
    if api is COSCHEDULING and not request.config.getoption("--coscheduling"):
        pytest.skip("tests with coscheduling run with `make test-coscheduling`, or with --coscheduling")
    async with open_scheduling_cluster(gang_plane, tmp_path, extender_flags) as cluster:
        await cluster.start_extender()
        api.start_scheduler(cluster)
        opened = GangCluster(cluster, api)
        try:
            yield opened
        finally:
            await opened.clear()


async def test_every_member_of_a_gang_gets_a_card_of_its_own(gangs: GangCluster) -> None:
    """The gang fills the cluster, so that a card offered twice would leave it half bound. No bind is refused."""
    await gangs.nodes(2)
    async with watch_for_oversell(gangs.cluster.client, size=SIZE) as watch:
        await gangs.gang("whole", 2 * CARDS)
        await gangs.cluster.bound(*names("whole", range(2 * CARDS)))
        assert watch.wrong == []
    assert gangs.cluster.extender is not None
    assert "outcome=refused error=" not in gangs.cluster.extender.log.read_text()


async def test_of_two_gangs_that_race_for_one_cluster_one_is_bound_and_the_other_waits(gangs: GangCluster) -> None:
    await gangs.nodes(2)
    size = 2 * CARDS - 4
    async with watch_for_oversell(gangs.cluster.client, size=SIZE) as watch:
        await asyncio.gather(gangs.gang("red", size), gangs.gang("blue", size))

        async def one_is_bound() -> bool:
            return size in (await gangs.bound("red"), await gangs.bound("blue"))

        await gangs.cluster.until(one_is_bound, "one gang is bound")
        first, second = ("red", "blue") if await gangs.bound("red") else ("blue", "red")
        assert await gangs.bound(second) == 0
        await gangs.cluster.pod("single", {MEMORY: UNITS})
        await gangs.cluster.bound("single")  # what the second gang was offered is free again
        assert await gangs.bound(second) == 0
        await gangs.delete(first, range(size))
        await gangs.cluster.bound(*names(second, range(size)))
        assert watch.wrong == []


async def test_a_gang_without_its_last_member_holds_no_card(gangs: GangCluster) -> None:
    await gangs.nodes(1)
    await gangs.gang("partial", CARDS - 1, least=CARDS)
    for number in range(CARDS):
        await gangs.cluster.pod(f"single{number}", {MEMORY: SIZE})
    await gangs.cluster.bound(*names("single", range(CARDS)))
    assert await gangs.bound("partial") == 0


async def test_of_a_gang_that_does_not_fit_no_member_is_bound_and_its_cards_are_free(gangs: GangCluster) -> None:
    """Nine members for eight cards. kube-scheduler's own sum has space for them."""
    await gangs.nodes(1)
    await gangs.gang("large", CARDS + 1)
    await gangs.cluster.refused("large0", "")
    for number in range(CARDS):
        await gangs.cluster.pod(f"single{number}", {MEMORY: UNITS})
    await gangs.cluster.bound(*names("single", range(CARDS)))
    assert await gangs.bound("large") == 0


async def test_a_gang_of_whole_cards_waits_for_cards_that_are_all_untouched(gangs: GangCluster) -> None:
    """kube-scheduler refuses the third member of the second gang itself, so that nobody asks us for it."""
    await gangs.nodes(1)
    first, second = CARDS - 2, 4
    await gangs.gang("first", first, limits={WHOLE: 1})
    pods = await gangs.cluster.bound(*names("first", range(first)))
    assert len({card for pod in pods.values() for card in cards(pod, "enflame")}) == first
    await gangs.gang("second", second, limits={WHOLE: 1})
    await gangs.cluster.pod("single", {WHOLE: 1})
    await gangs.cluster.bound("single")
    assert await gangs.bound("second") == 0
    await gangs.delete("first", range(first))
    await gangs.cluster.bound(*names("second", range(second)))


@only_coscheduling
async def test_if_one_member_never_comes_the_cards_of_the_others_are_free_together(gangs: GangCluster) -> None:
    await gangs.nodes(1)
    await gangs.gang("late", CARDS - 1, absent=1, wait_s=10)
    await gangs.held(CARDS - 1)  # they wait at Permit
    await gangs.held(0)
    assert await gangs.bound("late") == 0
    for number in range(CARDS):
        await gangs.cluster.pod(f"single{number}", {MEMORY: UNITS})
    await gangs.cluster.bound(*names("single", range(CARDS)))


@only_coscheduling
async def test_a_gang_that_waits_longer_than_its_cards_are_held_is_bound_whole(gangs: GangCluster) -> None:
    """The last member comes when the cards are no longer held, but still free."""
    await gangs.nodes(1)
    await gangs.gang("late", 3, absent=1, wait_s=600)
    await gangs.held(3)
    await gangs.held(0)
    async with watch_for_oversell(gangs.cluster.client, size=SIZE) as watch:
        await gangs.delete("late", [3])
        await gangs.member("late", 3)
        await gangs.cluster.bound(*names("late", range(4)))
        assert watch.wrong == []


@only_coscheduling
async def test_a_gang_that_waits_longer_and_lost_a_card_is_not_half_bound(gangs: GangCluster) -> None:
    """Another pod has taken a card that was held for it. It is bound whole when that pod has gone."""
    await gangs.nodes(1)
    await gangs.gang("late", CARDS - 1, absent=1, wait_s=600)
    await gangs.held(CARDS - 1)
    await gangs.held(0)
    for number in range(2):
        await gangs.cluster.pod(f"thief{number}", {MEMORY: UNITS})
    await gangs.cluster.bound("thief0", "thief1")
    await gangs.delete("late", [CARDS - 1])
    await gangs.member("late", CARDS - 1)
    await gangs.cluster.refused("late0", "")
    await asyncio.sleep(5)
    assert await gangs.bound("late") == 0
    await gangs.delete("thief", range(2))
    await gangs.cluster.bound(*names("late", range(CARDS)))


@only_coscheduling
async def test_a_gang_whose_extender_is_killed_between_filter_and_bind_is_bound_whole(gangs: GangCluster) -> None:
    """What the old extender held is not known to the new one: kube-scheduler has to ask again."""
    await gangs.nodes(1)
    await gangs.gang("late", 3, absent=1, wait_s=600)
    await gangs.held(3)
    cluster = gangs.cluster
    async with watch_for_oversell(cluster.client, size=SIZE) as watch:
        assert cluster.extender is not None
        cluster.extender.kill()
        await cluster.start_extender()
        await gangs.delete("late", [3])
        await gangs.member("late", 3)
        await cluster.bound(*names("late", range(4)))
        assert watch.wrong == []
    assert "no longer held" in cluster.extender.log.read_text()


@only_coscheduling
async def test_a_single_pod_runs_beside_a_gang_that_waits(gangs: GangCluster) -> None:
    await gangs.nodes(1)
    await gangs.gang("late", CARDS - 1, absent=1)
    await gangs.held(CARDS - 1)
    await gangs.cluster.pod("beside", {MEMORY: UNITS})
    await gangs.cluster.bound("beside")
    await gangs.cluster.pod("slice", {MEMORY: SIZE - UNITS})
    await gangs.cluster.bound("slice")  # what another pod leaves of a card
    assert await gangs.bound("late") == 0
