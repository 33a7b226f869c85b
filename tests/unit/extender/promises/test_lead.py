"""The plan is as far ahead of kube-scheduler as a nomination takes to reach it, and learns how far that is."""

import pytest

from accelshare.extender.promises.lead import (
    FEWEST,
    FIRST_GUESS_S,
    FIRST_UNSEEN,
    LARGEST_FACTOR,
    MARGIN,
    MOST,
    SLOWEST_CALLS_S,
    Lead,
)

PER_S = 100.0


def called(lead: Lead, *, until: float, times: int = 50) -> None:
    """kube-scheduler takes so many pods at an even pace, the last one at this time."""
    for number in range(times):
        lead.called(until - (times - 1 - number) / PER_S)


def test_without_a_pace_the_lead_is_the_shortest() -> None:
    lead = Lead()
    assert lead.pods(0.0) == FEWEST
    lead.called(0.0)
    assert lead.pods(0.0) == FEWEST


@pytest.mark.parametrize("took_s", [0.2, 1.0, 2.0])
def test_the_lead_is_what_kube_scheduler_takes_while_a_nomination_is_on_its_way(took_s: float) -> None:
    lead = Lead()
    called(lead, until=10.0)
    lead.decided("a", 10.0)
    lead.seen("a", 10.0 + took_s)
    assert lead.pods(10.0 + took_s) == pytest.approx(PER_S * took_s * MARGIN, abs=1)


def test_a_nomination_that_is_still_on_its_way_already_tells_that_it_takes_long() -> None:
    lead = Lead()
    called(lead, until=10.0)
    lead.decided("a", 10.0)
    lead.decided("b", 10.5)
    assert lead.pods(11.0) == pytest.approx(PER_S * 1.0 * MARGIN, abs=1)
    lead.forget("a")
    assert lead.pods(11.0) == pytest.approx(PER_S * 0.5 * MARGIN, abs=1)


def test_quick_nominations_shorten_the_lead_slowly_and_slow_ones_lengthen_it_at_once() -> None:
    lead = Lead()
    called(lead, until=10.0)
    lead.decided("slow", 10.0)
    lead.seen("slow", 11.0)
    longest = lead.pods(11.0)
    for number in range(100):
        lead.decided(str(number), 11.0)
        lead.seen(str(number), 11.1)
        assert lead.pods(11.1) <= longest
    assert lead.pods(11.1) < longest / 5


def test_late_nominations_lengthen_the_lead_up_to_a_limit() -> None:
    lead = Lead()
    called(lead, until=10.0)
    before = lead.pods(10.0)
    lead.too_late()
    assert lead.pods(10.0) > before
    for _ in range(100):
        lead.too_late()
    assert lead.pods(10.0) == pytest.approx(before * LARGEST_FACTOR / MARGIN, abs=2)
    for _ in range(1000):
        lead.in_time()
    assert lead.pods(10.0) == before


def test_a_lead_that_nobody_measures_becomes_shorter() -> None:
    """One that is longer than the queue lets nothing be nominated, so nothing would ever be seen again."""
    lead = Lead()
    called(lead, until=10.0)
    lead.decided("a", 10.0)
    lead.seen("a", 11.0)
    lead.too_late()
    called(lead, until=20.0, times=300)
    assert lead.pods(20.0) <= PER_S * FIRST_GUESS_S * MARGIN + 1


def test_the_lead_has_a_limit() -> None:
    lead = Lead()
    called(lead, until=10.0)
    lead.decided("a", 10.0)
    assert lead.pods(1000.0) == MOST


def test_a_pace_before_a_long_pause_is_forgotten() -> None:
    lead = Lead()
    called(lead, until=10.0)
    lead.called(10.0 + SLOWEST_CALLS_S + 1)
    assert lead.pods(10.0 + SLOWEST_CALLS_S + 1) == FEWEST


def test_few_nominations_are_on_their_way_until_the_lead_is_known() -> None:
    lead = Lead(fewest=0.0)
    for number in range(FIRST_UNSEEN):
        assert lead.allows_more(0.0)
        lead.decided(str(number), 0.0)
    assert not lead.allows_more(0.0)
    lead.seen("0", 0.1)
    assert lead.allows_more(0.1)
