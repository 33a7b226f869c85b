"""What an agent wrote on its node is found, and nothing else."""

import msgspec
import pytest

from accelshare.install.cluster.node_cleanup.finding import Traces, find, resources
from accelshare.vendors.catalog import load
from accelshare.wire.inventory import KEY, KindEntry, write
from accelshare.wire.objects import Node, node_decoder

KNOWN = {"zpu": ("acme.example/zpu-count", "acme.example/zpu-mem"), "other": ("other.example/card",)}


def node(annotations: dict[str, str], **status: dict[str, str]) -> Node:
    content = {"metadata": {"name": "n1", "annotations": annotations}, "status": status}
    return node_decoder.decode(msgspec.json.encode(content))


def told(*kinds: str) -> dict[str, str]:
    return {KEY: write({kind: KindEntry(cards=[]) for kind in kinds})}


def test_the_inventory_and_the_amounts_of_its_kinds() -> None:
    """Of resources that the node shows, in either list; those of kinds that it never had stay."""
    shown = {"cpu": "2", "acme.example/zpu-count": "4", "other.example/card": "1"}
    found = find(node(told("zpu"), capacity=shown, allocatable={"acme.example/zpu-mem": "64"}), KNOWN)
    assert found == Traces("n1", ("acme.example/zpu-count", "acme.example/zpu-mem"))
    assert found.lines == ("node n1: inventory, acme.example/zpu-count, acme.example/zpu-mem taken away",)


def test_a_node_without_an_inventory_has_nothing_of_ours() -> None:
    """Also if it shows such resources: somebody else's device plugin may have told of them."""
    assert find(node({"a": "b"}, capacity={"acme.example/zpu-count": "4"}), KNOWN) is None


def test_a_kind_that_no_profile_knows_is_said() -> None:
    found = find(node(told("gone", "zpu"), capacity={"acme.example/zpu-count": "4"}), KNOWN)
    assert found == Traces("n1", ("acme.example/zpu-count",), ("gone",))
    assert found.lines[-1] == "node n1: no profile knows gone, its amounts stay"


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_an_inventory_that_cannot_be_read_goes_all_the_same(text: str) -> None:
    assert find(node({KEY: text}, capacity={"acme.example/zpu-count": "4"}), KNOWN) == Traces("n1")


def test_every_resource_of_a_profile_is_known() -> None:
    for profile in load([]):
        named = (profile.resources.count, profile.resources.memory, profile.resources.whole)
        assert resources(load([]))[profile.name] == tuple(name for name in named if name)
