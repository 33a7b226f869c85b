"""The goals of a load run, and its page."""

from dataclasses import replace

import pytest

from bench.figures import Spread
from bench.load.document import document, within
from bench.load.goals import growth_mb, verdicts
from bench.load.results import LoadResults, LoadRun, Window
from bench.load.settings import FULL
from bench.noise import Noise
from bench.procfs import Machine


def window(rss_mb: float = 120.0, changes: int = 3000) -> Window:
    return Window(30.0, changes, (1.0, 2.0, 3.0), (4.0, 5.0, 60.0), rss_mb, 0.2, 1.5)


GOOD = LoadRun(FULL, tuple(window() for _ in range(20)), 15_000, 20, (), 130.0, 100_000, 100_000)


def missed(run: LoadRun) -> list[str]:
    return [verdict.goal for verdict in verdicts(run) if not verdict.met]


def test_a_good_run_meets_every_goal() -> None:
    assert missed(GOOD) == []


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"windows": tuple(window(changes=2500) for _ in range(20))}, "changes a second"),
        ({"windows": (*GOOD.windows[:10], window(151.0), *GOOD.windows[11:])}, "≤ 150 MB"),
        ({"windows": tuple(window(100.0 + number) for number in range(20))}, "first fifth"),
        ({"failures": ("bind of load-1-000001: refused",)}, "failed"),
        ({"counted_units": 99_999}, "sum at the end"),
    ],
)
def test_each_goal_can_be_missed(changed: dict[str, object], word: str) -> None:
    (goal,) = missed(replace(GOOD, **changed))  # type: ignore[arg-type]
    assert word in goal


def test_the_first_fifth_is_not_growth() -> None:
    """Caches fill in it."""
    assert growth_mb((window(90.0), window(95.0), *(window(120.0) for _ in range(8)))) == 0.0


def test_percentiles() -> None:
    waits = [float(number) for number in range(1, 1001)]
    assert (round(within(waits, 50.0)), round(within(waits, 99.0)), within(waits, 100.0)) == (500, 990, 1000.0)
    assert within([], 50.0) == 0.0
    assert within([7.0], 99.0) == 7.0


def test_the_page_has_latencies_the_course_of_time_and_failures() -> None:
    one = Spread.of([0.05, 0.05])
    noise = Noise(wall=one, cpu=one, samples=2, load_before=1.0, load_after=2.0)
    machine = Machine(cpu="Example", cores=2, memory_gb=8.0, kernel="6.1")
    run = replace(GOOD, failures=("bind of load-1-000001: refused",))
    page = document(LoadResults(machine, noise, {"Python": "3.11"}, run))
    for text in ("| filter | 60 |", "| bind | 60 |", "| 600 |", "- bind of load-1-000001: refused", "15,000 pods were bound"):
        assert text in page
    assert "## Failures" not in document(LoadResults(machine, noise, {"Python": "3.11"}, GOOD))
