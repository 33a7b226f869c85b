"""Users edit the annotations of their pods: the ledger counts what was bound and what the node corrects."""

import json

import pytest

from tests.e2e.scheduling_cluster import SchedulingCluster, annotations, cards

pytestmark = pytest.mark.real

MEMORY = "aliyun.com/gpu-mem"
RECORD = "accelshare.io/assignment"
PODS = "/api/v1/namespaces/default/pods"


async def two_cards(scheduling_cluster: SchedulingCluster) -> None:
    entries = [{"index": index, "id": f"GPU-{index}", "size": 16} for index in range(2)]
    amounts = {MEMORY: 32, "aliyun.com/gpu-count": 2}
    await scheduling_cluster.node("n1", amounts, inventory={"nvidia": {"unit": "GiB", "cards": entries}})


async def pods_on(scheduling_cluster: SchedulingCluster) -> dict[int, list[str]]:
    """Index of a card → the pods that are counted on it."""
    (node,) = (await scheduling_cluster.inspect("/accelshare/inspect"))["nodes"]
    return {card["index"]: [pod["name"] for pod in card["pods"]] for card in node["cards"]}


async def rewrites(scheduling_cluster: SchedulingCluster) -> float:
    _, text = await scheduling_cluster.get("/metrics")
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith("accelshare_record_rewrites_total "))


async def edit(scheduling_cluster: SchedulingCluster, name: str, record: str | None) -> None:
    await scheduling_cluster.patch(
        f"{PODS}/{name}", {"metadata": {"annotations": {RECORD: record, "ALIYUN_COM_GPU_MEM_IDX": None}}}
    )


async def test_an_edit_of_a_bound_pods_record_moves_nothing_and_is_reported(served: SchedulingCluster) -> None:
    await two_cards(served)
    await served.pod("a", {MEMORY: 12})
    pod = (await served.bound("a"))["a"]
    first = annotations(pod)[RECORD]
    assert cards(pod, "nvidia") == [0]

    await edit(served, "a", '{"nvidia": [{"index": 1, "id": "GPU-1"}]}')
    await served.until(lambda: served.events("a", "AcceleratorRecordRewritten"), "the event on the pod")
    assert await rewrites(served) == 1
    assert await pods_on(served) == {0: ["a"], 1: []}
    await served.pod("b", {MEMORY: 12})
    assert cards((await served.bound("b"))["b"], "nvidia") == [1], "card 0 is not sold again"

    # After a restart only the record is known, until the node's agent corrects it.
    assert served.extender is not None
    served.extender.stop(limit_s=60)
    correction = {"accelshare.io/corrected-assignments": json.dumps({pod["metadata"]["uid"]: first})}
    await served.patch("/api/v1/nodes/n1", {"metadata": {"annotations": correction}})
    await served.start_extender()
    assert await pods_on(served) == {0: ["a"], 1: ["b"]}
    await edit(served, "a", None)
    await edit(served, "b", '{"nvidia": [{"index": 0, "id": "nowhere"}]}')
    await served.until(lambda: served.events("b", "AcceleratorRecordRewritten"), "the event on the other pod")
    assert await pods_on(served) == {0: ["a"], 1: ["b"]}
    await served.pod("c", {MEMORY: 5})
    await served.refused("c", "Insufficient GPU Memory in one device")


async def test_a_pod_named_like_the_uid_of_another_does_not_erase_it(served: SchedulingCluster) -> None:
    await two_cards(served)
    await served.pod("a", {MEMORY: 12})
    uid = (await served.bound("a"))["a"]["metadata"]["uid"]
    await served.pod(uid)
    await served.bound(uid)
    await served.delete(f"{PODS}/{uid}")
    await served.pod("b", {MEMORY: 12})
    assert cards((await served.bound("b"))["b"], "nvidia") == [1]
    assert await pods_on(served) == {0: ["a"], 1: ["b"]}


async def test_a_pod_that_only_has_the_agents_label_stops_no_node(served: SchedulingCluster) -> None:
    """Were it the node's agent, which is not ready, the node would take no pods."""
    await two_cards(served)
    await served.pod("impostor", labels={"accelshare.io/agent": "true"}, nodeName="n1")
    await served.pod("a", {MEMORY: 12})
    await served.bound("a")


@pytest.mark.parametrize("levels", [5_000, 30_000])
async def test_a_deep_record_does_not_hide_its_pod_after_a_restart(served: SchedulingCluster, levels: int) -> None:
    await two_cards(served)
    await served.pod("a", {MEMORY: 12})
    await served.bound("a")
    await edit(served, "a", f'{{"nvidia": [{{"more": {"[" * levels + "]" * levels}}}]}}')
    await served.until(lambda: served.events("a", "AcceleratorRecordUnreadable"), "the event on the pod")
    assert served.extender is not None
    served.extender.stop(limit_s=60)
    await served.start_extender()
    await served.pod("b", {MEMORY: 12})
    await served.refused("b", "Insufficient GPU Memory in one device")
