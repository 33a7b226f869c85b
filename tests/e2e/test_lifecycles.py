"""Pods of every kind start, end and are recreated, nodes leave and return, cards fail: the ledger stays right."""

import json

import pytest

from tests.e2e.scheduling_cluster import SchedulingCluster, annotations, cards, container, held

pytestmark = pytest.mark.real

MEMORY = "aliyun.com/gpu-mem"


def inventory(*sizes: int, sick: tuple[int, ...] = ()) -> dict[str, object]:
    entries = [
        {"index": index, "id": f"GPU-{index}", "size": size, "healthy": index not in sick} for index, size in enumerate(sizes)
    ]
    return {"nvidia": {"unit": "GiB", "cards": entries}}


async def gpu_node(scheduling_cluster: SchedulingCluster, name: str, *sizes: int) -> None:
    await scheduling_cluster.node(name, {MEMORY: sum(sizes), "aliyun.com/gpu-count": len(sizes)}, inventory=inventory(*sizes))


async def used(scheduling_cluster: SchedulingCluster) -> dict[str, list[int]]:
    return held(await scheduling_cluster.inspect("/gpushare-scheduler/inspect"), "usedGPU", "devs")


async def test_a_pod_holds_what_kubernetes_counts_at_its_peak(served: SchedulingCluster) -> None:
    """Containers add up, init containers come one by one, sidecars stay: on one card, in one amount."""
    await gpu_node(served, "n1", 32)
    limits = {units: {MEMORY: units} for units in range(1, 9)}
    await served.pod("several", containers=[container("a", limits[3]), container("b", limits[5]), container("c", {})])
    await served.pod("init", limits[4], initContainers=[container("first", limits[8]), container("second", limits[2])])
    await served.pod("sidecar", limits[4], initContainers=[container("beside", limits[2], restartPolicy="Always")])
    pods = await served.bound("several", "init", "sidecar")
    assert {name: annotations(pod)["ALIYUN_COM_GPU_MEM_POD"] for name, pod in pods.items()} == {
        "several": "8",
        "init": "8",
        "sidecar": "6",
    }
    assert await used(served) == {"n1": [22]}
    await served.pod("too-large", limits[8], initContainers=[container("beside", limits[3], restartPolicy="Always")])
    await served.refused("too-large", "Insufficient aliyun.com/gpu-mem")


async def test_a_terminating_pod_keeps_its_card_until_it_is_gone(served: SchedulingCluster) -> None:
    """Two cards with 8 of 16 free each: while the old pod is shutting down, 16 are nowhere."""
    await gpu_node(served, "n1", 16, 16)
    for name in ("a", "b"):
        await served.pod(name, {MEMORY: 9})
        await served.bound(name)
    await served.delete("/api/v1/namespaces/default/pods/b", grace_s=600)
    assert (await served.one("b"))["metadata"]["deletionTimestamp"]
    await served.pod("waits", {MEMORY: 14})
    await served.refused("waits", "Insufficient GPU Memory in one device")
    await served.delete("/api/v1/namespaces/default/pods/b")
    pod = (await served.bound("waits"))["waits"]
    assert cards(pod, "nvidia") == [1]


async def test_a_touched_status_makes_the_scheduler_retry_a_refused_pod(served: SchedulingCluster) -> None:
    """What `extender/requeue.py` rests on: nothing else has changed, and filter is called."""
    await gpu_node(served, "n1", 16, 16)
    await served.pod("waits", {MEMORY: 17})
    await served.refused("waits", "Insufficient")

    async def refused() -> float:
        text = (await served.get("/metrics"))[1]
        return float(text.partition('accelshare_decisions_total{outcome="refused",verb="filter"} ')[2].partition("\n")[0])

    before = await refused()
    pod = await served.one("waits")
    record = {"uid": pod["metadata"]["uid"], "annotations": {"accelshare.io/requeued": "now"}}
    await served.patch("/api/v1/namespaces/default/pods/waits/status", {"metadata": record})

    async def again() -> bool:
        return await refused() > before

    await served.until(again, "filter was asked once more")


