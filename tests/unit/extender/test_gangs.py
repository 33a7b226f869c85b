"""Members of a gang get different cards before the first of them is bound, and give them back together."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import pytest
from msgspec import Raw

from accelshare.extender import gangs as gangs_module
from accelshare.extender.admissions import Admissions
from accelshare.extender.binder import Binder
from accelshare.extender.decisions import Decisions
from accelshare.extender.gangs import GangBind, GangHolds
from accelshare.kube import binding
from accelshare.ledger.facts import NodeSeen, PodGone, PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Ask, Assignment, Card
from accelshare.vendors.catalog import load
from accelshare.vendors.refusal_texts import CARD_COUNT_ANNOTATION
from accelshare.wire.groups import group_of
from accelshare.wire.objects import Metadata
from accelshare.wire.pods import PodReader
from accelshare.wire.scheduler import BindArguments, read_filter_call

CATALOG = load(())
READER = PodReader(CATALOG)
MEMORY = "aliyun.com/gpu-mem"
REQUEST = (Ask("nvidia", share=16),)


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

    def bind(self, name: str) -> GangBind:
        pod = self.ledger.pod(name)
        return self.gangs.bind_begins(name, in_gang=pod is not None and pod.seen.in_gang and pod.hold is None)

    def lapse(self) -> None:
        """kube-scheduler does not bind for so long that the holds end."""
        self.now += gangs_module.HOLD_S
        self.gangs.expire()

    def take(self, name: str) -> None:
        """A pod without a group takes the card that filter would offer first."""
        (node, *_) = self.filter(name)
        offer = self.ledger.offer(node, REQUEST)
        assert isinstance(offer, Assignment)
        self.ledger.apply(PodSeen(name, "ml", name, REQUEST))
        self.ledger.hold(name, offer)

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
    assert scheduler.bind("a0") is GangBind.HELD
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
    assert scheduler.bind("a0") is GangBind.NO_MEMBER
    assert isinstance(scheduler.ledger.offer("n1", (Ask("nvidia", share=16),)), Assignment)


def test_groups_of_two_namespaces_are_two_groups() -> None:
    raw = Raw(b'{"podGroupName":"g"}')
    assert group_of(Metadata(namespace="a"), raw, Raw()) != group_of(Metadata(namespace="b"), raw, Raw())
    assert group_of(Metadata(namespace="a"), Raw(b"null"), Raw(b"null")) is None


# coscheduling: each member waits at Permit, and kube-scheduler asks for other pods in between.


def test_members_that_wait_at_permit_keep_their_cards_while_others_are_asked_for(scheduler: Scheduler) -> None:
    """Each is asked for a second time: the gang had failed before, and is tried again between other pods."""
    for _ in range(2):
        for number in range(4):
            assert scheduler.filter(f"a{number}", label="a")
            scheduler.filter("stranger")
    assert scheduler.filter("stranger") == []
    assert len(scheduler.held()) == 4


def test_a_member_that_waits_at_permit_and_is_refused_frees_the_cards_of_its_gang(scheduler: Scheduler) -> None:
    for number in range(5):
        scheduler.filter(f"a{number}", label="a")
    assert scheduler.filter("stranger") == ["n1", "n2"]
    assert scheduler.held() == {}


def test_only_the_members_that_are_tried_again_keep_strangers_off(scheduler: Scheduler) -> None:
    for number in range(5):
        scheduler.filter(f"a{number}", label="a")
    scheduler.filter("a1", label="a")
    assert scheduler.filter("stranger") != []
    assert set(scheduler.held()) == {"a1"}


def test_holds_of_a_gang_expire_together_after_the_last_sign_of_it(scheduler: Scheduler) -> None:
    """Else a part of the gang could be bound, and the rest find its cards taken."""
    for number in range(3):
        scheduler.filter(f"a{number}", label="a")
        scheduler.now += gangs_module.HOLD_S - 1
        scheduler.gangs.expire()
        assert len(scheduler.held()) == number + 1
    scheduler.now += 1
    scheduler.gangs.expire()
    assert scheduler.held() == {}
    assert scheduler.outcomes == {"expired": 3}


@pytest.mark.parametrize("named_by", ["group", "label"])
def test_a_bind_that_comes_late_holds_the_cards_of_all_members_again(scheduler: Scheduler, named_by: str) -> None:
    for number in range(4):
        scheduler.filter(f"a{number}", **{named_by: "a"})  # type: ignore[arg-type]
    before = scheduler.held()
    scheduler.lapse()
    assert scheduler.held() == {}
    assert scheduler.bind("a2") is GangBind.HELD
    assert scheduler.held() == before
    assert scheduler.filter("stranger") == []
    assert [scheduler.bind(f"a{number}") for number in (0, 1, 3)] == [GangBind.HELD] * 3
    assert scheduler.ledger.check() == []


@pytest.mark.parametrize("named_by", ["group", "label"])
def test_if_one_card_is_taken_meanwhile_every_late_bind_of_the_gang_is_refused(scheduler: Scheduler, named_by: str) -> None:
    """Also those that come after the card is free again: kube-scheduler has seen a member fail, and schedules all again."""
    for number in range(3):
        scheduler.filter(f"a{number}", **{named_by: "a"})  # type: ignore[arg-type]
    scheduler.lapse()
    scheduler.take("thief")
    assert scheduler.bind("a2") is GangBind.LOST
    assert set(scheduler.held()) == {"thief"}
    scheduler.ledger.apply(PodGone("thief", 9))
    assert [scheduler.bind(f"a{number}") for number in (0, 1)] == [GangBind.LOST] * 2
    assert scheduler.held() == {}


def test_a_late_bind_that_is_refused_takes_the_members_with_it_that_still_hold_cards(scheduler: Scheduler) -> None:
    """The last member of a large gang was refused, and came later. coscheduling lets the others wait in that case."""
    for number in range(3):
        scheduler.filter(f"a{number}", label="a")
    scheduler.lapse()
    scheduler.take("thief")
    assert scheduler.filter("a3", label="a")
    assert scheduler.bind("a3") is GangBind.LOST
    assert scheduler.bind("a0") is GangBind.LOST
    assert set(scheduler.held()) == {"thief"}


def test_a_gang_that_lost_its_cards_is_bound_after_kube_scheduler_has_asked_again(scheduler: Scheduler) -> None:
    """One member more than it needs is not asked for again, and does not matter."""
    for number in range(4):
        scheduler.filter(f"a{number}", label="a")
    scheduler.lapse()
    scheduler.take("thief")
    assert scheduler.bind("a0") is GangBind.LOST
    for number in range(3):
        assert scheduler.filter(f"a{number}", label="a")
    assert [scheduler.bind(f"a{number}") for number in range(3)] == [GangBind.HELD] * 3


def test_a_pod_that_left_its_gang_after_that_lost_its_cards_is_bound_like_any_other(scheduler: Scheduler) -> None:
    """Its owner has removed the label, say because the gang does not fit; no member is asked for again."""
    for number in range(3):
        scheduler.filter(f"a{number}", label="a")
    scheduler.lapse()
    scheduler.take("thief")
    assert scheduler.bind("a0") is GangBind.LOST
    scheduler.ledger.apply(PodSeen("a0", "ml", "a0", REQUEST, version=6))
    assert scheduler.filter("a0")
    assert scheduler.bind("a0") is GangBind.NO_MEMBER


def test_a_member_that_another_extender_was_asked_for_is_asked_for_again(scheduler: Scheduler) -> None:
    """What that one held is not known."""
    assert scheduler.gangs.bind_begins("a0", in_gang=True) is GangBind.LOST
    assert scheduler.gangs.bind_begins("single", in_gang=False) is GangBind.NO_MEMBER


def test_a_refusal_while_a_gang_is_being_bound_does_not_end_the_holds_of_the_others(scheduler: Scheduler) -> None:
    """It needs fewer members than it has, and all that it needs were let through before the last one was refused."""
    for number in range(4):
        scheduler.filter(f"a{number}", label="a")
    assert scheduler.bind("a0") is GangBind.HELD
    assert scheduler.filter("a4", label="a") == []
    assert scheduler.filter("stranger") == []
    assert [scheduler.bind(f"a{number}") for number in (1, 2, 3)] == [GangBind.HELD] * 3


def test_a_gang_of_the_same_name_begins_anew_once_all_are_bound(scheduler: Scheduler) -> None:
    scheduler.filter("a0", label="a")
    assert scheduler.bind("a0") is GangBind.HELD
    for number in range(1, 5):
        scheduler.filter(f"a{number}", label="a")
    assert scheduler.filter("stranger") != []
    assert set(scheduler.held()) == {"a0"}


def asked_again_and_again(scheduler: Scheduler, members: list[str], **named_by: str) -> list[list[str]]:
    """kube-scheduler asks for the members every 10 s and never binds them. Returns what a stranger is answered as often."""
    answers = []
    for _ in range(60):
        for member in members:
            scheduler.filter(member, **named_by)  # type: ignore[arg-type]
        answers.append(scheduler.filter("stranger"))
        for _ in range(10):
            scheduler.now += 1
            scheduler.gangs.expire()
    return answers


def test_members_that_are_never_bound_do_not_keep_the_cards_for_ever(scheduler: Scheduler) -> None:
    """A label is enough for it, and say a claim whose volume cannot be provisioned: kube-scheduler fails after our filter."""
    assert any(asked_again_and_again(scheduler, [f"a{number}" for number in range(4)], label="a"))


def test_nor_do_the_rest_of_a_gang_of_which_one_member_is_bound(scheduler: Scheduler) -> None:
    for number in range(4):
        scheduler.filter(f"a{number}", group="a")
    assert scheduler.bind("a0") is GangBind.HELD
    assert any(asked_again_and_again(scheduler, [f"a{number}" for number in range(1, 4)], group="a"))


def member(name: str, **annotations: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ml", "uid": name, "resourceVersion": "6", "annotations": annotations}
    metadata["labels"] = {"scheduling.x-k8s.io/pod-group": "a"}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main", "resources": {"limits": {MEMORY: 16}}}]}}


def test_a_member_whose_own_request_is_wrong_fails_its_gang(scheduler: Scheduler) -> None:
    for number in range(4):
        assert scheduler.filter(f"a{number}", label="a")
    wrong = member("bad", **{CARD_COUNT_ANNOTATION: "no number"})
    call = {"Pod": wrong, "NodeNames": ["n1", "n2"], "Nodes": None}
    assert scheduler.decisions.filter(read_filter_call(json.dumps(call).encode())).answer.names == []
    assert scheduler.filter("stranger") != []


def test_a_member_that_was_edited_just_now_is_answered(scheduler: Scheduler) -> None:
    """The watch has shown another number of cards than kube-scheduler's call has; the bind decides."""
    fact = READER.decode(json.dumps(member("a0", **{CARD_COUNT_ANNOTATION: "2"})).encode())
    assert isinstance(fact, PodSeen)
    scheduler.ledger.apply(fact)
    assert scheduler.filter("a0", label="a")
    assert scheduler.held() == {}


