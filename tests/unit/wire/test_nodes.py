"""The cards of a node object: each by the inventory, or equal ones by total and count."""

import json
from pathlib import Path
from typing import Any

import pytest

from accelshare.ledger.nouns import Card, Slice
from accelshare.vendors.catalog import load
from accelshare.wire import inventory
from accelshare.wire.nodes import NodeReader
from tests.unit.wire.objects import node


@pytest.fixture(scope="module")
def reader() -> NodeReader:
    return NodeReader(load())


def decode(reader: NodeReader, content: dict[str, Any]) -> Any:
    return reader.decode(json.dumps(content).encode())


def test_the_inventory_lists_each_card(reader: NodeReader) -> None:
    entries = [
        inventory.CardEntry(index=0, size=23, id="GPU-a", minor=3, model="A30", numa=0),
        inventory.CardEntry(index=1, size=15, id="GPU-b", healthy=False),
    ]
    text = inventory.write({"nvidia": inventory.KindEntry(entries, unit="GiB")})
    fact = decode(reader, node({"aliyun.com/gpu-mem": "999", "aliyun.com/gpu-count": "3"}, inventory=text))
    assert fact.cards == (Card("nvidia", 0, 23, True, "GPU-a"), Card("nvidia", 1, 15, False, "GPU-b"))
    assert (fact.name, fact.version, fact.address, fact.problems) == ("n1", 3, "10.0.0.1", ())


def test_a_card_is_limited_if_a_way_was_proven_for_it(reader: NodeReader) -> None:
    entries = [
        inventory.CardEntry(index=0, size=23, enforced_by="nvml", min_units=1),
        inventory.CardEntry(index=1, size=23, enforced_by="nobody"),
        inventory.CardEntry(index=2, size=23, enforced_by="watch"),
        inventory.CardEntry(index=3, size=23),
    ]
    cards = decode(reader, node(inventory=inventory.write({"nvidia": inventory.KindEntry(entries)}))).cards
    assert cards[0] == Card("nvidia", 0, 23, limited=True, min_units=1, way="nvml")
    assert cards[1:] == tuple(Card("nvidia", index, 23) for index in (1, 2, 3))


@pytest.mark.parametrize("way", ["NVML", "nvml\n", "a b", "x" * 64, '"} 1', "\u202e", "-", "9"])
def test_a_text_that_is_no_name_of_a_way_proves_no_limit(reader: NodeReader, way: str) -> None:
    text = json.dumps({"nvidia": {"cards": [{"index": 0, "size": 23, "enforced_by": way}]}})
    seen = decode(reader, node(inventory=text))
    assert (seen.cards, seen.problems) == ((Card("nvidia", 0, 23),), ())


def test_unknown_fields_of_an_inventory_are_ignored(reader: NodeReader) -> None:
    text = json.dumps({"nvidia": {"cards": [{"index": 0, "size": 23, "shape": "whole"}], "since": 1}, "later": {"cards": []}})
    assert decode(reader, node(inventory=text)).cards == (Card("nvidia", 0, 23),)


def test_without_an_inventory_cards_are_total_by_count(reader: NodeReader) -> None:
    fact = decode(reader, node({"aliyun.com/gpu-mem": "31", "aliyun.com/gpu-count": "2"}))
    assert fact.cards == (Card("nvidia", 0, 15), Card("nvidia", 1, 15))


@pytest.mark.parametrize(
    ("cards", "fact"),
    [
        ([{"index": 0, "size": 1, "id": "x" * 220_000}], "id of 220000 characters"),
        ([{"index": 0, "size": 1, "id": "x" * 129}], "at most 128 characters"),
        ([{"index": 256, "size": 1}], "an index is 0 to 255"),
        ([{"index": -1, "size": 9**20}] * 5_000, "5000 of 5000 cards"),
        ([{"index": 0, "size": 1, "min_units": -1}], "min_units -1"),
        ([{"index": 0, "size": 1, "min_units": 2**24 + 1}], "min_units 16777217"),
        ([{"index": index, "size": 1} for index in range(257)], "at most 256"),
    ],
)
def test_an_oversized_inventory_has_no_cards_and_one_short_problem(
    reader: NodeReader, cards: list[dict[str, Any]], fact: str
) -> None:
    seen = decode(reader, node(inventory=json.dumps({"nvidia": {"cards": cards}})))
    assert seen.cards == ()
    assert fact in "; ".join(seen.problems)
    assert len("".join(seen.problems)) < 1_000


def test_only_known_vendors_of_an_inventory_count(reader: NodeReader) -> None:
    text = json.dumps({kind: {"cards": [], "delivers": False, "delivery": "nri"} for kind in ("nvidia", "nobody's")})
    seen = decode(reader, node(inventory=text))
    assert (seen.paused, seen.by_runtime) == (frozenset({"nvidia"}), frozenset({"nvidia"}))


def test_a_node_corrects_the_records_of_its_pods(reader: NodeReader) -> None:
    content = node({"aliyun.com/gpu-mem": "31", "aliyun.com/gpu-count": "2"})
    corrections = {
        "good": '{"nvidia": [{"index": 1, "id": "GPU-b", "units": 3}]}',
        "broken": "{",
        "twice": '{"nvidia": [{"index": 1}, {"index": 1}]}',
        "long": json.dumps({"nvidia": [{"index": 1, "id": "x" * 129}]}),
        "far": '{"nvidia": [{"index": 256}]}',
    }
    content["metadata"]["annotations"] = {"accelshare.io/corrected-assignments": json.dumps(corrections)}
    corrected = decode(reader, content).corrected
    assert corrected.pop("good") == (Slice("nvidia", 1, 3, id="GPU-b"),)
    assert corrected == dict.fromkeys(["broken", "twice", "long", "far"], ())
    for text in ("[" * 30_000, '{"good": 1}', "x"):
        content["metadata"]["annotations"] = {"accelshare.io/corrected-assignments": text}
        assert decode(reader, content).corrected == {}


