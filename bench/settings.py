"""The sizes of a run: full and quick.

Belongs here: numbers of nodes, pods, calls and rounds. Never: measuring.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from bench.results import BARE, LEAST, MAIN, OF_GPUSHARE, OURS, SHORTLIST_1


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of pods that waits for kube-scheduler, in a cluster of this size."""

    nodes: int
    pods: int
    rounds: int  # how often the variants take turns
    variants: tuple[str, ...] = OURS
    shapes: int = 1

    @property
    def of_gpushare(self) -> bool:
        """Whether gpushare's extender is one of the rows."""
        return not set(OF_GPUSHARE).isdisjoint(self.variants)


@dataclass(frozen=True, slots=True)
class Stream:
    """Pods that arrive at a steady rate, in a cluster of this size."""

    nodes: int
    pods: int
    per_s: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Settings:
    queues: tuple[Queue, ...]  # each on a control plane of its own
    streams: tuple[Stream, ...]
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
    queues=(
        Queue(nodes=100, pods=1200, rounds=5, variants=(*MAIN, LEAST)),
        Queue(nodes=500, pods=1000, rounds=3, variants=MAIN),
        Queue(nodes=1000, pods=1000, rounds=5),
        Queue(nodes=1000, pods=800, rounds=3, variants=MAIN, shapes=20),
        Queue(nodes=1000, pods=200, rounds=2, variants=(BARE, SHORTLIST_1, *OF_GPUSHARE)),  # some minutes, all of them gpushare's
        Queue(nodes=5000, pods=800, rounds=3),
        Queue(nodes=15_000, pods=600, rounds=2, variants=MAIN),
    ),
    streams=(Stream(nodes=1000, pods=300, per_s=20, rounds=1), Stream(nodes=5000, pods=150, per_s=8, rounds=1)),
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
    queues=(
        Queue(nodes=100, pods=60, rounds=2, variants=(*OURS, LEAST)),
        Queue(nodes=100, pods=60, rounds=2, variants=MAIN, shapes=20),
        Queue(nodes=300, pods=60, rounds=2),
        Queue(nodes=100, pods=20, rounds=1, variants=(BARE, SHORTLIST_1, *OF_GPUSHARE)),
    ),
    streams=(Stream(nodes=100, pods=40, per_s=10, rounds=1),),
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


def with_nodes(settings: Settings, sizes: Sequence[int]) -> Settings:
    """The same with queues at these sizes, each like the one of the next smaller size in the settings, and no other queue."""
    known = [queue for queue in settings.queues if queue.shapes == 1 and not queue.of_gpushare]

    def at(nodes: int) -> Queue:
        smaller = [queue for queue in known if queue.nodes <= nodes]
        return replace((smaller or known)[-1 if smaller else 0], nodes=nodes)

    return replace(settings, queues=tuple(at(nodes) for nodes in sizes))


def with_rounds(settings: Settings, rounds: int) -> Settings:
    return replace(settings, queues=tuple(replace(queue, rounds=rounds) for queue in settings.queues))