def test_holds_of_deleted_members_are_forgotten_while_the_gang_goes_on(scheduler: Scheduler) -> None:
    for number in range(100):
        scheduler.filter("stays", label="a")
        scheduler.filter(f"m{number}", label="a")
        scheduler.ledger.apply(PodGone(f"m{number}", 9))
        scheduler.now += 1
        scheduler.gangs.expire()
    assert len(scheduler.gangs) == 1


class Bindings:
    """The binder of this scheduler's extender; every Binding succeeds."""

    def __init__(self, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, *, without_turn: str = "") -> None:
        """`without_turn`: the pod that kubelet has no turn for in time."""
        self.pods: list[str] = []

        async def bind(_client: object, *, name: str, **_more: object) -> binding.Bound:
            self.pods.append(name)
            return binding.Bound()

        class Turns(Admissions):
            async def enter(self, _node: str, uid: str) -> bool:
                return uid != without_turn

        monkeypatch.setattr(binding, "bind", bind)
        self._binder = Binder(
            *(cast("Any", None), scheduler.ledger, CATALOG, READER),
            fence=cast("Any", None),
            text=scheduler.decisions.text,
            now_ns=lambda: 1,
            on_free_capacity=scheduler.freed.append,
            admissions=Turns(scheduler.ledger, on_free_capacity=scheduler.freed.append),
            gangs=scheduler.gangs,
        )

    async def bind_all(self, nodes: Mapping[str, str]) -> None:
        for name, node in nodes.items():
            await self._binder.bind(BindArguments(pod_name=name, pod_namespace="ml", node=node, pod_uid=name))


