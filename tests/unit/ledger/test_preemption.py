"""Which pods must be evicted so that one card becomes free."""

from dataclasses import replace
from random import Random
from unittest.mock import Mock

import pytest

from accelshare.ledger import preemption
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.placing import Fit, fit, serves
from accelshare.ledger.preemption import victims
from tests.builders import card, node, place, running, share, whole


def four_halves(ledger: Ledger) -> None:
    """Two cards of 16, each with two pods of 8: a and b on card 0, c and d on card 1."""
    ledger.apply(node("n1", 16, 16))
    for name, on in (("a", "n1/0"), ("b", "n1/0"), ("c", "n1/1"), ("d", "n1/1")):
        ledger.apply(running(name, on=on, request=share(8), priority=1))


def test_a_proposal_that_frees_a_card_is_kept(ledger: Ledger) -> None:
    four_halves(ledger)
    assert victims(ledger, "n1", share(8), priority=10, proposed=["d"]) == ["d"]
    assert victims(ledger, "n1", share(12), priority=10, proposed=["c", "d"]) == ["c", "d"]


def test_victims_on_two_cards_are_replaced_by_two_on_one(ledger: Ledger) -> None:
    """The scheduler sees only the node's total: b and d free 16, and no card has 12."""
    four_halves(ledger)
    chosen = victims(ledger, "n1", share(12), priority=10, proposed=["b", "d"])
    assert chosen is not None
    assert sorted(chosen) in (["a", "b"], ["c", "d"])


def test_one_large_victim_beats_three_small_ones(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16, 16))
    for name in "abcd":
        ledger.apply(running(name, on="n1/0", request=share(4), priority=1))
    ledger.apply(running("large", on="n1/1", request=share(16), priority=1))
    assert victims(ledger, "n1", share(12), priority=10, proposed=["a"]) == ["large"]


def test_pods_of_lower_priority_are_evicted_first(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16, 16))
    ledger.apply(running("high", on="n1/0", request=share(16), priority=5))
    ledger.apply(running("low1", on="n1/1", request=share(8), priority=1))
    ledger.apply(running("low2", on="n1/1", request=share(8), priority=2))
    assert victims(ledger, "n1", share(16), priority=10, proposed=[]) == ["low2", "low1"]


def test_no_pod_of_equal_priority_is_evicted(ledger: Ledger) -> None:
    four_halves(ledger)
    assert victims(ledger, "n1", share(8), priority=1, proposed=[]) is None


def test_a_node_that_no_eviction_helps_is_dropped(ledger: Ledger) -> None:
    ledger.apply(node("n1", cards=(card(0, 16), card(1, 64, healthy=False))))
    ledger.apply(running("a", on="n1/0", request=share(8)))
    assert victims(ledger, "n1", share(20), priority=10, proposed=["a"]) is None
    assert victims(ledger, "nowhere", share(1), priority=10, proposed=["a"]) is None


def test_a_whole_card_needs_every_pod_on_it_to_leave(ledger: Ledger) -> None:
    four_halves(ledger)
    chosen = victims(ledger, "n1", whole(), priority=10, proposed=["a"])
    assert chosen is not None
    assert sorted(chosen) in (["a", "b"], ["c", "d"])


def test_several_cards_are_freed_together(ledger: Ledger) -> None:
    four_halves(ledger)
    chosen = victims(ledger, "n1", share(8, cards=2), priority=10, proposed=["a", "b"])
    assert chosen is not None
    assert len({"a", "b"} & set(chosen)) == len({"c", "d"} & set(chosen)) == 1


def test_victims_that_free_something_else_stay_victims(ledger: Ledger) -> None:
    """A pod we do not know was proposed for its CPU or memory; without it the more important pod would not fit."""
    four_halves(ledger)
    chosen = victims(ledger, "n1", share(12), priority=10, proposed=["b", "d", "web"])
    assert chosen is not None
    assert "web" in chosen
    assert len(chosen) == 3


def test_replaced_victims_free_as_much_of_every_resource(ledger: Ledger) -> None:
    """d has the CPU that the scheduler counted on, so it is evicted too if a and b are the ones that free the card."""
    ledger.apply(node("n1", 16, 16))
    for name, on, cpu, priority in (("a", "n1/0", 1, 1), ("b", "n1/0", 1, 1), ("c", "n1/1", 1, 5), ("d", "n1/1", 8, 1)):
        pod = running(name, on=on, request=share(8), priority=priority)
        ledger.apply(replace(pod, needs=(("cpu", cpu), ("gpu-mem", 8))))
    assert victims(ledger, "n1", share(12), priority=10, proposed=["b", "d"]) == ["a", "b", "d"]


