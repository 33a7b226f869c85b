"""Preemption, and outages of single parts: pods wait and continue when the part is back."""

import asyncio

import pytest

from tests.e2e.scheduling_cluster import SchedulingCluster, cards

pytestmark = pytest.mark.real

MEMORY = "enflame.com/gcu-memory"


async def two_cards(scheduling_cluster: SchedulingCluster) -> None:
    entries = [{"index": index, "id": f"GCU-{index}", "size": 16} for index in range(2)]
    await scheduling_cluster.node("n1", {MEMORY: 32, "enflame.com/gcu-count": 2}, inventory={"enflame": {"cards": entries}})


async def priority_class(scheduling_cluster: SchedulingCluster, name: str, value: int) -> None:
    content = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "labels": {"accelshare-test": "true"}},
        "value": value,
    }
    await scheduling_cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", content)


async def test_preemption_empties_one_card_and_no_more(served: SchedulingCluster) -> None:
    """Four low pods of 8 on two cards; a high one wants 12. Two must go, and they must be neighbours."""
    await two_cards(served)
    await priority_class(served, "low", 1)
    await priority_class(served, "high", 1000)
    for name in "abcd":
        await served.pod(name, {MEMORY: 8}, priorityClassName="low")
        await served.bound(name)
    before = {name: cards(pod, "enflame")[0] for name, pod in (await served.pods()).items()}
    assert sorted(before.values()) == [0, 0, 1, 1]
    await served.pod("important", {MEMORY: 12}, priorityClassName="high")

    async def victims() -> list[str]:
        return [name for name, pod in (await served.pods()).items() if pod["metadata"].get("deletionTimestamp")]

    async def neighbours() -> list[str] | None:
        chosen = await victims()  # the scheduler ends one after the other
        return chosen if len(chosen) > 1 else None

    chosen = await served.until(neighbours, "two victims are chosen")
    assert len(chosen) == 2
    assert len({before[name] for name in chosen}) == 1
    for name in chosen:  # what kubelet does when the containers have stopped
        await served.delete(f"/api/v1/namespaces/default/pods/{name}")
    pod = (await served.bound("important"))["important"]
    assert cards(pod, "enflame") == [before[chosen[0]]]
    left = await served.pods()
    assert sorted(left) == sorted({"important", *(set("abcd") - set(chosen))})


async def test_while_the_extender_is_away_pods_wait(served: SchedulingCluster) -> None:
    await two_cards(served)
    await served.pod("before", {MEMORY: 4})
    await served.bound("before")
    assert served.extender is not None
    served.extender.kill()
    await served.pod("meanwhile", {MEMORY: 4})
    await served.refused("meanwhile", "connection refused")
    assert "nodeName" not in (await served.one("meanwhile"))["spec"]
    await served.start_extender()
    pod = (await served.bound("meanwhile"))["meanwhile"]
    assert cards(pod, "enflame") == [0]


async def test_a_restart_of_the_api_server_loses_nothing(served: SchedulingCluster) -> None:
    """Watches break and old versions are gone: the extender lists again, deletions in between included."""
    await two_cards(served)
    for name in ("stays", "goes"):
        await served.pod(name, {MEMORY: 8})
        await served.bound(name)
    assert served.extender is not None
    served.plane.compact()
    await asyncio.to_thread(served.plane.restart_api_server)
    await served.delete("/api/v1/namespaces/default/pods/goes")
    await served.inspected(
        "/gcushare-scheduler/inspect",
        lambda shown: [card["usedGCU"] for card in shown["nodes"][0]["devices"]] == [8, 0],
        "8 and 0",
    )
    await served.pod("next", {MEMORY: 8})
    assert cards((await served.bound("next"))["next"], "enflame") == [0]


async def test_sigterm_ends_it_cleanly_and_quickly(served: SchedulingCluster) -> None:
    assert served.extender is not None
    served.extender.terminate()
    await served.until(lambda: served.extender is not None and not served.extender.running, "the extender has ended", 60)
    assert served.extender.exit_code == 0
    assert "stopping signal=SIGTERM" in served.extender.last_lines()
