"""Over-use and idleness over several samples."""

from accelshare.agent.usage.history import IDLE_BYTES, UsageHistory
from tests.unit.agent.usage.builders import GIB, uid, use

OVER, WITHIN = use("a", used=4 * GIB + 1), use("a", used=4 * GIB)
LIVING = {uid("a")}


def test_two_samples_in_a_row_above_its_share_are_over_use() -> None:
    history = UsageHistory()
    assert [history.update([sample], LIVING, now)[0].over_use for now, sample in enumerate([OVER, OVER, WITHIN, OVER, OVER])] == [
        False,
        True,
        False,
        False,
        True,
    ]


def test_over_use_is_as_old_as_its_first_sample() -> None:
    history = UsageHistory()
    for now in (100, 115, 130):
        history.update([OVER], LIVING, now)
    assert history.over_s(OVER, 131) == 31
    history.update([WITHIN], LIVING, 145)
    assert history.over_s(OVER, 146) == 0


def test_a_sample_that_failed_in_between_begins_anew() -> None:
    history = UsageHistory()
    history.update([OVER], LIVING, 0)
    history.update([], LIVING, 15)
    assert not history.update([OVER], LIVING, 30)[0].over_use


def test_memory_that_is_not_reported_is_no_over_use() -> None:
    history = UsageHistory()
    assert [history.update([use("a", used=None)], LIVING, now)[0].over_use for now in (0, 1, 2)] == [False] * 3


def test_two_cards_of_a_pod_are_judged_apart() -> None:
    history = UsageHistory()
    both = [OVER, use("a", used=0, card=1)]
    history.update(both, LIVING, 0)
    assert [each.over_use for each in history.update(both, LIVING, 1)] == [True, False]


def test_a_pod_that_does_not_compute_is_idle_however_much_memory_it_has() -> None:
    history = UsageHistory()
    asleep = use("a", used=4 * GIB, utilisation=0.0)
    assert [history.update([asleep], LIVING, now)[0].idle_s for now in (100.0, 115.0)] == [0.0, 15.0]
    assert history.update([use("a", utilisation=0.01)], LIVING, 130)[0].idle_s is None
    assert history.update([asleep], LIVING, 145)[0].idle_s == 0.0


def test_without_utilisation_memory_decides() -> None:
    history = UsageHistory()
    assert history.update([use("a", used=IDLE_BYTES - 1, utilisation=None)], LIVING, 0)[0].idle_s == 0.0
    assert history.update([use("a", used=IDLE_BYTES, utilisation=None)], LIVING, 1)[0].idle_s is None
    assert history.update([use("a", used=None, utilisation=None)], LIVING, 2)[0].idle_s is None


def test_an_idle_pod_stays_idle_over_a_sample_that_failed() -> None:
    history = UsageHistory()
    asleep = use("a", utilisation=0.0)
    history.update([asleep], LIVING, 0)
    history.update([], LIVING, 15)
    assert history.update([asleep], LIVING, 30)[0].idle_s == 30


def test_nothing_is_kept_of_pods_that_are_gone() -> None:
    history = UsageHistory()
    for number in range(1000):
        gone = use(f"p{number}", used=5 * GIB, utilisation=0.0)
        history.update([gone], {gone.uid}, number)
    history.update([], set(), 2000)
    assert not any(vars(history).values())
