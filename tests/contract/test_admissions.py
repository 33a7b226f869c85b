"""With device plugins, only a few pods of a rush are bound before kubelet acknowledges them."""

import asyncio
import json
from typing import Any

from tests.contract.fake_cluster import FakeCluster

INVENTORY = "accelshare.io/inventory"
NODE = "n1"


def node(fake_cluster: FakeCluster, *, delivers: bool = True) -> dict[str, str]:
    cards = [{"index": index, "id": f"card-{index}", "size": 16} for index in range(4)]
    return {INVENTORY: json.dumps({"nvidia": {"cards": cards, "delivery": "device-plugin", "delivers": delivers}})}


def bound(fake_cluster: FakeCluster, names: list[str]) -> list[str]:
    return [name for name in names if fake_cluster.read(name)["spec"].get("nodeName")]


def kubelet_says(fake_cluster: FakeCluster, name: str, **status: Any) -> None:
    content = {"status": {"startTime": "2026-01-01T00:00:00Z", **status}}
    fake_cluster.api.store.patch("pods", name, content, content_type="application/merge-patch+json", subresource="status")


async def test_a_few_pods_are_bound_and_others_wait_for_kubelet(fake_cluster: FakeCluster) -> None:
    """Each bind waits with its card held, and none fails as long as kubelet keeps up."""
    fake_cluster.api.store.create("nodes", {"metadata": {"name": NODE, "annotations": node(fake_cluster)}})
    await fake_cluster.start_extender()
    names = [f"p{number}" for number in range(12)]
    pods = [fake_cluster.pod(name, 2) for name in names]
    binds = asyncio.gather(*(fake_cluster.bind(pod, NODE) for pod in pods))
    acknowledged: set[str] = set()
    most = 0
    while not binds.done():
        most = max(most, len(set(bound(fake_cluster, names)) - acknowledged))
        for name in bound(fake_cluster, names):
            if name not in acknowledged and len(bound(fake_cluster, names)) >= min(4 + len(acknowledged), 12):
                acknowledged.add(name)
                kubelet_says(fake_cluster, name)
        await asyncio.sleep(0.01)
    assert await binds == [""] * 12
    assert most <= 4


async def test_one_rejection_pauses_the_node_until_its_agent_has_restarted(fake_cluster: FakeCluster) -> None:
    fake_cluster.api.store.create("nodes", {"metadata": {"name": NODE, "annotations": node(fake_cluster)}})
    await fake_cluster.start_extender()
    names = [f"p{number}" for number in range(12)]
    pods = [fake_cluster.pod(name, 2) for name in names]
    binds = asyncio.gather(*(fake_cluster.bind(pod, NODE) for pod in pods))
    await fake_cluster.until(lambda: len(bound(fake_cluster, names)) == 4, "four are bound")
    kubelet_says(fake_cluster, bound(fake_cluster, names)[0], phase="Failed", reason="UnexpectedAdmissionError")
    errors = [error for error in await binds if error]
    assert len(errors) == 8
    assert all(NODE in error for error in errors)
    assert len(bound(fake_cluster, names)) == 4
    late = fake_cluster.pod("late", 2)
    refused = await fake_cluster.filter(late, NODE)
    assert NODE in {**(refused["FailedNodes"] or {}), **(refused["FailedAndUnresolvableNodes"] or {})}

    for delivers in (False, True):
        annotations = {"metadata": {"annotations": node(fake_cluster, delivers=delivers)}}
        fake_cluster.api.store.patch("nodes", NODE, annotations, content_type="application/merge-patch+json")

    async def offered() -> bool:
        return bool((await fake_cluster.filter(late, NODE))["NodeNames"])

    await fake_cluster.until(offered, "the node is offered again")