@pytest.mark.parametrize("text", ["[" * 30_000, '{"nvidia": {"more":' + "[" * 30_000 + "]" * 30_000 + "}}", "[" * 300_000])
def test_a_node_with_an_unreadable_inventory_has_no_cards(reader: NodeReader, text: str) -> None:
    fact = decode(reader, node(inventory=text))
    assert (fact.name, fact.cards) == ("n1", ())
    (problem,) = fact.problems
    assert "accelshare.io/inventory" in problem
    assert len(problem) < 300


@pytest.mark.parametrize("text", ["", "null", "{", '{"enflame": 7}', '{"nvidia": {"cards": []}, "enflame": []}'])
def test_cards_are_not_estimated_where_there_is_an_inventory_that_cannot_be_read(reader: NodeReader, text: str) -> None:
    """Estimated cards have no id and no health, and delivery may be paused: a pod bound to one may not get it."""
    amounts = {"enflame.com/gcu-memory": "32", "enflame.com/gcu-count": "2", "streamcomputing.com/npu": "2"}
    fact = decode(reader, node(amounts, inventory=text))
    assert fact.cards == ()
    assert len(fact.problems) == 1


def test_one_vendor_may_have_an_inventory_and_another_not(reader: NodeReader) -> None:
    text = json.dumps({"nvidia": {"cards": [{"index": 0, "size": 8}]}})
    fact = decode(reader, node({"enflame.com/gcu-memory": "32", "enflame.com/gcu-count": "2"}, inventory=text))
    assert sorted((card.kind, card.index, card.size) for card in fact.cards) == [
        ("enflame", 0, 16),
        ("enflame", 1, 16),
        ("nvidia", 0, 8),
    ]


def test_cards_that_are_not_sliced_are_counted(reader: NodeReader) -> None:
    assert decode(reader, node({"streamcomputing.com/npu": "2"})).cards == (Card("stream", 0, 0), Card("stream", 1, 0))


def test_a_total_without_a_count_is_reported(reader: NodeReader) -> None:
    fact = decode(reader, node({"aliyun.com/gpu-mem": "30"}))
    assert fact.cards == ()
    assert "aliyun.com/gpu-count is missing" in fact.problems[0]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"nvidia": {"cards": [{"index": 0}]}}',
        '{"nvidia": {"cards": [{"index": -1, "size": 1}]}}',
        '{"nvidia": {"cards": [{"index": 0, "size": 99999999999}]}}',
        '{"nvidia": {"cards": [{"index": 0, "size": 1}, {"index": 0, "size": 1}]}}',
        '{"nvidia": {"cards": [{"index": 0, "size": 1, "id": "A"}, {"index": 1, "size": 1, "id": "A"}]}}',
    ],
)
def test_an_impossible_inventory_is_reported_and_has_no_cards(reader: NodeReader, text: str) -> None:
    fact = decode(reader, node({}, inventory=text))
    assert fact.cards == ()
    assert "accelshare.io/inventory" in fact.problems[0]


def test_impossible_counts_give_no_card(reader: NodeReader) -> None:
    fact = decode(reader, node({"aliyun.com/gpu-mem": "99999999", "aliyun.com/gpu-count": "99999"}))
    assert fact.cards == ()
    assert "cannot be right" in fact.problems[0]


def test_a_node_without_anything_has_no_cards(reader: NodeReader) -> None:
    fact = reader.decode(b'{"metadata": {"name": "n1", "resourceVersion": "abc"}}')
    assert (fact.cards, fact.version, fact.address) == ((), 0, "")


def test_cards_have_the_most_slices_of_their_profile(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('extends = "nvidia"\n[request]\nmax_slices_per_card = 4\n')
    reader = NodeReader(load([tmp_path]))
    text = inventory.write({"nvidia": inventory.KindEntry([inventory.CardEntry(0, 16)], unit="GiB")})
    assert decode(reader, node(inventory=text)).cards == (Card("nvidia", 0, 16, max_slices=4),)
    without = decode(reader, node({"aliyun.com/gpu-mem": "16", "aliyun.com/gpu-count": "1"}))
    assert without.cards == (Card("nvidia", 0, 16, max_slices=4),)


def test_a_vendor_without_a_count_resource_needs_the_inventory(reader: NodeReader) -> None:
    fact = decode(reader, node({"amd.com/gpu-memory": "16384"}))
    assert fact.cards == ()
    assert fact.problems == (
        "amd.com/gpu-memory is 16384 but annotation accelshare.io/inventory is missing; without it no card's size is known",
    )


def test_nodes_with_the_same_kinds_share_one_set_of_them(reader: NodeReader) -> None:
    """A set of its own takes 232 bytes, and each of thousands of nodes has three."""
    text = inventory.write({"nvidia": inventory.KindEntry([], delivers=False)})
    one, other = (decode(reader, node({}, inventory=text)) for _ in range(2))
    assert one.paused == {"nvidia"}
    assert one.paused is other.paused
    assert one.by_runtime is other.by_device_plugin
