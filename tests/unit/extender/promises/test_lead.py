"""Nominations are sent as long before kube-scheduler takes the pod as they take to reach it, and that is learned."""

import pytest

from accelshare.extender.promises.lead import (
    FIRST_GUESS_S,
    FIRST_POD_S,
    FIRST_UNSEEN,
    LARGEST_FACTOR,
    LONGEST_POD_S,
    LONGEST_S,
    MARGIN,
    SHORTEST_S,
    Lead,
)


def called(lead: Lead, *, since: float, every_s: float, times: int, nominated: bool = False) -> None:
    """kube-scheduler takes so many pods at an even pace."""
    for number in range(times):
        lead.called(since + number * every_s, nominated=nominated)


@pytest.mark.parametrize("took_s", [0.3, 1.0, 2.0])
def test_a_nomination_is_sent_as_early_as_one_took_with_a_margin(took_s: float) -> None:
    lead = Lead()
    assert lead.needed_s(0.0) == FIRST_GUESS_S * MARGIN
    lead.decided("a", 10.0)
    lead.seen("a", 10.0 + took_s)
    assert lead.needed_s(10.0 + took_s) == pytest.approx(took_s * MARGIN)
    assert lead.takes_s == pytest.approx(took_s)


def test_the_first_guess_is_at_most_half_of_the_queue() -> None:
    """If it were longer than the queue, nothing would be nominated, and nothing measured."""
    lead = Lead()
    assert lead.needed_s(0.0, queue_s=10.0) == pytest.approx(FIRST_GUESS_S * MARGIN)
    assert lead.needed_s(0.0, queue_s=0.1) == pytest.approx(0.05)
    lead.decided("a", 10.0)
    assert lead.needed_s(10.1, queue_s=0.1) == pytest.approx(0.1 * MARGIN)
    lead.seen("a", 10.4)
    assert lead.needed_s(10.4, queue_s=0.1) == pytest.approx(0.4 * MARGIN)


def test_a_nomination_that_is_still_on_its_way_already_tells_that_it_takes_long() -> None:
    lead = Lead()
    lead.decided("a", 10.0)
    lead.decided("b", 10.5)
    assert lead.needed_s(11.0) == pytest.approx(1.0 * MARGIN)
    lead.forget("a")
    assert lead.needed_s(11.0) == pytest.approx(0.5 * MARGIN)
    assert lead.needed_s(1000.0) == LONGEST_S


def test_quick_nominations_shorten_it_slowly_and_slow_ones_lengthen_it_at_once() -> None:
    lead = Lead()
    lead.decided("slow", 10.0)
    lead.seen("slow", 11.0)
    for number in range(100):
        before_s = lead.needed_s(11.1)
        lead.decided(str(number), 11.0)
        lead.seen(str(number), 11.1)
        assert lead.needed_s(11.1) <= before_s
    assert lead.needed_s(11.1) == pytest.approx(0.1 * MARGIN, rel=0.01)


def test_late_nominations_lengthen_it_up_to_a_limit() -> None:
    lead = Lead()
    before_s = lead.needed_s(0.0)
    lead.too_late()
    assert lead.needed_s(0.0) > before_s
    for _ in range(100):
        lead.too_late()
    assert lead.needed_s(0.0) == pytest.approx(FIRST_GUESS_S * LARGEST_FACTOR)
    for _ in range(1000):
        lead.in_time()
    assert lead.needed_s(0.0) == before_s


def test_one_that_nobody_measures_becomes_shorter() -> None:
    """If it is longer than the queue, nothing is nominated, so nothing would ever be seen again."""
    lead = Lead()
    lead.decided("a", 10.0)
    lead.seen("a", 11.0)
    lead.too_late()
    called(lead, since=11.0, every_s=0.01, times=400)
    assert lead.needed_s(20.0) == pytest.approx(SHORTEST_S * MARGIN)


def test_kube_schedulers_pace_is_measured_for_both_kinds_of_pods() -> None:
    lead = Lead()
    assert lead.pod_s(nominated=False) == lead.pod_s(nominated=True) == FIRST_POD_S
    called(lead, since=0.0, every_s=0.03, times=100)
    called(lead, since=2.97 + 0.03, every_s=0.002, times=100, nominated=True)
    assert lead.pod_s(nominated=False) == pytest.approx(0.03, rel=0.01)
    assert lead.pod_s(nominated=True) == pytest.approx(0.002, rel=0.01)


def test_a_pause_of_kube_scheduler_is_no_pace() -> None:
    lead = Lead()
    lead.called(0.0, nominated=False)
    lead.called(LONGEST_POD_S * 1.1, nominated=False)
    assert lead.pod_s(nominated=False) == FIRST_POD_S
    lead.called(LONGEST_POD_S * 2, nominated=False)
    assert lead.pod_s(nominated=False) > FIRST_POD_S


def test_few_nominations_are_on_their_way_until_one_was_seen() -> None:
    lead = Lead()
    for number in range(FIRST_UNSEEN):
        assert lead.allows_more()
        lead.decided(str(number), 0.0)
    assert not lead.allows_more()
    lead.seen("0", 0.1)
    assert lead.allows_more()
