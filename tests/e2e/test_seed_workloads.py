"""The original systems' workloads, unchanged, under a real kube-scheduler."""

import json

import pytest
import yaml

from tests.e2e.scheduling_cluster import ROOT, SchedulingCluster, annotations, cards, held

pytestmark = pytest.mark.real


async def test_the_four_gcushare_scenarios(served: SchedulingCluster) -> None:
    """4 goes to card 0, 8 to card 0, 12 to card 1, and 20 stays pending with the text in the guide."""
    await served.example_node("enflame")
    for number, card, units in ((1, "0", "4"), (2, "0", "8"), (3, "1", "12")):
        served.apply(f"examples/enflame/gcushare-pod-{number}.json", namespace="kube-system")
        pod = (await served.bound(f"gcushare-pod-{number}", namespace="kube-system"))[f"gcushare-pod-{number}"]
        record = annotations(pod)
        assert record["enflame.com/gcu-device-id"] == card
        assert record["enflame.com/gcu-device-memory"] == "16"
        assert record["enflame.com/gcu-device-memory-request"] == units
        assert record["enflame.com/gcu-device-assigned"] == "false"
        assert record["enflame.com/gcu-device-assign-time"].isdigit()
    served.apply("examples/enflame/gcushare-pod-4.json", namespace="kube-system")
    message = await served.refused("gcushare-pod-4", "insufficient GCU", namespace="kube-system")
    assert message.startswith("0/1 nodes are available: 1 insufficient GCU Memory in one gcu device.")

    shown = await served.inspect("/gcushare-scheduler/inspect/sse-lab-inspur-048")
    (node,) = shown["nodes"]
    assert (node["totalGCU"], node["usedGCU"], node["availableGCU"]) == (128, 24, 104)
    first = node["devices"][0]
    assert {key: first[key] for key in ("id", "totalGCU", "usedGCU", "availableGCU")} == {
        "id": 0,
        "totalGCU": 16,
        "usedGCU": 12,
        "availableGCU": 4,
    }
    assert [pod["name"] for pod in first["pods"]] == ["gcushare-pod-1", "gcushare-pod-2"]
    assert set(first["pods"][0]) == {"name", "namespace", "uid", "createTime", "usedGCU"}


async def test_two_replicas_of_4500_do_not_fit_one_card_of_8064(served: SchedulingCluster) -> None:
    await served.example_node("kunlun")
    served.apply("examples/kunlun/xpu_pod.yaml")
    await served.until(lambda: _all_bound(served, 2), "both replicas bound")
    shown = await served.inspect("/xpushare-scheduler/inspect")
    assert held(shown, "usedXPU", "devs") == {"minikube": [4500, 4500, 0, 0]}
    assert (shown["nodes"][0]["usedXPU"], shown["nodes"][0]["totalXPU"]) == (9000, 32256)


