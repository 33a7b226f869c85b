"""The history keeps the last hours and no more."""

from accelshare.dashboard.history import EVERY_S, HOURS, MOST_POINTS, History, Point


def point(at: int) -> Point:
    return Point(at, 0.5, 0.25, 3)


def test_points_that_come_too_soon_are_left_out() -> None:
    history = History()
    assert history.add(point(1000))
    assert not history.add(point(1000 + EVERY_S - 1))
    assert history.add(point(1000 + EVERY_S))
    assert [each.at for each in history] == [1000, 1000 + EVERY_S]


def test_it_never_has_more_than_its_hours() -> None:
    history = History()
    for index in range(MOST_POINTS + 100):
        history.add(point(index * EVERY_S))
    assert len(history) == MOST_POINTS == HOURS * 3600 // EVERY_S
    assert next(iter(history)).at == 100 * EVERY_S


def test_a_clock_that_is_set_back_does_not_stop_it() -> None:
    history = History()
    history.add(point(10_000))
    assert history.add(point(5_000))
