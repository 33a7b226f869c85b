"""Waiting pays as long as promises save more than filter waits."""

import pytest

from accelshare.extender.promises.wait_credit import FIRST_S, FIRST_TRY_S, LONGEST_POD_S, MOST_S, NEW_WEIGHT, NODE_S, WaitCredit

NODES = 1000


def take(credit: WaitCredit, took_s: float, *, nominated: bool = False, times: int = 1) -> None:
    for _ in range(times):
        credit.answered(1000.0)
        credit.called(1000.0 + took_s, nominated=nominated, nodes=NODES)


def saved_by_one(credit: WaitCredit) -> float:
    before = credit.seconds
    credit.saved(NODES)
    return credit.seconds - before


def test_a_promise_saves_a_search_less_the_try_of_its_node() -> None:
    credit = WaitCredit()
    assert saved_by_one(credit) == pytest.approx(NODES * NODE_S - FIRST_TRY_S)
    take(credit, 0.05, times=200)
    take(credit, 0.01, nominated=True, times=200)
    assert saved_by_one(credit) == pytest.approx(0.04, rel=0.01)


def test_one_observation_changes_little() -> None:
    credit = WaitCredit()
    take(credit, 0.05)
    expected = NODES * NODE_S + (0.05 - NODES * NODE_S) * NEW_WEIGHT
    assert saved_by_one(credit) == pytest.approx(expected - FIRST_TRY_S)


def test_a_pause_or_an_idle_kube_scheduler_is_no_search() -> None:
    credit = WaitCredit()
    before = saved_by_one(credit)
    take(credit, LONGEST_POD_S)
    credit.answered(1000.0)
    credit.idle()
    credit.called(1000.5, nominated=False, nodes=NODES)
    assert saved_by_one(credit) == pytest.approx(before)


def test_what_was_waited_is_spent_and_savings_are_bounded() -> None:
    credit = WaitCredit()
    credit.waited(FIRST_S)
    assert credit.seconds == 0.0
    take(credit, 1.9, times=100)
    for _ in range(10):
        credit.saved(NODES)
    assert credit.seconds == MOST_S
    credit.reset()
    assert credit.seconds == FIRST_S


def test_where_a_try_takes_as_long_as_a_search_nothing_is_saved() -> None:
    credit = WaitCredit()
    take(credit, 0.5, nominated=True, times=200)
    assert saved_by_one(credit) == 0.0
