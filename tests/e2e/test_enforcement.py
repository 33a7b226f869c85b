"""Pods that require enforced memory limits, scheduled by a real kube-scheduler."""

import json

import pytest

from tests.e2e.scheduling_cluster import SchedulingCluster, cards

pytestmark = pytest.mark.real

MEMORY = "aliyun.com/gpu-mem"
REQUIRED = {"accelshare.io/enforcement": "required"}
NOT_ENFORCED = "node has too few GPUs with enforced memory limits"


def inventory(node: str, enforced_by: str, *, min_units: int = 0) -> dict[str, object]:
    card = {"index": 0, "id": f"{node}-0", "size": 16, "enforced_by": enforced_by, "min_units": min_units}
    return {"nvidia": {"unit": "GiB", "cards": [card]}}


async def node(cluster: SchedulingCluster, name: str, enforced_by: str, *, min_units: int = 0) -> None:
    amounts = {MEMORY: 16, "aliyun.com/gpu-count": 1}
    await cluster.node(name, amounts, inventory=inventory(name, enforced_by, min_units=min_units))


async def publish(cluster: SchedulingCluster, name: str, enforced_by: str) -> None:
    """The agent of the node publishes who enforces the limits now."""
    text = json.dumps(inventory(name, enforced_by))
    await cluster.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": {"accelshare.io/inventory": text}}})


async def test_a_pod_that_requires_limits_waits_without_them_is_told_why_and_runs_with_them(served: SchedulingCluster) -> None:
    await node(served, "plain", "nobody")
    await served.pod("strict", {MEMORY: 4}, annotations=REQUIRED)
    message = await served.refused("strict", NOT_ENFORCED)
    assert message.startswith("0/1 nodes are available")
    # kube-scheduler knows that no eviction helps.
    assert "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling" in message
    await served.pod("any", {MEMORY: 4})
    assert (await served.bound("any"))["any"]["spec"]["nodeName"] == "plain"

    await node(served, "limited", "nvml")
    pod = (await served.bound("strict"))["strict"]
    assert (pod["spec"]["nodeName"], cards(pod, "nvidia")) == ("limited", [0])


async def test_a_node_that_gets_limits_serves_the_pod_that_waits_for_them(served: SchedulingCluster) -> None:
    await node(served, "n1", "nobody")
    await served.pod("strict", {MEMORY: 4}, annotations=REQUIRED)
    await served.refused("strict", NOT_ENFORCED)
    await publish(served, "n1", "dmem")
    assert (await served.bound("strict"))["strict"]["spec"]["nodeName"] == "n1"

    await publish(served, "n1", "nobody")

    def reported(found: dict[str, object]) -> bool:
        return "default/strict requires an enforced memory limit" in json.dumps(found)

    await served.inspected("/accelshare/inspect/n1", reported, "the pod without its limit is reported")
    assert (await served.one("strict"))["spec"]["nodeName"] == "n1"
    await served.pod("late", {MEMORY: 4}, annotations=REQUIRED)
    await served.refused("late", NOT_ENFORCED)


async def test_a_preferred_limit_chooses_the_node_and_a_small_slice_avoids_it(served: SchedulingCluster) -> None:
    await node(served, "limited", "nvml", min_units=2)
    await node(served, "plain", "nobody")
    await served.pod("fill", {MEMORY: 4}, nodeName="plain")  # the policy alone would prefer the fuller card
    await served.pod("prefers", {MEMORY: 4}, annotations={"accelshare.io/enforcement": "preferred"})
    await served.pod("small", {MEMORY: 1})
    bound = await served.bound("prefers", "small")
    assert {name: pod["spec"]["nodeName"] for name, pod in bound.items()} == {"prefers": "limited", "small": "plain"}


async def test_no_pod_is_evicted_for_a_limit_that_the_node_does_not_have(served: SchedulingCluster) -> None:
    await node(served, "plain", "nobody")
    await served.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "urgent", "labels": {"accelshare-test": "true"}}, "value": 1000},
    )
    await served.pod("low", {MEMORY: 16})
    await served.bound("low")
    await served.pod("strict", {MEMORY: 16}, annotations=REQUIRED, priorityClassName="urgent")
    await served.until(lambda: served.events("strict", "FailedScheduling"), "kube-scheduler has tried the pod")
    assert "deletionTimestamp" not in (await served.one("low"))["metadata"]


async def test_another_value_is_an_event_on_the_pod(served: SchedulingCluster) -> None:
    await node(served, "limited", "nvml")
    await served.pod("odd", {MEMORY: 4}, annotations={"accelshare.io/enforcement": "always"})
    text = "annotation accelshare.io/enforcement must be required or preferred"
    assert await served.until(lambda: served.events("odd", "BadAcceleratorRequest"), "the event on the pod") == [text]
    await served.refused("odd", text)