@pytest.mark.parametrize("trouble", ["ill", "gone", "paused"])
async def test_no_member_is_bound_if_the_card_of_another_was_lost_meanwhile(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """coscheduling lets members wait for up to a minute between filter and bind."""
    bindings = Bindings(scheduler, monkeypatch)
    nodes = {f"a{number}": scheduler.filter(f"a{number}", label="a")[0] for number in range(4)}
    cards = tuple(Card("nvidia", index, 16, id=f"n2-{index}", healthy=trouble != "ill") for index in range(2))
    paused = frozenset({"nvidia"} if trouble == "paused" else ())
    scheduler.ledger.apply(NodeSeen("n2", 2, () if trouble == "gone" else cards, paused=paused))
    await bindings.bind_all(nodes)
    assert sorted(nodes.values()) == ["n1", "n1", "n2", "n2"]
    assert bindings.pods == []


async def test_a_member_that_kubelet_has_no_turn_for_keeps_its_card(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others of its gang are bound, and kube-scheduler asks for it again."""
    bindings = Bindings(scheduler, monkeypatch, without_turn="a3")
    await bindings.bind_all({f"a{number}": scheduler.filter(f"a{number}", label="a")[0] for number in range(4)})
    assert bindings.pods == ["a0", "a1", "a2"]
    assert scheduler.filter("stranger") == []
