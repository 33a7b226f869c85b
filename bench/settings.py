"""The sizes of a run: full and quick.

Belongs here: numbers of nodes, pods, calls and rounds. Never: measuring.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Settings:
    nodes: tuple[int, ...]  # the sizes of cluster at which throughput is measured
    pods: tuple[int, ...]  # how many pods are in the queue, for each of these
    rounds: tuple[int, ...]  # how often all variants run, for each of these
    call_nodes: tuple[int, ...]  # how many names a call has, which is also how many nodes there are
    calls: int  # of each kind, at each size
    growth_nodes: tuple[int, ...]
    growth_steps: int
    growth_step_pods: int
    crowd_nodes: int
    crowd_pods: int
    starts: int  # how often the extender is started with the crowd there
    inspects: int  # how often `inspect` is started
    scrape_nodes: int
    scrape_calls: int  # of filter, in each round, once without and once with a scrape
    scrape_rounds: int


FULL: Final = Settings(
    nodes=(1000, 5000),
    pods=(400, 300),
    rounds=(7, 5),
    call_nodes=(100, 1000, 5000),
    calls=300,
    growth_nodes=(100, 1000, 5000),
    growth_steps=3,
    growth_step_pods=500,
    crowd_nodes=5000,
    crowd_pods=50_000,
    starts=3,
    inspects=41,
    scrape_nodes=5000,
    scrape_calls=600,
    scrape_rounds=5,
)
QUICK: Final = Settings(
    nodes=(100, 300),
    pods=(60, 60),
    rounds=(2, 2),
    call_nodes=(100, 300),
    calls=30,
    growth_nodes=(100, 300),
    growth_steps=2,
    growth_step_pods=50,
    crowd_nodes=300,
    crowd_pods=1000,
    starts=2,
    inspects=5,
    scrape_nodes=300,
    scrape_calls=100,
    scrape_rounds=2,
)


def pods_and_rounds(settings: Settings, nodes: int) -> tuple[int, int]:
    """Those of this size in the settings, or of the next smaller size."""
    known = [at for at, size in enumerate(settings.nodes) if size <= nodes]
    at = known[-1] if known else 0
    return settings.pods[at], settings.rounds[at]
