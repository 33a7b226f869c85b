"""The checker finds every kind of bad history, and nothing in a good one."""

import json
from typing import Any

import pytest

from tests.trust.faults import GARBAGE
from tests.trust.history import CARD_COUNT, INVENTORY, MEMORY, RECORD, WHOLE, History, Object

SIZE = 16


def node(name: str = "n1", **sizes: int) -> Object:
    """A node with cards of these ids and sizes; without any, c0 and c1 of 16 units."""
    found = sizes or {"c0": SIZE, "c1": SIZE}
    cards = [{"index": index, "id": id_, "size": size} for index, (id_, size) in enumerate(found.items())]
    amounts = {MEMORY: str(sum(found.values())), WHOLE: str(len(found))}
    return {
        "metadata": {"name": name, "annotations": {INVENTORY: json.dumps({"enflame": {"cards": cards}})}},
        "status": {"allocatable": amounts},
    }


def pod(name: str, limits: dict[str, int], *on: str, node: str = "n1", phase: str = "Pending", count: str = "1") -> Object:
    """A pod that is pending, or one on cards such as "c0:4" or "c0:whole"."""
    entries: list[dict[str, Any]] = []
    for place in on:
        card, _, amount = place.partition(":")
        entries.append({"index": 0, "id": card, **({"whole": True} if amount == "whole" else {"units": int(amount)})})
    record = {RECORD: json.dumps({"enflame": entries})} if on else {}
    return {
        "metadata": {"uid": f"uid-{name}", "name": name, "annotations": {CARD_COUNT: count, **record}},
        "spec": {
            "containers": [{"resources": {"limits": {key: str(value) for key, value in limits.items()}}}],
            **({"nodeName": node} if on else {}),
        },
        "status": {"phase": phase},
    }


class Play:
    """Plays versions one second apart."""

    def __init__(self) -> None:
        self.history = History(grace_s=10)
        self.revision = 0
        self.node(node())

    def node(self, content: Object, *, deleted: bool = False) -> None:
        self.revision += 1
        self.history.see_node(content, at_s=self.revision, deleted=deleted)

    def pod(self, *args: Any, deleted: bool = False, **more: Any) -> None:
        self.revision += 1
        self.history.see_pod(pod(*args, **more), revision=self.revision, at_s=self.revision, deleted=deleted)

    @property
    def rules(self) -> list[str]:
        return [finding.rule for finding in self.history.findings]


@pytest.fixture
def play() -> Play:
    return Play()


