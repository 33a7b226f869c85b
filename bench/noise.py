"""Measures the machine's noise: one fixed loop, timed repeatedly between the measurements.

Belongs here: the loop and its times. Never: correcting a result by it (goals.py scales limits).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.figures import Spread

STEPS = 1_500_000


@dataclass(frozen=True, slots=True)
class Sample:
    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Noise:
    """Wall time varies when other processes use the cores, CPU time when the cores themselves are slower."""

    wall: Spread
    cpu: Spread
    samples: int
    load_before: float
    load_after: float


class NoiseMeter:
    """Collects samples; `summary` returns their spread."""

    def __init__(self, load: Callable[[], float]) -> None:
        self._load = load
        self._load_before = load()
        self._samples: list[Sample] = []

    def listen(self) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        _work()
        self._samples.append(Sample(time.perf_counter() - wall, time.thread_time() - cpu))

    def summary(self) -> Noise:
        return Noise(
            wall=Spread.of([sample.wall_s for sample in self._samples]),
            cpu=Spread.of([sample.cpu_s for sample in self._samples]),
            samples=len(self._samples),
            load_before=self._load_before,
            load_after=self._load(),
        )


def _work() -> int:
    total = 0
    for step in range(STEPS):
        total ^= step
    return total