async def test_a_pod_that_ended_frees_its_card_before_it_is_deleted(served: SchedulingCluster) -> None:
    await gpu_node(served, "n1", 16)
    await served.pod("job", {MEMORY: 16})
    await served.bound("job")
    await served.pod("next", {MEMORY: 16})
    await served.refused("next", "Insufficient")
    await served.phase("job", "Succeeded")
    await served.bound("next")
    assert await used(served) == {"n1": [16]}


async def test_a_statefulset_pod_recreated_under_its_name_is_counted_once(served: SchedulingCluster) -> None:
    await gpu_node(served, "n1", 15)
    served.apply("examples/nvidia/app.yaml")
    before = await served.bound("binpack-1-0", "binpack-1-1", "binpack-1-2")
    for _ in range(3):
        uid = (await served.one("binpack-1-1"))["metadata"]["uid"]
        await served.delete("/api/v1/namespaces/default/pods/binpack-1-1")

        async def is_new(old: str = uid) -> bool:
            pod = (await served.pods()).get("binpack-1-1")
            return pod is not None and pod["metadata"]["uid"] != old and "nodeName" in pod["spec"]

        await served.until(is_new, "binpack-1-1 is back")
        await served.inspected("/gpushare-scheduler/inspect", lambda shown: shown["nodes"][0]["usedGPU"] == 9, "9 units held")
    after = await served.pods()
    assert after["binpack-1-0"]["metadata"]["uid"] == before["binpack-1-0"]["metadata"]["uid"]
    assert await used(served) == {"n1": [9]}


async def test_a_node_that_is_removed_and_added_again_is_right_again(served: SchedulingCluster) -> None:
    await gpu_node(served, "n1", 16, 16)
    await served.pod("stays", {MEMORY: 12})
    await served.bound("stays")
    await served.delete("/api/v1/nodes/n1")
    await served.inspected("/accelshare/inspect", lambda shown: not shown["nodes"][0]["known"], "the node is gone")
    await served.pod("early", {MEMORY: 12})
    await served.refused("early", "no nodes available")
    await gpu_node(served, "n1", 16, 16)
    pod = (await served.bound("early"))["early"]
    assert cards(pod, "nvidia") == [1]
    assert await used(served) == {"n1": [12, 12]}


async def test_a_pod_that_bypassed_the_scheduler_counts_until_its_card_is_known(served: SchedulingCluster) -> None:
    await gpu_node(served, "n1", 16, 16)
    await served.pod("stranger", {MEMORY: 10}, nodeName="n1")
    shown = await served.inspected("/accelshare/inspect/n1", lambda shown: bool(shown["nodes"][0]["unplaced"]), "it is seen")
    assert [pod["name"] for pod in shown["nodes"][0]["unplaced"]] == ["stranger"]
    await served.pod("small", {MEMORY: 6})
    await served.bound("small")
    await served.pod("large", {MEMORY: 16})
    await served.refused("large", "Insufficient GPU Memory in one device")
    uid = (await served.one("stranger"))["metadata"]["uid"]
    corrected = {uid: json.dumps({"nvidia": [{"index": 0, "id": "GPU-0", "units": 10}]})}
    await served.patch(
        "/api/v1/nodes/n1", {"metadata": {"annotations": {"accelshare.io/corrected-assignments": json.dumps(corrected)}}}
    )
    pod = (await served.bound("large"))["large"]
    assert cards(pod, "nvidia") == [1]
    assert await used(served) == {"n1": [16, 16]}