@pytest.mark.parametrize(("count", "given"), [("1", [0]), ("2", [0, 1]), ("4", [0, 1, 2, 3])])
async def test_xpu_count_takes_so_many_distinct_cards(served: SchedulingCluster, count: str, given: list[int]) -> None:
    await served.example_node("kunlun")
    await served.pod("many", {"baidu.com/xpu-mem": 4000}, labels={"baidu.com/xpu-count": count})
    pod = (await served.bound("many"))["many"]
    assert cards(pod, "kunlun") == given
    assert annotations(pod)["BAIDU_COM_XPU_MEM_IDX"] == ",".join(map(str, given))
    shown = await served.inspect("/xpushare-scheduler/inspect")
    assert held(shown, "usedXPU", "devs") == {"minikube": [4000 // len(given) if index in given else 0 for index in range(4)]}


@pytest.mark.parametrize(
    ("count", "words"),
    [
        ("3", "does not divide"),
        ("0", "must be a whole number"),
        ("two", "must be a whole number"),
        ("5", "too few"),
    ],
)
async def test_a_bad_xpu_count_is_refused(served: SchedulingCluster, count: str, words: str) -> None:
    await served.example_node("kunlun")
    await served.pod("bad", {"baidu.com/xpu-mem": 4000}, labels={"baidu.com/xpu-count": count})
    assert words in await served.refused("bad", words)


@pytest.mark.parametrize(("unit", "size", "asked"), [("GiB", 15, 3), ("MiB", 16127, 3072)])
async def test_the_gpushare_statefulset_is_packed_on_one_card(
    served: SchedulingCluster, unit: str, size: int, asked: int
) -> None:
    """Three pods of 3 GiB fit one T4, whichever unit the node counts in."""
    cards_ = [{"index": index, "id": f"GPU-{index}", "size": size} for index in range(2)]
    inventory = {"nvidia": {"unit": unit, "cards": cards_}}
    await served.node("worker-0", {"aliyun.com/gpu-mem": 2 * size, "aliyun.com/gpu-count": 2}, inventory=inventory)
    if unit == "GiB":
        served.apply("examples/nvidia/app.yaml")
    else:
        await _statefulset_in_mib(served, asked)
    pods = await served.bound("binpack-1-0", "binpack-1-1", "binpack-1-2")
    assert [annotations(pod)["ALIYUN_COM_GPU_MEM_IDX"] for pod in pods.values()] == ["0", "0", "0"]
    assert {annotations(pod)["ALIYUN_COM_GPU_MEM_DEV"] for pod in pods.values()} == {str(size)}
    shown = await served.inspect("/gpushare-scheduler/inspect")
    assert held(shown, "usedGPU", "devs") == {"worker-0": [3 * asked, 0]}
    assert set(shown["nodes"][0]) == {"name", "totalGPU", "usedGPU", "devs"}


async def test_a_node_of_an_original_plugin_has_equal_cards(served: SchedulingCluster) -> None:
    """No inventory: sizes come from the node's total and count, as the original extender takes them."""
    await served.node("old", {"aliyun.com/gpu-mem": 30, "aliyun.com/gpu-count": 2})
    served.apply("examples/nvidia/app.yaml")
    await served.bound("binpack-1-0", "binpack-1-1", "binpack-1-2")
    shown = await served.inspect("/gpushare-scheduler/inspect")
    assert held(shown, "usedGPU", "devs") == {"old": [9, 0]}
    await served.pod("large", {"aliyun.com/gpu-mem": 16})
    assert "Insufficient GPU Memory in one device" in await served.refused("large", "Insufficient GPU Memory")


async def test_the_card_is_on_the_pod_in_the_write_that_gives_it_a_node(served: SchedulingCluster) -> None:
    """A container that reads its card from the annotation can never start before the annotation is there."""
    await served.example_node("nvidia")
    listed = await served.read("/api/v1/namespaces/default/pods")
    served.apply("examples/nvidia/downward-api.yaml")
    first_with_node = None
    async for event in served.client.watch(
        "/api/v1/namespaces/default/pods", resource_version=listed["metadata"]["resourceVersion"]
    ):
        pod = json.loads(bytes(event.object))
        if event.type != "BOOKMARK" and pod["spec"].get("nodeName"):
            first_with_node = pod
            break
    assert first_with_node is not None
    assert annotations(first_with_node)["ALIYUN_COM_GPU_MEM_IDX"] == "0"
    env = first_with_node["spec"]["containers"][0]["env"][0]
    assert env["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.annotations['ALIYUN_COM_GPU_MEM_IDX']"


async def test_a_whole_npu_is_never_shared(served: SchedulingCluster) -> None:
    await served.example_node("stream")
    served.apply("examples/stream/example.yaml")
    await served.pod("second", {"streamcomputing.com/npu": 1})
    pods = await served.bound("stc-example-pod", "second")
    assert sorted(cards(pod, "stream")[0] for pod in pods.values()) == [0, 1]
    await served.pod("third", {"streamcomputing.com/npu": 1})
    assert "Insufficient streamcomputing.com/npu" in await served.refused("third", "Insufficient")


async def test_more_than_one_npu_is_refused(served: SchedulingCluster) -> None:
    await served.example_node("stream")
    await served.pod("greedy", {"streamcomputing.com/npu": 2})
    assert "at most one streamcomputing.com/npu" in await served.refused("greedy", "at most one")


async def test_whole_and_shared_pods_live_on_one_node(served: SchedulingCluster) -> None:
    await served.example_node("nvidia")
    await served.pod("slice-a", {"aliyun.com/gpu-mem": 3})
    await served.bound("slice-a")
    await served.pod("whole", {"nvidia.com/gpu": 2})
    await served.bound("whole")
    await served.pod("slice-b", {"aliyun.com/gpu-mem": 21})
    pods = await served.bound("slice-a", "slice-b", "whole")
    assert {name: cards(pod, "nvidia") for name, pod in pods.items()} == {"slice-a": [0], "whole": [1, 2], "slice-b": [3]}
    await served.pod("too-many", {"nvidia.com/gpu": 6})
    assert "too few" in await served.refused("too-many", "too few")


async def test_two_vendors_at_once_all_or_nothing(served: SchedulingCluster) -> None:
    await served.example_node("nvidia")
    await served.example_node("stream")
    inventory = {
        "nvidia": {"cards": [{"index": 0, "size": 16}]},
        "stream": {"cards": [{"index": 0, "size": 16}]},
    }
    amounts = {"aliyun.com/gpu-mem": 16, "aliyun.com/gpu-count": 1, "streamcomputing.com/npu": 1}
    await served.node("both", amounts, inventory=inventory)
    await served.pod("pair", {"aliyun.com/gpu-mem": 4, "streamcomputing.com/npu": 1})
    pod = (await served.bound("pair"))["pair"]
    assert pod["spec"]["nodeName"] == "both"
    assert (cards(pod, "nvidia"), cards(pod, "stream")) == ([0], [0])


async def _all_bound(scheduling_cluster: SchedulingCluster, count: int) -> bool:
    pods = await scheduling_cluster.pods()
    return len(pods) == count and all(pod["spec"].get("nodeName") for pod in pods.values())


async def _statefulset_in_mib(scheduling_cluster: SchedulingCluster, asked: int) -> None:
    content = yaml.safe_load((ROOT / "examples/nvidia/app.yaml").read_text())
    content["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["aliyun.com/gpu-mem"] = asked
    await scheduling_cluster.create("/apis/apps/v1/namespaces/default/statefulsets", content)
