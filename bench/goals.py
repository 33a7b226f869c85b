"""The performance goals, and whether a run met them.

Belongs here: goals, and comparing results with them. Never: measuring.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.figures import ratios
from bench.results import BARE, SHORTLIST_1, Crowd, Results, Scrape, Throughput

LEAST_RATIO: Final = 1.0
MOST_GROWTH: Final = 3.0
MOST_RSS_MB: Final = 150.0
MOST_START_S: Final = 5.0
MOST_INSPECT_MS: Final = 150.0
MOST_STALL_MS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Verdict:
    goal: str
    measured: str
    met: bool


def verdicts(results: Results) -> list[Verdict]:
    """One for each goal that this run measured."""
    judged = [*_throughput(results.throughput), *_growth(results.throughput)]
    if results.crowd is not None:
        judged += _crowd(results.crowd)
    if results.first_bytes:
        over_ms = median(start.inspect_ms - start.bare_ms for start in results.first_bytes)
        goal = f"CPU of `inspect` to its first byte ≤ {MOST_INSPECT_MS:g} ms over a bare Python's"
        judged.append(Verdict(goal, f"{over_ms:.0f} ms", over_ms <= MOST_INSPECT_MS))
    if results.scrape is not None:
        judged.append(_scrape(results.scrape))
    return judged


def _throughput(throughput: tuple[Throughput, ...]) -> Iterator[Verdict]:
    for size in throughput:
        ratio = median(ratios(size.paces[SHORTLIST_1], size.paces[BARE], lambda pace: pace.pods_per_s))
        goal = f"{size.nodes:,} nodes: pods/s with shortlist 1 ÷ bare kube-scheduler ≥ {LEAST_RATIO:.1f}"
        yield Verdict(goal, f"{ratio:.2f}", ratio >= LEAST_RATIO)


def _growth(throughput: tuple[Throughput, ...]) -> Iterator[Verdict]:
    if len(throughput) < 2:
        return
    small, large = throughput[0], throughput[-1]
    costs = [median(pace.extender_ms for pace in size.paces[SHORTLIST_1]) for size in (small, large)]
    growth = costs[1] / costs[0]
    goal = f"extender CPU a pod at {large.nodes:,} nodes ≤ {MOST_GROWTH:g} × that at {small.nodes:,} (shortlist 1)"
    yield Verdict(goal, f"{growth:.2f} × ({costs[0]:.2f} → {costs[1]:.2f} ms)", growth <= MOST_GROWTH)


def _scrape(scrape: Scrape) -> Verdict:
    """A scrape may share the core with filter calls, but must not block them."""
    stall_ms = median(after.p99_ms - before.p99_ms for before, after in zip(scrape.quiet, scrape.scraped, strict=True))
    goal = f"{scrape.series:,} series scraped without pause: the slowest 1 % of filter calls wait ≤ {MOST_STALL_MS:g} ms longer"
    return Verdict(goal, f"{stall_ms:.1f} ms", stall_ms <= MOST_STALL_MS)


def _crowd(crowd: Crowd) -> Iterator[Verdict]:
    where = f"{crowd.nodes:,} nodes and {crowd.pods:,} pods"
    rss_mb = median(start.memory.rss_mb for start in crowd.starts)
    yield Verdict(f"{where}: extender's RSS after it is ready ≤ {MOST_RSS_MB:g} MB", f"{rss_mb:.0f} MB", rss_mb <= MOST_RSS_MB)
    start_s = median(start.wall_s for start in crowd.starts)
    yield Verdict(f"{where}: from exec to ready ≤ {MOST_START_S:g} s", f"{start_s:.1f} s", start_s <= MOST_START_S)