async def test_forged_annotations_are_written_over(served: SchedulingCluster) -> None:
    """What a user writes on a pod before it is scheduled decides nothing."""
    await gpu_node(served, "n1", 16, 16)
    await served.pod("first", {MEMORY: 4})
    await served.bound("first")
    forged = {"nvidia": [{"index": 7, "id": "GPU-7", "units": 1}]}
    await served.pod(
        "liar",
        {MEMORY: 12},
        annotations={
            "ALIYUN_COM_GPU_MEM_IDX": "1",
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
            "accelshare.io/assignment": json.dumps(forged),
        },
    )
    pod = (await served.bound("liar"))["liar"]
    assert cards(pod, "nvidia") == [0]
    assert annotations(pod)["ALIYUN_COM_GPU_MEM_IDX"] == "0"
    assert annotations(pod)["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "false"
    assert await used(served) == {"n1": [16, 0]}


async def test_a_record_of_a_missing_card_is_reported_and_counted_once(served: SchedulingCluster) -> None:
    await gpu_node(served, "n1", 16)
    await served.pod("astray", {MEMORY: 10}, nodeName="n1", annotations={"ALIYUN_COM_GPU_MEM_IDX": "x"})
    shown = await served.inspected(
        "/accelshare/inspect/n1", lambda shown: bool(shown["nodes"][0]["problems"]), "the node has a problem"
    )
    assert "ALIYUN_COM_GPU_MEM_IDX is 'x'" in shown["nodes"][0]["problems"][0]
    await served.until(lambda: served.events("astray", "AcceleratorRecordUnreadable"), "an event says so")
    seed = await served.inspect("/gpushare-scheduler/inspect")
    assert (seed["nodes"][0]["usedGPU"], seed["nodes"][0]["devs"][0]["usedGPU"]) == (10, 0)
    await served.pod("other", {MEMORY: 6})
    await served.bound("other")


async def test_an_unhealthy_card_gets_no_pods_and_recovers(served: SchedulingCluster) -> None:
    await gpu_node(served, "n1", 16, 16)
    await served.pod("on-it", {MEMORY: 4})
    await served.bound("on-it")

    async def tell(*sick: int) -> None:
        text = json.dumps(inventory(16, 16, sick=sick))
        await served.patch("/api/v1/nodes/n1", {"metadata": {"annotations": {"accelshare.io/inventory": text}}})

    await tell(0, 1)
    await served.inspected(
        "/accelshare/inspect/n1",
        lambda shown: not any(card["healthy"] for card in shown["nodes"][0]["cards"]),
        "the extender has heard that both cards are unhealthy",
    )
    await served.pod("waits", {MEMORY: 12})
    await served.refused("waits", "unhealthy")
    await tell()
    pod = (await served.bound("waits"))["waits"]
    assert cards(pod, "nvidia") == [0]


async def test_a_wrong_request_also_gets_an_event_from_the_extender(served: SchedulingCluster) -> None:
    await served.example_node("kunlun")
    await served.pod("bad", {"baidu.com/xpu-mem": 4001}, labels={"baidu.com/xpu-count": "2"})
    (message,) = await served.until(lambda: served.events("bad", "BadAcceleratorRequest"), "an event of ours")
    assert "does not divide" in message


async def test_with_full_node_objects_it_works_the_same(scheduling_cluster: SchedulingCluster) -> None:
    """nodeCacheCapable false: the scheduler sends whole nodes and wants whole nodes back."""
    await gpu_node(scheduling_cluster, "n1", 16)
    await gpu_node(scheduling_cluster, "n2", 8)
    await scheduling_cluster.start_extender()
    scheduling_cluster.start_scheduler(nodeCacheCapable=False)  # with both nodes in its cache before the first pod
    await scheduling_cluster.pod("a", {MEMORY: 8})
    await scheduling_cluster.pod("b", {MEMORY: 9})
    pods = await scheduling_cluster.bound("a", "b")
    assert {name: pod["spec"]["nodeName"] for name, pod in pods.items()} == {"a": "n2", "b": "n1"}
    await scheduling_cluster.pod("c", {MEMORY: 17})
    await scheduling_cluster.refused("c", "Insufficient")


async def test_a_pod_with_preferences_goes_where_it_prefers(scheduling_cluster: SchedulingCluster) -> None:
    """We prefer the tighter node; the pod has a preference for the other, so the scheduler decides."""
    await gpu_node(scheduling_cluster, "tight", 8)
    await gpu_node(scheduling_cluster, "wide", 16)
    await scheduling_cluster.start_extender()
    scheduling_cluster.start_scheduler()  # with both nodes in its cache before the first pod
    prefer = {
        "weight": 100,
        "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["wide"]}]},
    }
    await scheduling_cluster.pod("plain", {MEMORY: 4})
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [prefer]}}
    await scheduling_cluster.pod("choosy", {MEMORY: 4}, affinity=affinity)
    await scheduling_cluster.bound("plain", "choosy")
    assert scheduling_cluster.extender is not None
    lines = scheduling_cluster.extender.log.read_text().splitlines()
    assert any(line.find("filter pod=default/plain nodes=2 named=tight ") > 0 for line in lines)
    assert any(line.find("filter pod=default/choosy nodes=2 named=tight,wide ") > 0 for line in lines)
