"""The arithmetic of the benchmarks: median, spread and rate."""

import pytest

from bench.figures import Moment, Pace, Spread, middle_of, pace, ratios


def test_a_spread_is_the_median_between_the_least_and_the_most() -> None:
    found = Spread.of([3.0, 1.0, 2.0])
    assert (found.middle, found.least, found.most) == (2.0, 1.0, 3.0)
    assert found.percent == pytest.approx(100.0)


def test_one_measurement_has_no_spread() -> None:
    assert Spread.of([4.0]).percent == 0.0


def test_no_measurement_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one measurement"):
        Spread.of([])


FIRST = Moment(bound=10, at_s=100, scheduler_cpu_s=1, extender_cpu_s=0.5, api_server_cpu_s=3, observer_cpu_s=2, machine_cpu_s=70)
LAST = Moment(
    bound=90, at_s=102, scheduler_cpu_s=1.4, extender_cpu_s=0.58, api_server_cpu_s=3.8, observer_cpu_s=2.2, machine_cpu_s=72
)


def test_a_pace_is_divided_by_the_pods_between_two_moments() -> None:
    found = pace(FIRST, LAST)
    assert found.pods_per_s == pytest.approx(40.0)
    assert found.scheduler_ms == pytest.approx(5.0)
    assert found.extender_ms == pytest.approx(1.0)
    assert found.api_server_ms == pytest.approx(10.0)


def test_what_is_not_ours_is_others() -> None:
    """Of two seconds of CPU in two seconds we used 1.48, the observer included."""
    assert pace(FIRST, LAST).others_cores == pytest.approx(0.26)


def test_a_moment_alone_has_no_pace() -> None:
    with pytest.raises(ValueError, match="nothing was bound"):
        pace(FIRST, FIRST)


@pytest.mark.parametrize(("count", "middle"), [(400, (40, 360)), (10, (1, 9)), (19, (1, 18))])
def test_the_middle_leaves_out_a_tenth_on_each_side(count: int, middle: tuple[int, int]) -> None:
    assert middle_of(count) == middle


def test_too_few_pods_have_no_middle() -> None:
    with pytest.raises(ValueError, match="9 pods have no middle"):
        middle_of(9)


def test_a_ratio_compares_neighbours_only() -> None:
    """A machine that is half as fast in the second round changes both, and so neither ratio."""
    ours = [Pace(120, 0, 0, 0, 0), Pace(60, 0, 0, 0, 0)]
    bare = [Pace(100, 0, 0, 0, 0), Pace(50, 0, 0, 0, 0)]
    assert ratios(ours, bare, lambda found: found.pods_per_s) == pytest.approx([1.2, 1.2])


def test_rounds_without_a_partner_are_not_compared() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratios([1.0, 2.0], [1.0], float)
