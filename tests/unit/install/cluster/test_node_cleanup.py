"""node-cleanup finds what an agent wrote on its node, and nothing else."""

import msgspec
import pytest

from accelshare.install.cluster.node_cleanup import AgentData, find, resources
from accelshare.vendors.catalog import load
from accelshare.wire.inventory import KEY, KindEntry, write
from accelshare.wire.objects import Node, node_decoder

KNOWN = {"zpu": ("acme.example/zpu-count", "acme.example/zpu-mem"), "other": ("other.example/card",)}


def node(annotations: dict[str, str], **status: dict[str, str]) -> Node:
    content = {"metadata": {"name": "n1", "annotations": annotations}, "status": status}
    return node_decoder.decode(msgspec.json.encode(content))


def annotations(*kinds: str) -> dict[str, str]:
    return {KEY: write({kind: KindEntry(cards=[]) for kind in kinds})}


def test_the_inventory_and_the_amounts_of_its_vendors() -> None:
    """Of resources that the node shows, in either list; those of vendors that it never had stay."""
    shown = {"cpu": "2", "acme.example/zpu-count": "4", "other.example/card": "1"}
    found = find(node(annotations("zpu"), capacity=shown, allocatable={"acme.example/zpu-mem": "64"}), KNOWN)
    assert found == AgentData("n1", ("acme.example/zpu-count", "acme.example/zpu-mem"))
    assert len(found.lines) == 1
    assert all(name in found.lines[0] for name in ("n1", "inventory", *found.amounts))


def test_a_node_without_an_inventory_has_nothing_of_ours() -> None:
    """Also if it shows such resources: another device plugin may have registered them."""
    assert find(node({"a": "b"}, capacity={"acme.example/zpu-count": "4"}), KNOWN) is None


def test_a_vendor_without_a_profile_is_named() -> None:
    found = find(node(annotations("gone", "zpu"), capacity={"acme.example/zpu-count": "4"}), KNOWN)
    assert found == AgentData("n1", ("acme.example/zpu-count",), ("gone",))
    assert "n1" in found.lines[-1]
    assert "gone" in found.lines[-1]


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_an_unreadable_inventory_is_removed_too(text: str) -> None:
    assert find(node({KEY: text}, capacity={"acme.example/zpu-count": "4"}), KNOWN) == AgentData("n1")


def test_every_resource_of_a_profile_is_known() -> None:
    for profile in load([]):
        named = (profile.resources.count, profile.resources.memory, profile.resources.whole)
        assert resources(load([]))[profile.name] == tuple(name for name in named if name)
