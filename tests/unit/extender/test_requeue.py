"""Refused pods are requeued when capacity becomes free that kube-scheduler does not retry them for."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from accelshare.extender import requeue as requeue_module
from accelshare.extender.metrics import Metrics
from accelshare.extender.requeue import FORGET_EVERY_S, MAX_TOUCHED, PATIENCE_S, REST_S, Requeue
from accelshare.kube.errors import KubeError, NotFound, Unreachable
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Assignment, Request, Slice
from accelshare.ledger.refusals import Reason, Refusal
from tests.builders import KIND, gone, node, pending, running, share


class Scene:
    def __init__(self) -> None:
        self.now = 100.0
        self.ledger = Ledger()
        self.requeue = Requeue(None, self.ledger, Metrics(), clock=lambda: self.now)  # type: ignore[arg-type]
        self.ledger.apply(node("n1", 16))
        self.ledger.apply(running("old", on="n1/0", request=share(9)))
        self.ledger.apply(pending("waits", share(14)))

    def old_pod_goes(self) -> None:
        self.ledger.apply(gone("old"))
        self.requeue.capacity_freed("n1")

    def requeued(self) -> list[tuple[str, str]]:
        return [(pod.seen.name, where) for pod, where in self.requeue.due()]

    def later(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_pod_that_was_refused_before_room_was_seen_is_requeued_once(scene: Scene) -> None:
    scene.requeue.filtered("waits", refused=True)
    scene.later(0.01)
    scene.old_pod_goes()
    assert scene.requeued() == []  # kube-scheduler may still come by itself
    scene.later(PATIENCE_S)
    assert scene.requeued() == [("waits", "n1")]
    scene.later(PATIENCE_S)
    assert scene.requeued() == []


def test_a_pod_whose_card_becomes_known_frees_the_others() -> None:
    """Until then it counts against every card of its node."""
    ledger = Ledger()
    ledger.apply(node("n1", 16, 16))
    assert ledger.apply(running("stranger", on="n1", request=share(10))) == ""
    assert ledger.apply(running("stranger", on="n1/0", request=share(10))) == "", "anybody could have written that"
    corrected_node = replace(node("n1", 16, 16), corrected={"stranger": (Slice(KIND, 0, 10),)})
    assert ledger.apply(corrected_node) == "n1"
    assert ledger.apply(running("stranger", on="n1/0", request=share(10))) == ""


@pytest.mark.parametrize("refused", [True, False])
def test_a_pod_that_kube_scheduler_retried_since_is_not_touched(scene: Scene, refused: bool) -> None:
    scene.requeue.filtered("waits", refused=True)
    scene.later(0.01)
    scene.old_pod_goes()
    scene.later(0.01)
    scene.requeue.filtered("waits", refused=refused)
    scene.later(PATIENCE_S)
    assert scene.requeued() == []


def test_a_pod_that_still_does_not_fit_is_left_alone(scene: Scene) -> None:
    scene.ledger.apply(pending("huge", share(17)))
    scene.requeue.filtered("huge", refused=True)
    scene.later(0.01)
    scene.old_pod_goes()
    scene.later(PATIENCE_S)
    assert scene.requeued() == []


def test_a_pod_that_is_gone_or_bound_meanwhile_is_forgotten(scene: Scene) -> None:
    scene.ledger.apply(pending("bound", share(1)))
    for uid in ("waits", "bound"):
        scene.requeue.filtered(uid, refused=True)
    scene.later(0.01)
    scene.old_pod_goes()
    scene.ledger.apply(gone("waits"))
    scene.ledger.apply(running("bound", on="n1/0", request=share(1)))
    scene.later(PATIENCE_S)
    assert scene.requeued() == []


def test_a_pod_that_kube_scheduler_itself_keeps_away_is_not_touched_all_the_time(scene: Scene) -> None:
    scene.requeue.filtered("waits", refused=True)
    requeued = 0
    for _ in range(60):
        scene.later(1.0)
        scene.requeue.capacity_freed("n1") if scene.ledger.pod("old") is None else scene.old_pod_goes()
        scene.later(PATIENCE_S)
        requeued += len(scene.requeued())
    assert 2 <= requeued <= 60 * (1 + PATIENCE_S) / REST_S + 1


def test_a_pod_whose_request_is_wrong_is_left_alone(scene: Scene) -> None:
    """Free capacity does not help it, even if the readable part of its request would fit."""
    wrong = replace(pending("wrong", share(1)), refusal=Refusal(Reason.CARD_COUNT_UNREADABLE, KIND))
    scene.ledger.apply(wrong)
    scene.requeue.filtered("wrong", refused=True)
    scene.later(0.01)
    scene.old_pod_goes()
    scene.later(PATIENCE_S)
    assert scene.requeued() == []


def test_a_long_queue_is_requeued_a_few_at_a_time_the_most_important_first(scene: Scene) -> None:
    """One deleted pod must not cause a write to each of a thousand pending pods."""
    for number in range(100):
        scene.ledger.apply(pending(f"p{number}", share(16), priority=number))
        scene.requeue.filtered(f"p{number}", refused=True)
    scene.later(0.01)
    scene.old_pod_goes()
    scene.later(PATIENCE_S)
    assert scene.requeued() == [(f"p{99 - place}", "n1") for place in range(MAX_TOUCHED)]
    scene.later(1.0)
    assert scene.requeued() == [(f"p{99 - MAX_TOUCHED - place}", "n1") for place in range(MAX_TOUCHED)]
    scene.ledger.apply(running("p99", on="n1/0", request=share(16)))
    scene.later(1.0)
    assert scene.requeued() == []
    scene.later(REST_S)
    assert scene.requeued() == []  # whoever still waits is for the next time that capacity becomes free


class Refusing:
    """An API server with these responses to PATCHes, then with success."""

    def __init__(self, *errors: KubeError) -> None:
        self.errors = list(errors)
        self.asked = 0

    async def request(self, *_words: object, **_options: object) -> bytes:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return b"{}"


async def look(scene: Scene) -> list[str]:
    """One check, as `run` does it; returns the pods to touch."""
    found = scene.requeue.due()
    for pod, where in found:
        await scene.requeue.touch(pod, where)
    return [pod.seen.name for pod, _ in found]


async def test_a_touch_that_fails_is_tried_again_and_again_less_often(scene: Scene) -> None:
    api = Refusing(*[Unreachable("no")] * 4)
    scene.requeue._client = api  # type: ignore[assignment]
    scene.requeue.filtered("waits", refused=True)
    scene.later(0.01)
    scene.old_pod_goes()
    scene.later(PATIENCE_S)
    tries = []
    for second in range(60):
        if await look(scene):
            tries.append(second)
        scene.later(1.0)
    assert api.asked == 5, "four failures and the touch"
    waits = [after - before for before, after in pairwise(tries)]
    assert waits == sorted(waits)
    assert waits[-1] > waits[0]


async def test_a_pod_that_is_gone_is_not_touched_again(scene: Scene) -> None:
    api = Refusing(NotFound(404, "NotFound", "no such pod"))
    scene.requeue._client = api  # type: ignore[assignment]
    scene.requeue.filtered("waits", refused=True)
    scene.later(0.01)
    scene.old_pod_goes()
    for _ in range(60):
        scene.later(1.0)
        await look(scene)
    assert api.asked == 1


def test_room_that_appears_while_a_pod_rests_is_not_forgotten(scene: Scene) -> None:
    """A pod that was touched without success is touched again for capacity that becomes free meanwhile."""
    scene.requeue.filtered("waits", refused=True)
    scene.later(0.01)
    scene.old_pod_goes()
    scene.later(PATIENCE_S)
    assert scene.requeued() == [("waits", "n1")]
    scene.requeue.filtered("waits", refused=True)
    scene.ledger.apply(node("n2", 16))
    scene.later(0.01)
    scene.requeue.capacity_freed("n2")
    scene.later(PATIENCE_S)
    assert scene.requeued() == [], "it rests"
    scene.later(REST_S)
    assert scene.requeued() == [("waits", "n2")]
    scene.later(REST_S)
    assert scene.requeued() == []


def test_refused_pods_that_were_deleted_leave_memory(scene: Scene) -> None:
    for number in range(1_000):
        scene.ledger.apply(pending(f"p{number}", share(14)))
        scene.requeue.filtered(f"p{number}", refused=True)
        scene.ledger.apply(gone(f"p{number}"))
    scene.requeue.filtered("waits", refused=True)
    scene.later(FORGET_EVERY_S)
    scene.requeued()
    assert list(scene.requeue._refused) == ["waits"]


def test_the_memory_of_refused_pods_is_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requeue_module, "MAX_REFUSED", 100)
    for number in range(1_000):
        scene.requeue.filtered(f"p{number}", refused=True)
    assert list(scene.requeue._refused) == [f"p{number}" for number in range(900, 1_000)]


def test_an_offer_is_computed_once_for_each_shape(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """An offer for each of thousands of pods would block the loop for half a second."""
    for number in range(400):
        scene.ledger.apply(pending(f"p{number}", share(17 + number % 4)))
        scene.requeue.filtered(f"p{number}", refused=True)
    scene.later(0.01)
    scene.old_pod_goes()
    scene.later(PATIENCE_S)
    asked: list[object] = []
    offer = scene.ledger.offer

    def counted(node: str, request: Request) -> Assignment | Refusal:
        asked.append(request)
        return offer(node, request)

    monkeypatch.setattr(scene.ledger, "offer", counted)
    assert scene.requeued() == []
    assert len(asked) == 4


def test_a_pod_that_an_earlier_extender_refused_is_requeued_by_the_new_one(scene: Scene) -> None:
    """kube-scheduler saw the free capacity first, was refused, and the extender that knew it has ended."""
    scene.ledger.apply(gone("old"))
    scene.requeue.take_over()
    assert scene.requeued() == []  # kube-scheduler may still come by itself
    scene.later(PATIENCE_S)
    assert scene.requeued() == [("waits", "n1")]
    scene.later(REST_S)
    assert scene.requeued() == []


def test_a_pod_that_does_not_fit_at_the_takeover_is_requeued_when_it_does(scene: Scene) -> None:
    scene.requeue.take_over()
    scene.later(PATIENCE_S)
    assert scene.requeued() == []
    scene.old_pod_goes()
    scene.later(PATIENCE_S)
    assert scene.requeued() == [("waits", "n1")]


def test_after_a_takeover_nobody_is_requeued_while_kube_scheduler_asks(scene: Scene) -> None:
    """It works through its queue; a touch would only be a write."""
    scene.ledger.apply(gone("old"))
    scene.requeue.take_over()
    for _ in range(5):
        scene.later(PATIENCE_S / 2)
        scene.requeue.filtered("another", refused=False)
        assert scene.requeued() == []
    scene.requeue.filtered("waits", refused=True)
    scene.later(PATIENCE_S)
    assert scene.requeued() == []  # it was asked for, and nothing became free since


def test_after_a_takeover_few_pods_are_requeued_at_a_time_and_few_rankings_computed(scene: Scene) -> None:
    scene.ledger.apply(gone("old"))
    for number in range(2 * MAX_TOUCHED):
        scene.ledger.apply(pending(f"p{number}", share(1 + number % 4)))
    scene.requeue.take_over()
    scene.later(PATIENCE_S)
    requeued: list[str] = []
    while names := [name for name, _ in scene.requeued()]:
        assert len(names) <= MAX_TOUCHED
        requeued += names
        scene.later(1.0)
    assert sorted(requeued) == sorted(["waits", *(f"p{number}" for number in range(2 * MAX_TOUCHED))])


def test_each_of_many_pods_that_kube_scheduler_keeps_away_is_touched_once_for_the_same_capacity(scene: Scene) -> None:
    """Another rule than ours keeps them off, so filter is not called; a touch of each every half minute would never end."""
    for number in range(MAX_TOUCHED + 4):
        scene.ledger.apply(pending(f"p{number}", share(16)))
        scene.requeue.filtered(f"p{number}", refused=True)
    scene.later(0.01)
    scene.old_pod_goes()
    requeued: list[str] = []
    for _ in range(int(4 * REST_S)):
        scene.later(1.0)
        requeued += [name for name, _ in scene.requeued()]
    assert sorted(requeued) == sorted(f"p{number}" for number in range(MAX_TOUCHED + 4))


class CountedLooks(dict[str, requeue_module._Refused]):
    """Refused pods, and how many of them were looked at."""

    looks = 0

    def items(self) -> Any:
        for item in super().items():
            self.looks += 1
            yield item


def test_pods_that_kube_scheduler_asked_for_since_are_not_looked_at_for_each_free_node(scene: Scene) -> None:
    """20,000 such pods and 1,000 nodes would block the loop for seconds, and the Lease lasts three."""
    scene.requeue.filtered("waits", refused=True)
    nodes, pods = 50, 200
    for number in range(nodes):
        scene.requeue.capacity_freed(f"n{number}")
    scene.later(0.01)
    for number in range(pods):
        scene.requeue.filtered(f"p{number}", refused=True)
    scene.later(PATIENCE_S)
    counted = scene.requeue._refused = CountedLooks(scene.requeue._refused)
    scene.requeue.due()
    assert counted.looks <= 2 * nodes + pods
