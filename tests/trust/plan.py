"""The plan of a run: which faults strike when, and which pods come and go. The same seed gives the same plan.

Belongs here: drawing. Never: carrying out (faults.py, control_plane_run.py).

Moments are relative to the fault before, because a busy machine takes longer for all of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.trust.history import CARD_COUNT, MEMORY, WHOLE

# How often a shape is drawn: limits, and annotations.
SHAPES: Final[Sequence[tuple[int, dict[str, int], dict[str, str]]]] = (
    *((12, {MEMORY: units}, {}) for units in (1, 2, 4, 8)),
    *((8, {MEMORY: units}, {}) for units in (3, 6, 12, 16)),
    (10, {WHOLE: 1}, {}),
    (2, {WHOLE: 2}, {}),
    (5, {MEMORY: 8}, {CARD_COUNT: "2"}),
    (3, {MEMORY: 24}, {CARD_COUNT: "2"}),
)
WAITS: Final = 0.6  # of the faults
EARLY: Final = 0.04  # of the pods are deleted right after their creation, in the middle of their bind
SUCCEEDS: Final = 0.2  # of the pods end by themselves before they are deleted


@dataclass(frozen=True, slots=True)
class PlannedFault:
    number: int
    kind: str
    after_s: float  # after the start of the fault before
    lasts_s: float
    waits: bool  # until some pods are bound since the fault before; otherwise faults come on top of each other
    seed: str  # of what the fault itself draws


@dataclass(frozen=True, slots=True)
class PlannedPod:
    name: str
    limits: dict[str, int]
    annotations: dict[str, str]
    after_s: float  # after the creation of the pod before
    lives_s: float  # from its bind on, or from its creation on if it is early
    early: bool
    succeeds: bool


@dataclass(frozen=True, slots=True)
class Pace:
    """How close together faults and pods are."""

    most_between_s: float = 3.0  # two faults
    most_lasting_s: float = 7.0
    most_living_s: float = 25.0
    most_waiting_s: float = 15.0  # for pods to be bound, before a fault that waits


SHORT: Final = Pace(most_between_s=0.6, most_lasting_s=4.0, most_living_s=8.0, most_waiting_s=3.0)  # of the run in tests/e2e
SHORT_PODS: Final = 100
FAULTS: Final = 220  # of a run by default
PODS: Final = 2000


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    faults: list[PlannedFault]
    pods: list[PlannedPod]
    pace: Pace = field(default_factory=Pace)

    def due_pods(self, struck: int) -> int:
        """How many pods have come when this many faults have struck: they come evenly over all faults."""
        return len(self.pods) if struck >= len(self.faults) else len(self.pods) * (struck + 1) // (len(self.faults) + 1)


def draw_plan(seed: int, kinds: Mapping[str, int], *, faults: int, pods: int, pace: Pace | None = None) -> Plan:
    """`kinds`: how often each is drawn. Each strikes at least once if there are enough faults."""
    pace = pace or Pace()
    return Plan(seed, draw_faults(seed, kinds, faults, pace), draw_pods(seed, pods, pace), pace)


def draw_faults(seed: int, kinds: Mapping[str, int], count: int, pace: Pace) -> list[PlannedFault]:
    chance = Random(f"{seed}/faults")
    names = list(kinds)
    chance.shuffle(names)
    names = names[:count] + chance.choices(list(kinds), weights=list(kinds.values()), k=max(0, count - len(names)))
    chance.shuffle(names)
    return [
        PlannedFault(
            number,
            name,
            after_s=chance.uniform(0.1, pace.most_between_s),
            lasts_s=chance.uniform(0.3, pace.most_lasting_s),
            waits=chance.random() < WAITS,
            seed=f"{seed}/fault/{number}",
        )
        for number, name in enumerate(names)
    ]


def draw_pods(seed: int, count: int, pace: Pace) -> list[PlannedPod]:
    chance = Random(f"{seed}/pods")
    return [_pod(chance, number, pace) for number in range(count)]


def _pod(chance: Random, number: int, pace: Pace) -> PlannedPod:
    ((_, limits, annotations),) = chance.choices(SHAPES, weights=[weight for weight, _, _ in SHAPES])
    early = chance.random() < EARLY
    return PlannedPod(
        name=f"p{number}",
        limits=limits,
        annotations=annotations,
        after_s=chance.uniform(0.0, 0.2),
        lives_s=chance.uniform(0.0, 1.5) if early else chance.uniform(1.0, pace.most_living_s),
        early=early,
        succeeds=chance.random() < SUCCEEDS,
    )
