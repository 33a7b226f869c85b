"""A reader gets from any snapshot to the newest by one message, however many it missed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.dashboard import updates as module
from accelshare.dashboard.snapshot import DashboardSnapshot
from accelshare.dashboard.updates import Message, Updates


def snapshot(nodes: dict[str, int], **sections: object) -> DashboardSnapshot:
    return DashboardSnapshot(
        {name: json.dumps({"name": name, "value": value}).encode() for name, value in nodes.items()},
        {name: json.dumps(part).encode() for name, part in sections.items()},
    )


class Reader:
    """Does what the page does with messages."""

    def __init__(self) -> None:
        self.nodes: dict[str, int] = {}
        self.sections: dict[str, Any] = {}
        self.number = 0

    def read(self, updates: Updates) -> Message:
        message = updates.message(self.number)
        self.number = updates.number
        content = json.loads(message.data)
        if message.event == "snapshot":
            self.nodes.clear()
            self.sections.clear()
        for name in content.pop("removed"):
            self.nodes.pop(name, None)  # it may have come and gone unseen
        self.nodes.update({node["name"]: node["value"] for node in content.pop("nodes")})
        self.sections.update(content)
        return message


def test_the_first_message_is_everything_and_the_next_only_what_changed() -> None:
    updates, reader = Updates("g"), Reader()
    updates.publish(snapshot({"a": 1, "b": 1}, totals={"nodes": 2}, waiting=[]))
    first = reader.read(updates)
    assert (first.event, first.id) == ("snapshot", "g.1")
    updates.publish(snapshot({"a": 1, "b": 2}, totals={"nodes": 2}, waiting=["x"]))
    second = reader.read(updates)
    assert (second.event, second.id) == ("update", "g.2")
    assert json.loads(second.data) == {"nodes": [{"name": "b", "value": 2}], "removed": [], "waiting": ["x"]}


def test_a_snapshot_without_a_change_is_no_message() -> None:
    updates = Updates("g")
    assert updates.publish(snapshot({"a": 1}, totals=1))
    assert not updates.publish(snapshot({"a": 1}, totals=1))
    assert updates.number == 1


histories = st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2)), min_size=1, max_size=12)


@given(histories, st.lists(st.booleans(), min_size=12, max_size=12))
def test_a_slow_reader_ends_with_the_same_as_a_fast_one(history: list[dict[str, int]], reads: list[bool]) -> None:
    """Whichever snapshots it missed."""
    updates, reader = Updates("g"), Reader()
    for nodes, does_read in zip(history, reads, strict=False):
        updates.publish(snapshot(nodes, totals=len(nodes)))
        if does_read:
            reader.read(updates)
            assert (reader.nodes, reader.sections) == (nodes, {"totals": len(nodes)})
    reader.read(updates)
    assert (reader.nodes, reader.sections) == (history[-1], {"totals": len(history[-1])})


def test_a_reader_of_another_process_gets_everything() -> None:
    updates = Updates("new")
    updates.publish(snapshot({"a": 1}))
    for event_id in ("old.1", "new.2", "new.x", "new.-1", "", "new.", f"new.{'9' * 40}", "new.१"):
        assert updates.seen_by(event_id) == 0, event_id
    assert updates.seen_by("new.1") == 1


def test_removed_nodes_are_remembered_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that missed more removals than are remembered gets everything."""
    monkeypatch.setattr(module, "MOST_REMOVED", 3)
    updates, late = Updates("g"), Reader()
    updates.publish(snapshot(dict.fromkeys("abcdefgh", 1)))
    late.read(updates)
    for kept in ("abcdefg", "abcdef", "abcde", "abcd", "abc"):
        updates.publish(snapshot(dict.fromkeys(kept, 1)))
    assert updates.seen_by("g.1") == 0
    assert late.read(updates).event == "snapshot"
    assert set(late.nodes) == set("abc")


def test_an_event_is_one_line_of_data() -> None:
    assert Message("update", "g.7", b"{}").encode() == b"event: update\nid: g.7\ndata: {}\n\n"
