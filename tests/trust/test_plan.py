"""The same seed gives the same plan, and every kind of fault is in it."""

from tests.trust.faults import KINDS, WEIGHTS
from tests.trust.plan import draw_plan


def test_a_seed_repeats_the_plan() -> None:
    assert draw_plan(7, WEIGHTS, faults=200, pods=100) == draw_plan(7, WEIGHTS, faults=200, pods=100)
    assert draw_plan(7, WEIGHTS, faults=200, pods=100) != draw_plan(8, WEIGHTS, faults=200, pods=100)


def test_every_kind_strikes_at_least_once() -> None:
    for seed in range(20):
        plan = draw_plan(seed, WEIGHTS, faults=len(KINDS), pods=1)
        assert {fault.kind for fault in plan.faults} == set(KINDS)


def test_a_kind_with_more_weight_strikes_more_often() -> None:
    kinds = [fault.kind for fault in draw_plan(1, {"often": 9, "seldom": 1}, faults=1000, pods=1).faults]
    assert kinds.count("often") > 5 * kinds.count("seldom") > 0


def test_pods_come_evenly_and_all_of_them_come() -> None:
    plan = draw_plan(1, WEIGHTS, faults=99, pods=1000)
    assert [plan.due_pods(struck) for struck in (0, 49, 98, 99)] == [10, 500, 990, 1000]


def test_no_pod_is_larger_than_an_empty_node() -> None:
    """Otherwise a pod that is never bound would be right."""
    for pod in draw_plan(3, WEIGHTS, faults=1, pods=500).pods:
        assert all(amount <= 24 for amount in pod.limits.values())
