"""Versions work together: this one counts what 0.1 wrote as 0.1 did, and 0.1 counted what this one writes.

`recorded/0.1` has objects that the extender and the agents of 0.1 wrote, and what 0.1's extender made of them and of objects of
this version; `record_upgrade.py` recorded them with 0.1's own code. How to record again: recorded/0.1/README.md.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from accelshare.vendors.catalog import load
from accelshare.wire import assignment, inventory
from accelshare.wire.nodes import NodeReader
from accelshare.wire.pods import PodReader
from tests.contract import upgrade_objects
from tests.contract.fake_cluster import FakeCluster, Object

RECORDED = Path(__file__).parent / "recorded/0.1"
CATALOG = load(())


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


def sums(inspect: Object) -> dict[tuple[str, str, int], tuple[Any, ...]]:
    """By card: its id, size, used and free units, health, and how much each pod has."""
    return {
        (node["name"], card["kind"], card["index"]): (
            *(card[key] for key in ("id", "size", "used", "free", "healthy", "present")),
            sorted((pod["name"], pod["units"], pod["whole"]) for pod in card["pods"]),
        )
        for node in inspect["nodes"]
        for card in node["cards"]
    }


async def inspected(cluster: FakeCluster, nodes: list[Object], pods: list[Object]) -> Object:
    """What this version's extender makes of these objects."""
    for resource, objects in {"nodes": nodes, "pods": pods}.items():
        for each in objects:
            each["metadata"].pop("resourceVersion", None)  # the API server gives it another
            namespace = each["metadata"].get("namespace", "")
            cluster.api.store.create(resource, each, namespace=namespace)
            if each.get("spec", {}).get("nodeName"):
                started = {"status": {"phase": "Running", "startTime": "2026-11-17T05:00:00Z"}}  # by kubelet
                cluster.api.store.patch(resource, each["metadata"]["name"], started, namespace=namespace, subresource="status")
    await cluster.start_extender()
    found: Object = json.loads((await cluster.call("GET", "/accelshare/inspect"))[1])
    assert all(not node["unplaced"] for node in found["nodes"])
    return found


async def test_this_extender_counts_what_0_1_wrote_as_0_1_did(fake_cluster: FakeCluster) -> None:
    """Inventories of its agents with two unhealthy cards, records of slices, of a slice of two cards and of whole cards."""
    found = sums(await inspected(fake_cluster, recorded("nodes"), recorded("pods")))
    assert found == sums(recorded("inspect"))
    assert sum(not card[4] for card in found.values()) == 2
    assert sum(len(card[6]) for card in found.values()) == 17


async def test_this_extender_binds_to_nodes_of_0_1s_agents(fake_cluster: FakeCluster) -> None:
    """Cards 4 to 6 of the node have room for a whole card; 7 is unhealthy."""
    await inspected(fake_cluster, recorded("nodes"), recorded("pods"))
    assert await fake_cluster.bind(whole_cards(fake_cluster, "whole", 2), "dev-server-153") == ""
    slices = assignment.slices_of(fake_cluster.read("whole")["metadata"]["annotations"][assignment.OURS])
    assert [(slice_.index, slice_.id, slice_.whole) for slice_ in slices] == [(5, "GPU-a30-5", True), (6, "GPU-a30-6", True)]
    assert "no GPU is empty" in await fake_cluster.bind(whole_cards(fake_cluster, "again", 1), "dev-server-153")


def whole_cards(cluster: FakeCluster, name: str, count: int) -> Object:
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": count}}}
    cluster.api.store.create("pods", {"metadata": {"name": name}, "spec": {"containers": [container]}}, namespace="default")
    return cluster.read(name)


@pytest.mark.parametrize("what", ["nodes", "pods"])
def test_this_version_still_writes_what_0_1_was_shown(what: str) -> None:
    """If a writer changes, show 0.1 the new objects: record again."""
    now = getattr(upgrade_objects, what)()
    assert json.loads(json.dumps(now)) == recorded(f"{what}-of-this-version")


async def test_0_1_counted_what_this_version_writes_as_this_version_does(fake_cluster: FakeCluster) -> None:
    """Both without resizes, which 0.1 does not know: it counts the amount that the pod requested. The install page says so."""
    ours = sums(await inspected(fake_cluster, upgrade_objects.nodes(), upgrade_objects.pods()))
    theirs = sums(recorded("inspect-of-this-version"))
    assert ours == theirs
    assert theirs["by-runtime", "enflame", 0][-1] == [("resized", 4, False)]


def test_no_part_of_what_0_1_wrote_is_unreadable() -> None:
    for node in recorded("nodes"):
        fact = NodeReader(CATALOG).decode(json.dumps(node).encode())
        assert fact is not None
        assert fact.problems == ()
        assert fact.by_device_plugin
        assert inventory.entries_of(node["metadata"]["annotations"][inventory.KEY])
    for pod in recorded("pods"):
        seen = PodReader(CATALOG).decode(json.dumps(pod).encode())
        assert seen is not None
        assert getattr(seen, "problems", ()) == ()
