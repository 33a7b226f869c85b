"""How far kube-scheduler's watch is behind ours: longer at once, shorter slowly."""

import pytest

from accelshare.extender.promises.scheduler_lag import FIRST_S, LONGEST_S, MARGIN, SchedulerLag


def test_a_nomination_that_kube_scheduler_did_not_know_shows_a_longer_lag() -> None:
    lag = SchedulerLag()
    lag.missed(FIRST_S)
    assert lag.seconds == pytest.approx(FIRST_S * MARGIN)
    lag.missed(FIRST_S / 10)
    assert lag.seconds == pytest.approx(FIRST_S * MARGIN), "what was not enough before is not enough now"
    lag.missed(60.0)
    assert lag.seconds == LONGEST_S, "another rule has refused the node"


def test_nominations_that_kube_scheduler_knew_shorten_it_slowly() -> None:
    lag = SchedulerLag()
    for _ in range(10):
        lag.knew(lag.seconds)
    assert FIRST_S / 2 < lag.seconds < FIRST_S
    for _ in range(1000):
        lag.knew(lag.seconds)
    assert lag.seconds < FIRST_S / 10


def test_a_nomination_that_was_shown_for_long_tells_nothing() -> None:
    lag = SchedulerLag()
    lag.knew(10 * FIRST_S)
    assert lag.seconds == FIRST_S
