"""Nominations are sent as long before kube-scheduler takes the pod as they take to reach it, and that is learned."""

from itertools import count

import pytest

from accelshare.extender.promises.lead import (
    FIRST_GUESS_S,
    FIRST_POD_S,
    FIRST_UNSEEN,
    LONGEST_POD_S,
    LONGEST_S,
    MARGIN,
    REMEMBERED_S,
    Lead,
)

numbers = count()


def called(lead: Lead, *, since: float, every_s: float, times: int, nominated: bool = False) -> None:
    """kube-scheduler takes so many pods at an even pace."""
    for number in range(times):
        lead.called(since + number * every_s, nominated=nominated)


@pytest.fixture
def lead() -> Lead:
    return Lead()


@pytest.mark.parametrize("took_s", [0.3, 1.0, 1.5])
def test_a_nomination_is_sent_as_early_as_one_took_with_a_margin(lead: Lead, took_s: float) -> None:
    assert lead.needed_s(0.0) == FIRST_GUESS_S * MARGIN
    lead.decided("a", 10.0)
    lead.seen("a", 10.0 + took_s)
    assert lead.needed_s(10.0 + took_s) == pytest.approx(took_s * MARGIN)
    assert lead.takes_s == pytest.approx(took_s)


def test_the_first_guess_is_at_most_half_of_the_queue(lead: Lead) -> None:
    """If it were longer than the queue, nothing would be nominated, and nothing measured."""
    assert lead.needed_s(0.0, queue_s=10.0) == pytest.approx(FIRST_GUESS_S * MARGIN)
    assert lead.needed_s(0.0, queue_s=0.1) == pytest.approx(0.05)
    lead.decided("a", 10.0)
    assert lead.needed_s(10.1, queue_s=0.1) == pytest.approx(0.1 * MARGIN)
    lead.seen("a", 10.4)
    assert lead.needed_s(10.4, queue_s=0.1) == pytest.approx(0.4 * MARGIN)


def test_a_nomination_that_is_still_on_its_way_already_tells_that_it_takes_long(lead: Lead) -> None:
    lead.decided("a", 10.0)
    lead.decided("b", 10.5)
    assert lead.needed_s(11.0) == pytest.approx(1.0 * MARGIN)
    lead.forget("a")
    assert lead.needed_s(11.0) == pytest.approx(0.5 * MARGIN)
    assert lead.needed_s(1000.0) == LONGEST_S


def test_quick_nominations_shorten_it_slowly_and_slow_ones_lengthen_it_at_once(lead: Lead) -> None:
    lead.decided("slow", 10.0)
    lead.seen("slow", 11.0)
    for number in range(100):
        before_s = lead.needed_s(11.1)
        lead.decided(str(number), 11.0)
        lead.seen(str(number), 11.1)
        assert lead.needed_s(11.1) <= before_s
    assert lead.needed_s(11.1) == pytest.approx(0.1 * MARGIN, rel=0.01)


def test_a_nomination_behind_many_others_takes_as_long_as_all_of_them(lead: Lead) -> None:
    """They come one by one, however many are sent at once; that is known before the first of many is late."""
    for number in range(200):
        lead.decided(str(number), 10.0)
    for number in range(100):
        lead.seen(str(number), 10.0 + 0.01 * number)
    assert lead.needed_s(10.99) == pytest.approx(100 * 0.01 * MARGIN, rel=0.05)
    for number in range(200, 250):
        lead.decided(str(number), 10.99)
    assert lead.needed_s(10.99) == pytest.approx(150 * 0.01 * MARGIN, rel=0.05)


def test_the_time_in_which_nothing_was_on_its_way_says_nothing_about_the_pace(lead: Lead) -> None:
    lead.decided("a", 10.0)
    lead.decided("ended", 10.0)
    lead.seen("a", 10.1)
    lead.forget("ended")
    lead.decided("b", 12.0)
    lead.seen("b", 12.1)
    for number in range(40):
        lead.decided(str(number), 12.1)
    assert lead.needed_s(12.1) == pytest.approx(lead.takes_s * MARGIN)


def test_what_was_measured_is_forgotten_while_none_is_on_its_way() -> None:
    """If the lead is longer than the queue, nothing is nominated, so nothing would ever be seen again."""
    lead, fresh = Lead(), Lead()
    for number in range(50):
        lead.decided(str(number), 10.0)
        lead.seen(str(number), 11.0)
    measured_s = lead.needed_s(11.0 + REMEMBERED_S)
    assert measured_s > fresh.needed_s(0.0)
    lead.decided("on its way", 11.0 + REMEMBERED_S)
    assert lead.needed_s(11.1 + REMEMBERED_S) == measured_s
    lead.forget("on its way")
    assert lead.needed_s(11.1 + REMEMBERED_S) == fresh.needed_s(0.0)
    assert len(on_their_way(lead)) == FIRST_UNSEEN


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


def on_their_way(lead: Lead, most_promises: int = 10_000) -> list[str]:
    """Send as many more nominations as may be on their way."""
    sent: list[str] = []
    while lead.allows_more(most_promises):
        sent.append(f"sent{next(numbers)}")
        lead.decided(sent[-1], 0.0)
    return sent


def test_few_nominations_are_on_their_way_at_first_and_one_more_for_each_that_was_seen() -> None:
    lead = Lead()
    sent = on_their_way(lead)
    assert len(sent) == FIRST_UNSEEN
    lead.seen(sent[0], 0.1)
    assert len(on_their_way(lead)) == 2
    lead.forget(sent[1])
    assert len(on_their_way(lead)) == 1


def test_at_most_a_part_of_the_promises_is_on_its_way() -> None:
    lead = Lead()
    for number in range(100):
        lead.decided(str(number), 0.0)
        lead.seen(str(number), 0.1)
    assert len(on_their_way(lead, most_promises=80)) == 20
    assert not lead.allows_more(most_promises=80)
    assert lead.allows_more(most_promises=160)
