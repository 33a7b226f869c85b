"""Statistics of measurements: median, spread, rate.

Belongs here: arithmetic on plain numbers. Never: measuring, printing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spread:
    """Several measurements of one thing: median, least and most."""

    middle: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        if not values:
            raise ValueError("a spread needs at least one measurement")
        return cls(median(values), min(values), max(values))

    @property
    def percent(self) -> float:
        """From the least to the most, in percent of the median."""
        return 100 * (self.most - self.least) / self.middle if self.middle else 0.0


@dataclass(frozen=True, slots=True)
class Moment:
    """How many pods were bound at a time, and the CPU used until then by each process and by the whole machine."""

    bound: int
    at_s: float
    scheduler_cpu_s: float
    extender_cpu_s: float
    api_server_cpu_s: float  # with its etcd
    observer_cpu_s: float  # the benchmark itself
    machine_cpu_s: float

    @property
    def others_cpu_s(self) -> float:
        ours = self.scheduler_cpu_s + self.extender_cpu_s + self.api_server_cpu_s + self.observer_cpu_s
        return self.machine_cpu_s - ours


@dataclass(frozen=True, slots=True)
class Pace:
    """The rate between two moments, the CPU for each pod, and the cores that other processes used."""

    pods_per_s: float
    scheduler_ms: float
    extender_ms: float
    api_server_ms: float
    others_cores: float
    wasted: float = 0.0  # of the promises of a whole run, the part that did not help; 0 without promises
    connections: float = 0.0  # that kube-scheduler opened to the extender, for each pod of a whole run


def pace(first: Moment, last: Moment) -> Pace:
    pods, seconds = last.bound - first.bound, last.at_s - first.at_s
    if pods <= 0 or seconds <= 0:
        raise ValueError(f"nothing was bound between {first} and {last}")
    return Pace(
        pods_per_s=pods / seconds,
        scheduler_ms=1000 * (last.scheduler_cpu_s - first.scheduler_cpu_s) / pods,
        extender_ms=1000 * (last.extender_cpu_s - first.extender_cpu_s) / pods,
        api_server_ms=1000 * (last.api_server_cpu_s - first.api_server_cpu_s) / pods,
        others_cores=max(0.0, (last.others_cpu_s - first.others_cpu_s) / seconds),
    )


def middle_of(count: int) -> tuple[int, int]:
    """The pods after which counting starts and stops, so that the beginning and the end of the queue do not count."""
    if count < 10:
        raise ValueError(f"{count} pods have no middle; 10 is the least")
    return count // 10, count - count // 10


def ratios(these: Sequence[T], those: Sequence[T], value: Callable[[T], float]) -> list[float]:
    """Each measurement divided by its partner, which was taken next to it, so that what slowed both cancels out."""
    return [value(this) / value(that) for this, that in zip(these, those, strict=True)]