def test_a_good_history_has_no_finding(play: Play) -> None:
    play.pod("a", {MEMORY: 12})
    play.pod("a", {MEMORY: 12}, "c0:12")
    play.pod("b", {MEMORY: 4}, "c0:4")
    play.pod("a", {MEMORY: 12}, "c0:12", phase="Succeeded")
    play.pod("c", {MEMORY: 12}, "c0:12")
    play.history.release("a")
    play.pod("a", {MEMORY: 12}, "c0:12", phase="Succeeded", deleted=True)
    play.pod("whole", {WHOLE: 1}, "c1:whole")
    play.history.judge_end(created={"a", "b", "c", "whole"}, early=set())
    assert play.rules == []
    assert play.history.binds == 4
    assert play.history.books() == {"n1/c0": ["b 4", "c 12"], "n1/c1": ["whole whole"]}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (({MEMORY: 12}, "c0:12"), ({MEMORY: 5}, "c0:5")),
        (({WHOLE: 1}, "c0:whole"), ({MEMORY: 1}, "c0:1")),
        (({MEMORY: 1}, "c0:1"), ({WHOLE: 1}, "c0:whole")),
        (({WHOLE: 1}, "c0:whole"), ({WHOLE: 1}, "c0:whole")),
    ],
)
def test_an_oversold_card_is_found(play: Play, first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    play.pod("a", *first)
    assert play.rules == []
    play.pod("b", *second)
    assert play.rules == ["oversold"]
    finding = play.history.findings[0]
    assert "uid-b" in finding.history
    assert "uid-a" in finding.text


def test_an_oversold_card_is_found_although_one_of_the_pods_ends_at_once(play: Play) -> None:
    play.pod("a", {MEMORY: 12}, "c0:12")
    play.pod("b", {MEMORY: 12}, "c0:12")
    play.history.release("b")
    play.pod("b", {MEMORY: 12}, "c0:12", deleted=True)
    assert play.rules == ["oversold"]


def test_a_pod_that_terminates_still_has_its_card(play: Play) -> None:
    play.pod("a", {MEMORY: 12}, "c0:12", phase="Running")
    play.pod("b", {MEMORY: 12}, "c0:12")
    assert play.rules == ["oversold"]


def test_a_card_that_shrank_long_ago_is_judged_by_its_new_size(play: Play) -> None:
    play.pod("a", {MEMORY: 8}, "c0:8")
    play.node(node(c0=8, c1=8))
    play.pod("b", {MEMORY: 8}, "c0:8")  # the extender may not know it yet
    assert play.rules == []
    play.revision += 20
    play.pod("c", {MEMORY: 8}, "c1:8")
    assert play.rules == []
    play.pod("d", {MEMORY: 1}, "c1:1")
    assert play.rules == ["oversold"]


def test_a_bind_to_a_card_of_a_node_that_was_deleted_is_found(play: Play) -> None:
    play.node(node(), deleted=True)
    play.node(node(d0=SIZE))
    play.revision += 20
    play.pod("a", {MEMORY: 1}, "d0:1")
    assert play.rules == []
    play.pod("b", {MEMORY: 1}, "c0:1")
    assert play.rules == ["oversold"]


def test_a_bind_to_a_node_that_was_never_seen_is_found(play: Play) -> None:
    play.pod("a", {MEMORY: 1}, "c0:1", node="n9")
    assert play.rules == ["oversold"]


def test_a_pod_that_moves_to_another_node_is_bound_twice(play: Play) -> None:
    play.node(node("n2"))
    play.pod("a", {MEMORY: 4}, "c0:4")
    play.pod("a", {MEMORY: 4}, "c0:4", node="n2")
    assert play.rules == ["bound twice"]


def test_a_pod_that_loses_its_node_is_found(play: Play) -> None:
    play.pod("a", {MEMORY: 4}, "c0:4")
    play.pod("a", {MEMORY: 4})
    assert play.rules == ["bound twice"]


def test_a_record_that_changes_is_found(play: Play) -> None:
    play.pod("a", {MEMORY: 4}, "c0:4")
    play.pod("a", {MEMORY: 4}, "c1:4")
    assert play.rules == ["record changed"]


@pytest.mark.parametrize(
    ("limits", "on", "count"),
    [
        ({MEMORY: 4}, ["c0:3"], "1"),
        ({MEMORY: 4}, ["c0:4", "c1:4"], "1"),
        ({MEMORY: 8}, ["c0:4", "c0:4"], "2"),
        ({WHOLE: 1}, ["c0:16"], "1"),
        ({WHOLE: 2}, ["c0:whole"], "1"),
    ],
)
def test_a_bind_with_other_cards_than_requested_is_found(play: Play, limits: dict[str, int], on: list[str], count: str) -> None:
    play.pod("a", limits, *on, count=count)
    assert play.rules == ["without a card"]


@pytest.mark.parametrize("record", ["", "{}", "[]", "garbage", '{"enflame": [1]}'])
def test_a_bind_without_a_readable_record_is_found(play: Play, record: str) -> None:
    content = pod("a", {MEMORY: 4}, "c0:4")
    content["metadata"]["annotations"][RECORD] = record
    play.history.see_pod(content, revision=9, at_s=9)
    assert play.rules == ["without a card"]


def test_a_pod_that_nobody_deleted_is_lost(play: Play) -> None:
    play.pod("a", {MEMORY: 4}, "c0:4")
    play.pod("a", {MEMORY: 4}, "c0:4", deleted=True)
    assert play.rules == ["lost"]


def test_a_pod_that_was_never_seen_is_lost(play: Play) -> None:
    play.history.judge_end(created={"a"}, early=set())
    assert play.rules == ["lost"]


def test_a_pod_that_was_never_bound_is_found_unless_it_was_deleted_early(play: Play) -> None:
    play.pod("a", {MEMORY: 4})
    play.pod("b", {MEMORY: 4})
    play.history.judge_end(created={"a", "b"}, early={"b"})
    assert play.rules == ["not bound"]
    assert "pod a" in play.history.findings[0].history


def test_a_pending_pod_fits_where_a_card_and_the_node_have_enough(play: Play) -> None:
    play.pod("a", {MEMORY: 12}, "c0:12")
    for name, limits in {"small": {MEMORY: 4}, "large": {MEMORY: 16}, "whole": {WHOLE: 1}, "two": {WHOLE: 2}}.items():
        play.pod(name, limits)
    play.pod("spread", {MEMORY: 8}, count="2")
    play.pod("too-wide", {MEMORY: 20}, count="2")
    assert [found.name for found in play.history.fitting()] == ["small", "large", "whole", "spread"]
    smaller = node()
    smaller["status"]["allocatable"][MEMORY] = "12"  # kube-scheduler refuses, whatever the cards have
    play.node(smaller)
    assert [found.name for found in play.history.fitting()] == ["whole"]


@pytest.mark.parametrize("text", [*GARBAGE, '{"enflame": {"cards": "none"}}'])
def test_a_node_with_garbage_in_its_inventory_has_no_cards(play: Play, text: str) -> None:
    content = node()
    content["metadata"]["annotations"][INVENTORY] = text
    play.node(content)
    play.pod("a", {MEMORY: 4})
    assert play.history.fitting() == []


def test_pods_without_a_card_are_not_judged(play: Play) -> None:
    play.pod("plain", {})
    play.pod("plain", {}, deleted=True)
    assert play.rules == []
    assert play.history.pending() == []
