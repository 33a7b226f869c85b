"""A rush by device plugins: no more than a few pods are bound before kubelet acknowledges them."""

import asyncio
import json
from typing import Any

from tests.contract.town import Town

INVENTORY = "accelshare.io/inventory"
NODE = "n1"


def node(town: Town, *, delivers: bool = True) -> dict[str, str]:
    cards = [{"index": index, "id": f"card-{index}", "size": 16} for index in range(4)]
    return {INVENTORY: json.dumps({"nvidia": {"cards": cards, "delivery": "device-plugin", "delivers": delivers}})}


def bound(town: Town, names: list[str]) -> list[str]:
    return [name for name in names if town.read(name)["spec"].get("nodeName")]


def kubelet_says(town: Town, name: str, **status: Any) -> None:
    content = {"status": {"startTime": "2026-01-01T00:00:00Z", **status}}
    town.api.store.patch("pods", name, content, content_type="application/merge-patch+json", subresource="status")


async def test_a_few_are_bound_and_the_others_wait_until_kubelet_has_them(town: Town) -> None:
    """Each bind waits with its card held, and none fails as long as kubelet keeps up."""
    town.api.store.create("nodes", {"metadata": {"name": NODE, "annotations": node(town)}})
    await town.start_extender()
    names = [f"p{number}" for number in range(12)]
    pods = [town.pod(name, 2) for name in names]
    binds = asyncio.gather(*(town.bind(pod, NODE) for pod in pods))
    acknowledged: set[str] = set()
    most = 0
    while not binds.done():
        most = max(most, len(set(bound(town, names)) - acknowledged))
        for name in bound(town, names):
            if name not in acknowledged and len(bound(town, names)) >= min(4 + len(acknowledged), 12):
                acknowledged.add(name)
                kubelet_says(town, name)
        await asyncio.sleep(0.01)
    assert await binds == [""] * 12
    assert most <= 4


async def test_one_rejection_pauses_the_node_until_its_agent_has_restarted(town: Town) -> None:
    town.api.store.create("nodes", {"metadata": {"name": NODE, "annotations": node(town)}})
    await town.start_extender()
    names = [f"p{number}" for number in range(12)]
    pods = [town.pod(name, 2) for name in names]
    binds = asyncio.gather(*(town.bind(pod, NODE) for pod in pods))
    await town.until(lambda: len(bound(town, names)) == 4, "four are bound")
    kubelet_says(town, bound(town, names)[0], phase="Failed", reason="UnexpectedAdmissionError")
    errors = [error for error in await binds if error]
    assert len(errors) == 8
    assert all(NODE in error for error in errors)
    assert len(bound(town, names)) == 4
    late = town.pod("late", 2)
    refused = await town.filter(late, NODE)
    assert NODE in {**(refused["FailedNodes"] or {}), **(refused["FailedAndUnresolvableNodes"] or {})}

    for delivers in (False, True):
        annotations = {"metadata": {"annotations": node(town, delivers=delivers)}}
        town.api.store.patch("nodes", NODE, annotations, content_type="application/merge-patch+json")

    async def offered() -> bool:
        return bool((await town.filter(late, NODE))["NodeNames"])

    await town.until(offered, "the node is offered again")
