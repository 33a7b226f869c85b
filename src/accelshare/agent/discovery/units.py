"""From MiB to units: how many a card has, and whether kubelet can bear so many.

Belongs here: arithmetic and its refusals. Never: cards, clusters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from accelshare.agent.device_plugin.device_ids import list_bytes
from accelshare.vendors.profile import Profile

# kubelet reads at most 4 MiB of a plugin's list; what is over it ends the stream, and the resource is gone.
LARGEST_LIST_BYTES: Final = 4 * 2**20 - 4096
# From 1.36 on a pod's status lists each id it holds, at some 44 bytes; half of etcd's limit is the most we let pass unsaid.
LARGEST_STATUS_BYTES: Final = 768 * 1024
STATUS_BYTES_PER_ID: Final = 44


class UnitError(Exception):
    """The unit cannot be used on this node; the message says why and which one can."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A unit in force: its name, its size, and the units of each card by index."""

    unit: str
    unit_mib: float
    cards: dict[int, int]
    warning: str = ""


def count(profile: Profile, memory_mib: dict[int, int], unit: str = "", *, listed: bool = True) -> Counted:
    """The cards in this unit, or in the profile's default; UnitError names the smallest unit that works.

    `listed`: each unit is a device in kubelet's list, which bounds their number.
    """
    chosen = unit or profile.unit.default
    if chosen not in profile.unit.mib:
        known = ", ".join(profile.unit.mib)
        raise UnitError(f"{profile.name}: memory unit {chosen!r} is not known; it must be one of {known}")
    cards = _units(memory_mib, profile.unit.mib[chosen])
    size = _largest_list(cards)
    if profile.resources.memory is None or not listed:
        # A card's size is told all the same.
        return Counted(chosen, profile.unit.mib[chosen], cards)
    if size > LARGEST_LIST_BYTES:
        raise UnitError(
            f"{profile.name}: in units of {profile.unit.label(chosen)} this node has {sum(cards.values())} devices, a list of "
            f"{size} bytes, and kubelet reads at most {LARGEST_LIST_BYTES}; {_smallest_that_works(profile, memory_mib)}"
        )
    return Counted(chosen, profile.unit.mib[chosen], cards, _status_warning(profile, memory_mib, chosen, cards))


def _units(memory_mib: dict[int, int], unit_mib: float) -> dict[int, int]:
    # A hair is added because a tenth of a GB is 102.4 MiB, which no binary fraction is.
    return {index: int(mib / unit_mib + 1e-6) for index, mib in memory_mib.items()}


def _largest_list(cards: dict[int, int]) -> int:
    # An id grows by a digit if its card's slot becomes 10 or more, and by one if kubelet keeps names for the dead.
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
