"""Members of a gang get different cards before the first of them is bound, and give them back together."""

import json
from collections import Counter
from typing import Any

import pytest
from msgspec import Raw

from accelshare.extender import gangs as gangs_module
from accelshare.extender.decisions import Decisions
from accelshare.extender.gangs import GangHolds
from accelshare.ledger.facts import NodeSeen, PodGone
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Ask, Assignment, Card
from accelshare.vendors.catalog import load
from accelshare.wire.groups import group_of
from accelshare.wire.objects import Metadata
from accelshare.wire.pods import PodReader
from accelshare.wire.scheduler import read_filter_call

CATALOG = load(())
READER = PodReader(CATALOG)
MEMORY = "aliyun.com/gpu-mem"


class Scheduler:
    """kube-scheduler's filter calls, and the time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.freed: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self.ledger = Ledger()
        for name in ("n1", "n2"):
            cards = tuple(Card("nvidia", index, 16, id=f"{name}-{index}") for index in range(2))
            self.ledger.apply(NodeSeen(name, 1, cards))
        self.gangs = GangHolds(
            self.ledger,
            clock=lambda: self.now,
            on_free_capacity=self.freed.append,
            count=lambda outcome: self.outcomes.update([outcome]),
        )
        self.decisions = Decisions(self.ledger, CATALOG, READER, shortlist=0, gangs=self.gangs)

    def filter(
        self, name: str, units: int = 16, *, group: str = "", label: str = "", nodes: tuple[str, ...] = ("n1", "n2")
    ) -> list[str]:
        metadata: dict[str, Any] = {"name": name, "namespace": "ml", "uid": name, "resourceVersion": "5"}
        spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"limits": {MEMORY: 16}}}]}
        if group:
            spec["schedulingGroup"] = {"podGroupName": group}
        if label:
            metadata["labels"] = {"scheduling.x-k8s.io/pod-group": label}
        call = {"Pod": {"metadata": metadata, "spec": spec}, "NodeNames": list(nodes), "Nodes": None}
        return list(self.decisions.filter(read_filter_call(json.dumps(call).encode())).answer.names)

    def held(self) -> dict[str, tuple[str, int]]:
        return {pod.seen.uid: (pod.hold.node, pod.hold.slices[0].index) for pod in self.ledger.pods() if pod.hold is not None}


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


@pytest.mark.parametrize("named_by", ["group", "label"])
def test_each_member_gets_a_card_of_its_own_before_the_first_bind(scheduler: Scheduler, named_by: str) -> None:
    for number in range(4):
        assert len(scheduler.filter(f"m{number}", **{named_by: "g"})) == 1  # type: ignore[arg-type]
    assert len(set(scheduler.held().values())) == 4
    assert scheduler.filter("m4", **{named_by: "g"}) == []  # type: ignore[arg-type]
    assert scheduler.ledger.check() == []


def test_a_pod_without_a_group_is_held_nothing(scheduler: Scheduler) -> None:
    assert scheduler.filter("single") == ["n1", "n2"]
    assert scheduler.held() == {}


def test_a_gang_that_does_not_fit_gives_all_back_before_the_next_pod_is_answered(scheduler: Scheduler) -> None:
    for number in range(5):
        scheduler.filter(f"a{number}", group="a")
    assert len(scheduler.held()) == 4  # until kube-scheduler goes on, a smaller gang may still be bound
    for number in range(4):
        assert scheduler.filter(f"b{number}", group="b")
    assert set(scheduler.held()) == {f"b{number}" for number in range(4)}
    assert scheduler.outcomes == {"refused": 4}
    assert set(scheduler.freed) == {"n1", "n2"}


def test_a_gang_that_is_asked_for_again_had_failed_and_keeps_no_stranger_waiting(scheduler: Scheduler) -> None:
    """kube-scheduler may refuse the other members itself, so that nobody asks us for them."""
    for _ in range(2):
        for number in range(4):
            assert scheduler.filter(f"a{number}", group="a")
    assert scheduler.filter("stranger") == ["n1", "n2"]
    assert scheduler.held() == {}


def test_a_gang_that_was_asked_for_once_keeps_strangers_off(scheduler: Scheduler) -> None:
    for number in range(4):
        assert scheduler.filter(f"a{number}", group="a")
    assert scheduler.filter("stranger") == []
    assert len(scheduler.held()) == 4


def test_a_gang_that_is_being_bound_keeps_its_cards(scheduler: Scheduler) -> None:
    """It needs fewer members than it has: one was refused, the others are bound."""
    for number in range(5):
        scheduler.filter(f"a{number}", group="a")
    assert scheduler.gangs.bind_begins("a0")
    assert scheduler.filter("stranger") == []
    assert len(scheduler.held()) == 4


def test_cards_of_a_gang_are_given_back_together_when_the_binds_do_not_come(scheduler: Scheduler) -> None:
    for number in range(3):
        scheduler.filter(f"a{number}", group="a")
    scheduler.now += gangs_module.HOLD_S
    scheduler.gangs.expire()
    assert scheduler.held() == {}
    assert scheduler.outcomes == {"expired": 3}
    assert len(scheduler.gangs) == 0


def test_a_member_that_is_asked_for_again_keeps_its_card_or_moves(scheduler: Scheduler) -> None:
    assert scheduler.filter("a0", group="a") == ["n1"]
    scheduler.now += gangs_module.HOLD_S - 1
    assert scheduler.filter("a0", group="a") == ["n1"]
    scheduler.now += 2
    scheduler.gangs.expire()
    assert scheduler.filter("a0", group="a", nodes=("n2",)) == ["n2"]
    assert scheduler.held() == {"a0": ("n2", 0)}


def test_a_deleted_member_is_no_longer_held_for(scheduler: Scheduler) -> None:
    scheduler.filter("a0", group="a")
    scheduler.ledger.apply(PodGone("a0", 9))
    assert not scheduler.gangs.bind_begins("a0")
    assert isinstance(scheduler.ledger.offer("n1", (Ask("nvidia", share=16),)), Assignment)


def test_groups_of_two_namespaces_are_two_groups() -> None:
    raw = Raw(b'{"podGroupName":"g"}')
    assert group_of(Metadata(namespace="a"), raw, Raw()) != group_of(Metadata(namespace="b"), raw, Raw())
    assert group_of(Metadata(namespace="a"), Raw(b"null"), Raw(b"null")) == ""
