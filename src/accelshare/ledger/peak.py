"""How much of a resource a pod holds at its peak, counted as Kubernetes counts it.

Belongs here: one sum. Never: where the amounts were written.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One init container: what it takes, and whether it stays beside the ones after it (a sidecar) or gives all back."""

    amount: int
    stays: bool = False


def peak(apps: Iterable[int], steps: Sequence[Step] = ()) -> int:
    """The most that is held at once: while each init container runs beside the sidecars before it, or when all apps run."""
    staying = 0
    most = 0
    for step in steps:
        if step.stays:
            staying += step.amount
            most = max(most, staying)
        else:
            most = max(most, staying + step.amount)
    return max(most, staying + sum(apps))
