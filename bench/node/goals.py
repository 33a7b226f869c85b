"""The goals of the node, and whether this run met them.

Belongs here: goals, and how a result is judged by one. Never: measuring.
"""

from collections.abc import Iterator
from statistics import median
from typing import Final

from bench.figures import Spread
from bench.goals import TimeLimit, Verdict
from bench.node.results import DEVICE_PLUGIN, NRI, Footprints, NodeResults, Rush, Starting

MOST_RSS_MB: Final = 60.0
MOST_IDLE_PERCENT: Final = 0.5
MOST_ADDED_MS: Final = 3.0
MOST_FAILED: Final = 5  # of a rush by device plugins whose agent is killed


def verdicts(results: NodeResults) -> list[Verdict]:
    """One for each goal that this run can speak about."""
    found = [verdict for footprints in results.footprints for verdict in _footprint(footprints)]
    if results.starting is not None and results.starting.containers:
        found.append(_added(results.starting, results.noise.cpu))
    by_runtime = [rush for rush in results.rushes if rush.way == NRI]
    if by_runtime:
        found.append(_rush(by_runtime))
    killed = [rush for rush in results.rushes if (rush.way, rush.victim) == (DEVICE_PLUGIN, "agent")]
    if killed:
        found.append(_killed_agent(killed))
    return found


def added_ms(starting: Starting) -> float:
    """What all of the runtime's calls to the agent took, for each container that was made."""
    return 1000 * sum(latency.total_s for latency in starting.latencies) / starting.containers


def _footprint(footprints: Footprints) -> Iterator[Verdict]:
    who = f"{footprints.way}, 8 cards, {footprints.units:,} units"
    rss_mb = median(start.rss_mb for start in footprints.starts)
    yield Verdict(f"{who}: agent's RSS ≤ {MOST_RSS_MB:g} MB", f"{rss_mb:.1f} MB", rss_mb <= MOST_RSS_MB)
    idle = median(start.idle_percent for start in footprints.starts)
    goal = f"{who}: agent's CPU with nothing to do ≤ {MOST_IDLE_PERCENT:g} % of a core"
    yield Verdict(goal, f"{idle:.2f} %", idle <= MOST_IDLE_PERCENT)


def _added(starting: Starting, loop: Spread) -> Verdict:
    added, most = added_ms(starting), TimeLimit(MOST_ADDED_MS, "ms", loop)
    return Verdict(f"nri: time added to a container ≤ {most}", f"{added:.2f} ms", most.holds(added))


def _rush(rushes: list[Rush]) -> Verdict:
    pods = sum(rush.pods for rush in rushes)
    assigned = sum(rush.assigned for rush in rushes)
    return Verdict(
        "nri: no pod failed, misassigned or without a card after a kill", f"{assigned} of {pods} assigned", assigned == pods
    )


def _killed_agent(rushes: list[Rush]) -> Verdict:
    worst = max(rushes, key=lambda rush: rush.failed)
    after = "after a kill of the agent"
    goal = f"device-plugin: at most {MOST_FAILED} pods of a rush failed, none misassigned or without a card, {after}"
    met = all(rush.failed <= MOST_FAILED and not rush.misassigned and not rush.without_card for rush in rushes)
    return Verdict(goal, f"{worst.failed} of {worst.pods} failed", met)
