"""The performance goals, and whether a run met them.

Belongs here: goals, and comparing results with them. Never: measuring.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.figures import Spread, ratios
from bench.results import BARE, PROMISES, SHORTLIST_1, Crowd, Results, Scrape, Throughput

LEAST_RATIO: Final = ((1000, 1.0), (0, 0.8))  # from how many nodes on, and how much of bare's pace
MOST_EXTENDER_MS: Final = 0.5
LEAST_PROMISES: Final = ((5000, 3.0), (1000, 1.2))  # from how many nodes on, and how much faster than bare
MOST_WASTED: Final = 0.1
MOST_PROMISES_GROWTH: Final = 1.3
MOST_GROWTH: Final = 3.0
GROWTH_BETWEEN: Final = (1000, 5000)  # nodes
MOST_RSS_MB: Final = 150.0
MOST_START_S: Final = 3.0
MOST_INSPECT_MS: Final = 150.0
MOST_STALL_MS: Final = 10.0
REFERENCE_LOOP_S: Final = 0.046  # the fixed loop of noise.py on the machine for which goals in seconds were set


@dataclass(frozen=True, slots=True)
class Verdict:
    goal: str
    measured: str
    met: bool


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """A limit in seconds or milliseconds, for a machine as fast as the one for which it was set."""

    limit: float
    unit: str
    loop: Spread  # of this run

    @property
    def factor(self) -> float:
        """How much slower this machine is; a faster one gets no stricter limit."""
        return max(1.0, self.loop.middle / REFERENCE_LOOP_S)

    def holds(self, measured: float) -> bool:
        return measured <= self.limit * self.factor

    def __str__(self) -> str:
        slower = f" × {self.factor:.2f}" if self.factor > 1 else ""
        return f"{self.limit:g} {self.unit}{slower}"


def verdicts(results: Results) -> list[Verdict]:
    """One for each goal that this run measured."""
    of_one_shape = [size for size in results.throughput if size.shapes == 1 and PROMISES in size.paces]
    judged = [*_throughput(of_one_shape, results.noise.cpu), *_growth(of_one_shape), *_promises(of_one_shape)]
    judged += [_wasted(size) for size in results.throughput if size.shapes > 1]
    if results.crowd is not None:
        judged += _crowd(results.crowd, results.noise.wall)
    if results.first_bytes:
        over_ms = median(start.inspect_ms - start.bare_ms for start in results.first_bytes)
        most = TimeLimit(MOST_INSPECT_MS, "ms", results.noise.cpu)
        goal = f"CPU of `inspect` to its first byte, over a bare Python's ≤ {most}"
        judged.append(Verdict(goal, f"{over_ms:.0f} ms", most.holds(over_ms)))
    if results.scrape is not None:
        judged.append(_scrape(results.scrape, results.noise.wall))
    return judged


def _throughput(throughput: Sequence[Throughput], loop: Spread) -> Iterator[Verdict]:
    for size in throughput:
        ratio = median(ratios(size.paces[SHORTLIST_1], size.paces[BARE], lambda pace: pace.pods_per_s))
        least = next(least for nodes, least in LEAST_RATIO if size.nodes >= nodes)
        goal = f"{size.nodes:,} nodes: pods/s with shortlist 1 ÷ bare kube-scheduler ≥ {least:.1f}"
        yield Verdict(goal, f"{ratio:.2f}", ratio >= least)
    for size in throughput:
        cost_ms = median(pace.extender_ms for pace in size.paces[SHORTLIST_1])
        most = TimeLimit(MOST_EXTENDER_MS, "ms", loop)
        yield Verdict(f"{size.nodes:,} nodes: extender CPU a pod ≤ {most}", f"{cost_ms:.2f} ms", most.holds(cost_ms))


def _promises(throughput: Sequence[Throughput]) -> Iterator[Verdict]:
    for size in throughput:
        least = next((ratio for nodes, ratio in LEAST_PROMISES if size.nodes >= nodes), None)
        if least is None:
            continue
        ratio = median(ratios(size.paces[PROMISES], size.paces[BARE], lambda pace: pace.pods_per_s))
        yield Verdict(
            f"{size.nodes:,} nodes: pods/s with promises ÷ bare kube-scheduler ≥ {least:.1f}", f"{ratio:.2f}", ratio >= least
        )
        yield _wasted(size)
    if pair := _compared(throughput):
        small, large = pair
        costs = [median(pace.scheduler_ms + pace.extender_ms for pace in size.paces[PROMISES]) for size in (small, large)]
        goal = f"scheduler + extender CPU a pod at {large.nodes:,} nodes ≤ {MOST_PROMISES_GROWTH:g} × {small.nodes:,} (promises)"
        growth = costs[1] / costs[0]
        yield Verdict(goal, f"{growth:.2f} × ({costs[0]:.2f} → {costs[1]:.2f} ms)", growth <= MOST_PROMISES_GROWTH)


def _wasted(size: Throughput) -> Verdict:
    wasted = median(pace.wasted for pace in size.paces[PROMISES])
    shapes = f", {size.shapes} shapes of pods" if size.shapes > 1 else ""
    return Verdict(f"{size.nodes:,} nodes{shapes}: wasted promises ≤ {MOST_WASTED:.0%}", f"{wasted:.0%}", wasted <= MOST_WASTED)


def _compared(throughput: Sequence[Throughput]) -> tuple[Throughput, Throughput] | None:
    """Between which growth is judged: 1,000 and 5,000 nodes, or the smallest and the largest of a run without these."""
    found = [size for size in throughput if size.nodes in GROWTH_BETWEEN] or throughput
    return (found[0], found[-1]) if len(found) > 1 else None


def _growth(throughput: Sequence[Throughput]) -> Iterator[Verdict]:
    pair = _compared(throughput)
    if pair is None:
        return
    small, large = pair
    costs = [median(pace.extender_ms for pace in size.paces[SHORTLIST_1]) for size in (small, large)]
    growth = costs[1] / costs[0]
    goal = f"extender CPU a pod at {large.nodes:,} nodes ≤ {MOST_GROWTH:g} × that at {small.nodes:,} (shortlist 1)"
    yield Verdict(goal, f"{growth:.2f} × ({costs[0]:.2f} → {costs[1]:.2f} ms)", growth <= MOST_GROWTH)


def _scrape(scrape: Scrape, loop: Spread) -> Verdict:
    """A scrape may share the core with filter calls, but must not block them."""
    stall_ms = median(after.p99_ms - before.p99_ms for before, after in zip(scrape.quiet, scrape.scraped, strict=True))
    most = TimeLimit(MOST_STALL_MS, "ms", loop)
    goal = f"{scrape.series:,} series scraped without pause: what the slowest 1 % of filter calls wait longer ≤ {most}"
    return Verdict(goal, f"{stall_ms:.1f} ms", most.holds(stall_ms))


def _crowd(crowd: Crowd, loop: Spread) -> Iterator[Verdict]:
    where = f"{crowd.nodes:,} nodes and {crowd.pods:,} pods"
    rss_mb = median(start.memory.rss_mb for start in crowd.starts)
    yield Verdict(f"{where}: extender's RSS after it is ready ≤ {MOST_RSS_MB:g} MB", f"{rss_mb:.0f} MB", rss_mb <= MOST_RSS_MB)
    start_s = median(start.wall_s for start in crowd.starts)
    most = TimeLimit(MOST_START_S, "s", loop)
    yield Verdict(f"{where}: from exec to ready ≤ {most}", f"{start_s:.1f} s", most.holds(start_s))