def test_a_pod_that_is_only_held_is_no_victim(ledger: Ledger) -> None:
    """The API server does not know it yet, so it cannot be evicted."""
    ledger.apply(node("n1", 16))
    place(ledger, "a", share(16), on="n1")
    assert victims(ledger, "n1", share(16), priority=10, proposed=[]) is None


def test_no_pod_is_evicted_if_the_request_already_fits(ledger: Ledger) -> None:
    """Capacity became free since the call; if only the proposed pod left, the other could be on its card."""
    ledger.apply(node("n1", 16))
    ledger.apply(running("small", on="n1/0", request=share(2), priority=1))
    ledger.apply(running("somewhere", on="n1", request=whole(), priority=1))
    assert victims(ledger, "n1", share(8), priority=10, proposed=["small"]) is None


def test_a_full_node_is_not_evaluated_once_per_pod_and_card(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large cluster proposes hundreds of nodes, and no other call is answered meanwhile."""
    ledger.apply(node("n1", *[64] * 8))
    for index in range(8):
        for place_on_card in range(32):
            ledger.apply(running(f"p{index}-{place_on_card}", on=f"n1/{index}", request=share(2), priority=1))
    counted = Mock(side_effect=serves)
    monkeypatch.setattr(preemption, "serves", counted)
    chosen = victims(ledger, "n1", share(64), priority=10, proposed=[f"p{index}-0" for index in range(8)])
    assert chosen is not None
    assert len(chosen) == 32
    assert len({uid.partition("-")[0] for uid in chosen}) == 1
    assert counted.call_count < 8 * 256 / 2


def test_the_victim_of_highest_priority_comes_first(ledger: Ledger) -> None:
    """kube-scheduler takes the first one's priority for the highest of the node when it chooses between nodes."""
    ledger.apply(node("n1", 16, 16))
    for name, priority in (("a", 1), ("b", 3), ("c", 2)):
        ledger.apply(running(name, on="n1/0", request=share(4), priority=priority))
    ledger.apply(running("top", on="n1/1", request=share(16), priority=9))
    assert victims(ledger, "n1", share(16), priority=10, proposed=["a"]) == ["b", "c", "a"]


def test_an_unknown_victim_keeps_its_place_in_the_order(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16, 16))
    for name, on, priority in (("a", "n1/0", 1), ("b", "n1/0", 2), ("c", "n1/1", 5), ("d", "n1/1", 5)):
        ledger.apply(running(name, on=on, request=share(8), priority=priority))
    assert victims(ledger, "n1", share(16), priority=10, proposed=["stranger", "c"]) == ["stranger", "b", "a"]
    assert victims(ledger, "n1", share(16), priority=10, proposed=["c", "stranger"]) == ["b", "a", "stranger"]


def a_crowded_node(random: Random) -> tuple[Ledger, dict[str, PodSeen]]:
    """A node with pods of known and unknown card, of several priorities and needs."""
    ledger = Ledger()
    sizes = [random.choice([8, 12, 16]) for _ in range(random.randint(1, 3))]
    ledger.apply(node("n1", *sizes))
    pods: dict[str, PodSeen] = {}
    for number in range(random.randint(1, 7)):
        request = whole() if random.random() < 0.1 else share(random.randint(1, 9))
        where = f"n1/{random.randrange(len(sizes))}" if random.random() < 0.6 else "n1"
        pod = replace(
            running(f"p{number}", on=where, request=request, priority=random.choice([0, 0, 5, 20])),
            needs=(("cpu", random.randint(0, 4)),),
        )
        ledger.apply(pod)
        pods[pod.uid] = pod
    return ledger, pods


@pytest.mark.parametrize("seed", range(40))
def test_the_chosen_victims_free_enough_cards_and_other_resources(seed: int) -> None:
    """Pods of unknown card too: a card that loses a pod could have a larger one of them."""
    random = Random(seed)
    for _ in range(150):
        ledger, pods = a_crowded_node(random)
        request = whole() if random.random() < 0.2 else share(random.randint(1, 16))
        evictable = [uid for uid, pod in pods.items() if pod.priority < 10]
        proposed = sorted(random.sample(evictable, random.randint(0, len(evictable))), key=lambda uid: -pods[uid].priority)
        chosen = victims(ledger, "n1", request, priority=10, proposed=proposed)
        if chosen is None:
            continue
        node_ledger = ledger.node("n1")
        assert node_ledger is not None
        assert isinstance(fit(node_ledger.without(chosen), request, ledger.policy), Fit), (pods, request, proposed, chosen)
        assert all(pods[uid].priority < 10 for uid in chosen)
        assert len(set(chosen)) == len(chosen)
        needs = {uid: dict(pods[uid].needs)["cpu"] for uid in pods}
        assert sum(needs[uid] for uid in chosen) >= sum(needs[uid] for uid in proposed)
        assert [pods[uid].priority for uid in chosen] == sorted((pods[uid].priority for uid in chosen), reverse=True)
