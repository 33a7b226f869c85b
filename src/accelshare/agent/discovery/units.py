"""Memory units: how many units a card has, whether kubelet can list so many, and when a node's unit may change.

Belongs here: arithmetic and its refusals. Never: asking drivers or the cluster.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from accelshare.agent.device_plugin.device_ids import list_bytes
from accelshare.vendors.profile import Profile
from accelshare.wire.node_pods import NodePod

# kubelet reads at most 4 MiB of a plugin's list; a larger list ends the stream, and the resource is gone.
LARGEST_LIST_BYTES: Final = 4 * 2**20 - 4096
# From 1.36 on a pod's status lists each id it holds, at some 44 bytes; above half of etcd's limit there is a warning.
LARGEST_STATUS_BYTES: Final = 768 * 1024
STATUS_BYTES_PER_ID: Final = 44
MOST_NAMED: Final = 20  # pods that a message names


class UnitError(Exception):
    """The unit cannot be used on this node; the message names the reason and a unit that can."""


@dataclass(frozen=True, slots=True)
class UnitCounts:
    """A unit in use: its name, its size, and the units of each card by index."""

    unit: str
    unit_mib: float
    cards: dict[int, int]
    warning: str = ""


def count(profile: Profile, memory_mib: dict[int, int], unit: str = "", *, listed: bool = True) -> UnitCounts:
    """Count the cards in this unit, or in the profile's default; UnitError names the smallest unit that works.

    `listed`: each unit is a device in kubelet's list, which limits their number.
    """
    chosen = unit or profile.unit.default
    if chosen not in profile.unit.mib:
        known = ", ".join(profile.unit.mib)
        raise UnitError(f"{profile.name}: memory unit {chosen!r} is not known; it must be one of {known}")
    cards = _units(memory_mib, profile.unit.mib[chosen])
    size = _largest_list(cards)
    if profile.resources.memory is None or not listed:
        # The units are no devices in kubelet's list; the inventory shows a card's size all the same.
        return UnitCounts(chosen, profile.unit.mib[chosen], cards)
    if size > LARGEST_LIST_BYTES:
        raise UnitError(
            f"{profile.name}: in units of {profile.unit.label(chosen)} this node has {sum(cards.values())} devices, a list of "
            f"{size} bytes, and kubelet reads at most {LARGEST_LIST_BYTES}; {_smallest_that_works(profile, memory_mib)}"
        )
    return UnitCounts(chosen, profile.unit.mib[chosen], cards, _status_warning(profile, memory_mib, chosen, cards))


def _units(memory_mib: dict[int, int], unit_mib: float) -> dict[int, int]:
    # 1e-6 is added because 102.4 MiB, a tenth of a GB, has no exact binary fraction.
    return {index: int(mib / unit_mib + 1e-6) for index, mib in memory_mib.items()}


def _largest_list(cards: dict[int, int]) -> int:
    # An id has one digit more if its card's slot is 10 or more, and one more while kubelet keeps ids of ended pods.
    return list_bytes(cards.items()) + 2 * sum(cards.values())


def _fitting(profile: Profile, memory_mib: dict[int, int], most_bytes: int, per_id: int | None = None) -> Sequence[str]:
    fitting = []
    for unit in sorted(profile.unit.mib, key=lambda unit: profile.unit.mib[unit]):
        cards = _units(memory_mib, profile.unit.mib[unit])
        size = _largest_list(cards) if per_id is None else max(cards.values(), default=0) * per_id
        if size <= most_bytes:
            fitting.append(unit)
    return fitting


def _smallest_that_works(profile: Profile, memory_mib: dict[int, int]) -> str:
    fitting = _fitting(profile, memory_mib, LARGEST_LIST_BYTES)
    return f"the smallest unit that works is {fitting[0]!r}" if fitting else "no unit of this profile works with so much memory"


def _status_warning(profile: Profile, memory_mib: dict[int, int], unit: str, cards: dict[int, int]) -> str:
    largest = max(cards.values(), default=0) * STATUS_BYTES_PER_ID
    if largest <= LARGEST_STATUS_BYTES:
        return ""
    fitting = _fitting(profile, memory_mib, LARGEST_STATUS_BYTES, STATUS_BYTES_PER_ID)
    better = f"unit {fitting[0]!r} avoids it" if fitting else "no unit of this profile avoids it"
    return (
        f"{profile.name}: a pod that takes a whole card in units of {profile.unit.label(unit)} has some {largest} bytes of "
        f"status on kubelet 1.36 and newer, which lists every id, and etcd takes 1.5 MiB; {better}"
    )


@dataclass(frozen=True, slots=True)
class ChosenUnit:
    """The unit in which cards are counted, and why it is not the requested one."""

    unit: str
    problem: str = ""


def chosen_unit(profile: Profile, *, requested: str, before: str, pods: Iterable[NodePod], node: str) -> ChosenUnit:
    """The requested unit, or the one before while pods live here whose requests are in that unit."""
    unit = requested or profile.unit.default
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
        f"the memory unit of node {node} is {before!r} and cannot become {unit!r} while pods live that use it: "
        f"{', '.join(sorted(living)[:MOST_NAMED])}; end them first, or keep {before!r}",
    )
