"""Many pods at once: all that fit are bound, no card is ever oversold, every refusal has a reason; also if we are killed."""

import asyncio
from collections import Counter

import pytest

from tests.e2e.oversell_watch import OversellWatch, watch_for_oversell
from tests.e2e.scheduling_cluster import Object, SchedulingCluster, names

pytestmark = pytest.mark.real

MEMORY = "enflame.com/gcu-memory"
SIZE = 16
CARDS = 8


async def many_nodes(scheduling_cluster: SchedulingCluster, count: int) -> None:
    entries = [{"index": index, "id": f"GCU-{index}", "size": SIZE} for index in range(CARDS)]
    amounts = {MEMORY: CARDS * SIZE, "enflame.com/gcu-count": CARDS}
    nodes = names("n", range(count))
    await asyncio.gather(*(scheduling_cluster.node(name, amounts, inventory={"enflame": {"cards": entries}}) for name in nodes))


async def rush(scheduling_cluster: SchedulingCluster, sizes: list[int]) -> None:
    """Create a pod of each size, sixteen at a time."""
    gate = asyncio.Semaphore(16)

    async def create(number: int, units: int) -> None:
        async with gate:
            await scheduling_cluster.pod(f"p{number}", {MEMORY: units})

    await asyncio.gather(*(create(number, units) for number, units in enumerate(sizes)))


def asked(pod: Object) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["limits"][MEMORY])


def why_waiting(pod: Object) -> str:
    conditions = {condition["type"]: condition for condition in pod["status"].get("conditions", [])}
    return str(conditions.get("PodScheduled", {}).get("message", ""))


async def test_a_thousand_pods_on_fifty_nodes(served: SchedulingCluster) -> None:
    await many_nodes(served, 50)
    sizes = [(4, 12, 8, 16)[number % 4] for number in range(1000)]  # 10,000 units for 6,400
    async with watch_for_oversell(served.client, size=SIZE) as watch:
        await rush(served, sizes)
        pods = await served.until(lambda: settled(served, watch), "every pod is bound or refused in words", 300)
        assert watch.wrong == []
        waiting = [pod for pod in pods.values() if "nodeName" not in pod["spec"]]
        bound = len(pods) - len(waiting)
        assert watch.most_bound == bound
        print(f"{bound} bound, {len(waiting)} waiting, {sum(watch.held.values())} of {50 * CARDS * SIZE} units held")
        for pod in waiting:
            assert "insufficient GCU Memory in one gcu device" in why_waiting(pod) or f"Insufficient {MEMORY}" in why_waiting(pod)
        shown = await served.inspect("/gcushare-scheduler/inspect")
        assert sum(node["usedGCU"] for node in shown["nodes"]) == sum(watch.held.values())


async def settled(scheduling_cluster: SchedulingCluster, watch: OversellWatch) -> dict[str, Object] | None:
    """All pods, once none of those that wait would fit anywhere and each of them has a reason."""
    pods = await scheduling_cluster.pods()
    waiting = [pod for pod in pods.values() if "nodeName" not in pod["spec"]]
    most_free = max((watch.free().get((f"n{node}", card), SIZE) for node in range(50) for card in range(CARDS)), default=SIZE)
    if any(asked(pod) <= most_free or "nodes are available" not in why_waiting(pod) for pod in waiting):
        return None
    return pods if len(watch.pods) == len(pods) - len(waiting) else None


async def test_killed_ten_times_in_a_rush_nothing_is_lost_or_oversold(served: SchedulingCluster) -> None:
    await many_nodes(served, 50)
    sizes = [(4, 12, 8, 16)[number % 4] for number in range(500)]  # 5,000 units for 6,400, and they do fit
    async with watch_for_oversell(served.client, size=SIZE) as watch:
        creating = asyncio.create_task(rush(served, sizes))
        for kill in range(1, 11):
            enough = kill * 40
            await served.until(lambda: len(watch.pods) >= enough, f"{enough} pods are bound", 300)  # noqa: B023 – awaited here
            assert served.extender is not None
            served.extender.kill()
            await served.start_extender()
        await creating
        await served.until(lambda: len(watch.pods) == len(sizes), f"{len(sizes)} pods are bound", 300)
        assert watch.wrong == []
        pods = await served.pods()
        assert Counter(asked(pod) for pod in pods.values() if pod["spec"].get("nodeName")) == Counter(sizes)
        shown = await served.inspect("/gcushare-scheduler/inspect")
        assert sum(node["usedGCU"] for node in shown["nodes"]) == sum(sizes)


async def test_two_pods_race_for_one_card_and_one_waits(served: SchedulingCluster) -> None:
    await many_nodes(served, 1)
    for number in range(CARDS - 1):
        await served.pod(f"filler{number}", {MEMORY: SIZE})
    await served.bound(*names("filler", range(CARDS - 1)))
    await asyncio.gather(*(served.pod(f"racer{number}", {MEMORY: 9}) for number in range(2)))

    async def one_bound_one_refused() -> bool:
        racers = [pod for name, pod in (await served.pods()).items() if name.startswith("racer")]
        bound = [pod for pod in racers if "nodeName" in pod["spec"]]
        refused = [pod for pod in racers if "nodeName" not in pod["spec"] and "nodes are available" in why_waiting(pod)]
        return len(bound) == len(refused) == 1

    await served.until(one_bound_one_refused, "one racer is bound, the other has the reason")
