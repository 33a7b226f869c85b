"""The results of all measurements, as values.

Belongs here: the shapes of results. Never: measuring, judging.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from bench.figures import Pace
from bench.noise import Noise
from bench.procfs import Machine, Memory

BARE: Final = "bare kube-scheduler"
SHORTLIST_1: Final = "shortlist 1"
SHORTLIST_16: Final = "shortlist 16"
ALL: Final = "all nodes"
PROMISES: Final = "promises"
LEAST: Final = "least extender"  # another program: bench/least_extender
# Other programs, too: bench/gpushare
GPUSHARE: Final = "gpushare, as its manifest starts it"
GPUSHARE_QUIET: Final = "gpushare, log level error"
GPUSHARE_PATCHED: Final = "gpushare, log and client's limit patched out"
# The flags of the extender; None is kube-scheduler without one.
VARIANTS: Final[Mapping[str, tuple[str, ...] | None]] = {
    BARE: None,
    SHORTLIST_1: ("--shortlist=1",),
    PROMISES: ("--shortlist=1", "--promises=16", "--promises-from-nodes=1"),
    SHORTLIST_16: ("--shortlist=16",),
    ALL: ("--shortlist=0",),
    LEAST: (),
    GPUSHARE: (),
    GPUSHARE_QUIET: (),
    GPUSHARE_PATCHED: (),
}
OF_GPUSHARE: Final = (GPUSHARE, GPUSHARE_QUIET, GPUSHARE_PATCHED)
OURS: Final = tuple(variant for variant in VARIANTS if variant not in (LEAST, *OF_GPUSHARE))
MAIN: Final = (BARE, SHORTLIST_1, PROMISES)  # where not all are measured


@dataclass(frozen=True, slots=True)
class Throughput:
    """The rounds of every variant at one cluster size, in the order in which they ran."""

    nodes: int
    pods: int
    paces: Mapping[str, tuple[Pace, ...]]
    shapes: int = 1  # of pods; with several there are several priorities, too


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the calls, or the pods, of one round waited."""

    p50_ms: float
    p99_ms: float
    most_ms: float

    @classmethod
    def of(cls, waits_ms: Iterable[float]) -> "Waits":
        ordered = sorted(waits_ms)
        return cls(p50_ms=ordered[len(ordered) // 2], p99_ms=ordered[len(ordered) * 99 // 100], most_ms=ordered[-1])


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Pods that arrive at a steady rate: from creation to bound, in each round of each variant."""

    nodes: int
    pods: int
    per_s: float
    waits: Mapping[str, tuple[Waits, ...]]


@dataclass(frozen=True, slots=True)
class Call:
    """One kind of call at one size."""

    verb: str
    nodes: int
    full: bool  # on four of five nodes no card has enough free units
    request_kb: float
    cpu_ms: float
    wall_p50_ms: float


@dataclass(frozen=True, slots=True)
class Step:
    """The extender's CPU for one pod from its creation to its bind's watch event, with `pods_before` pods in the cluster."""

    nodes: int
    pods_before: int
    pods: int
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class Start:
    wall_s: float
    cpu_s: float
    memory: Memory


@dataclass(frozen=True, slots=True)
class BareStart:
    """A Python that only imports the libraries."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Crowd:
    """Starts of the extender in a cluster that already has all nodes and pods."""

    nodes: int
    pods: int
    pod_bytes: int
    starts: tuple[Start, ...]
    bare_starts: tuple[BareStart, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class FirstByte:
    """CPU of one `inspect`, and of a Python that does nothing, started just before it."""

    bare_ms: float
    inspect_ms: float
    to_the_end_ms: float


@dataclass(frozen=True, slots=True)
class Scrape:
    """The same calls in turn without a scrape and during continuous scrapes."""

    nodes: int
    series: int
    page_mb: float
    page_s: tuple[float, ...]
    quiet: tuple[Waits, ...]
    scraped: tuple[Waits, ...]


@dataclass(frozen=True, slots=True)
class Results:
    machine: Machine
    noise: Noise
    versions: Mapping[str, str]
    throughput: tuple[Throughput, ...] = ()
    arrivals: tuple[Arrivals, ...] = ()
    calls: tuple[Call, ...] = ()
    steps: tuple[Step, ...] = ()
    crowd: Crowd | None = None
    first_bytes: tuple[FirstByte, ...] = ()
    scrape: Scrape | None = None
    gpushare: str = ""  # where the program of its rows is from, or why there are none
