"""A node's memory unit may change only while no pod lives on it that asked in the old one.

Belongs here: the comparison, and the words when the old unit stays. Never: what a unit is (units.py).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from accelshare.vendors.profile import Profile
from accelshare.wire.node_pods import NodePod

_NAMED = 20


@dataclass(frozen=True, slots=True)
class ChosenUnit:
    """The unit in which cards are counted, and in words why it is not the one that was asked for."""

    unit: str
    problem: str = ""


def chosen_unit(profile: Profile, *, wished: str, before: str, pods: Iterable[NodePod], node: str) -> ChosenUnit:
    """Amounts of pods that live here were asked in the old unit: in another one they would be something else."""
    unit = wished or profile.unit.default
    if not before or before == unit or before not in profile.unit.mib:
        return ChosenUnit(unit)
    living = [
        pod.name
        for pod in pods
        if not pod.seen.ended and any(ask.kind == profile.name and not ask.whole for ask in pod.seen.request)
    ]
    if not living:
        return ChosenUnit(unit)
    return ChosenUnit(
        before,
        f"the memory unit of node {node} is {before!r} and cannot become {unit!r} while pods that asked in the old one live: "
        f"{', '.join(sorted(living)[:_NAMED])}; end them first, or keep {before!r}",
    )
