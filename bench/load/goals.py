"""The goals of a load run, and whether it met them.

Belongs here: goals, and comparing results with them. Never: measuring.
"""

from statistics import median
from typing import Final

from bench.goals import MOST_RSS_MB, Verdict
from bench.load.results import LoadRun, Window

LEAST_RATE: Final = 0.95  # of the changes that should have been made
MOST_GROWTH_MB: Final = 5.0  # 16,384 ended pods are remembered, some 2 MB
FIRST: Final = 0.2  # the part of the run in which caches fill


def verdicts(run: LoadRun) -> list[Verdict]:
    settings = run.settings
    where = f"{settings.nodes:,} nodes and {settings.pods:,} pods"
    rate = sum(window.changes for window in run.windows) / sum(window.seconds for window in run.windows)
    wanted = f"{settings.changes_per_s:g} changes a second for {settings.duration_s:g} s"
    found = [Verdict(f"{where}: {wanted}", f"{rate:.1f} a second", rate >= LEAST_RATE * settings.changes_per_s)]
    most_mb = max(window.rss_mb for window in run.windows)
    found.append(Verdict(f"extender's RSS ≤ {MOST_RSS_MB:g} MB all the time", f"{most_mb:.0f} MB", most_mb <= MOST_RSS_MB))
    grown = growth_mb(run.windows)
    goal = f"RSS at the end over RSS after the first fifth ≤ {MOST_GROWTH_MB:g} MB"
    found.append(Verdict(goal, f"{grown:+.1f} MB", grown <= MOST_GROWTH_MB))
    found.append(Verdict("calls that failed: none", str(len(run.failures)), not run.failures))
    sums = f"{run.counted_units:,} and {run.bound_units:,} units"
    same = run.counted_units == run.bound_units
    found.append(Verdict("the extender's sum at the end equals that of the pods in the API server", sums, same))
    return found


def growth_mb(windows: tuple[Window, ...]) -> float:
    """From the windows after the first fifth to the last ones, the median of three each."""
    settled = windows[int(len(windows) * FIRST) :]
    some = min(3, len(settled))
    return median(window.rss_mb for window in settled[-some:]) - median(window.rss_mb for window in settled[:some])
