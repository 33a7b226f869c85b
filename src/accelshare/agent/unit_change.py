"""A node's memory unit may change only while no pod lives on it that asked in the old one.

Belongs here: the comparison and its refusal. Never: what a unit is (units.py).
"""

from collections.abc import Iterable

from accelshare.agent.units import UnitError
from accelshare.vendors.profile import Profile
from accelshare.wire.node_pods import NodePod

_NAMED = 20


def refuse_changed_unit(profile: Profile, *, wished: str, before: str, pods: Iterable[NodePod], node: str) -> None:
    """Amounts of pods that live here were asked in the old unit: in another one they would be something else."""
    unit = wished or profile.unit.default
    if not before or before == unit:
        return
    living = [
        pod.name
        for pod in pods
        if not pod.seen.ended and any(ask.kind == profile.name and not ask.whole for ask in pod.seen.request)
    ]
    if living:
        raise UnitError(
            f"{profile.name}: the memory unit of node {node} is {before!r} and cannot become {unit!r} while pods "
            f"that asked in the old one are on it: {', '.join(sorted(living)[:_NAMED])}; end them first, or keep {before!r}"
        )
