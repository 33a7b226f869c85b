"""What one unit of a card is called, and how an amount is said to people.

Belongs here: words for amounts. Never: sums; the ledger counts units and does not care what they are.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from accelshare.vendors.profile import Profile
from accelshare.wire.inventory import KindEntry

# node → kind → what the node's own inventory says.
Told: TypeAlias = Mapping[str, Mapping[str, KindEntry]]
NOTHING_TOLD: Final[Told] = {}

# A card of more units than this is taken to be counted in MiB, as the original table has it.
_LARGEST_IN_GIB: Final = 100


def in_cards(profile: Profile) -> bool:
    """A vendor whose cards are only given out whole is counted in cards."""
    return profile.resources.memory is None


def unit_name(profile: Profile, node: str, size: int, told: Told = NOTHING_TOLD) -> str:
    """The profile's name of the unit this node counts in: the inventory's word, else a guess from the size of its first card."""
    said = told.get(node, {}).get(profile.name)
    if said is not None and said.unit:
        return said.unit
    guess = "MiB" if size > _LARGEST_IN_GIB else "GiB"
    return guess if guess in profile.unit.mib or guess in profile.unit.labels.values() else profile.unit.default


def unit_label(profile: Profile, node: str, size: int, told: Told = NOTHING_TOLD) -> str:
    """The same for people."""
    return profile.unit.label(unit_name(profile, node, size, told))


def amount(units: int, label: str) -> str:
    """`4 GiB`, or `40 × 0.1 GB` where the unit is itself an amount."""
    return f"{units} × {label}" if label[:1].isdigit() else f"{units} {label}"


def cards(count: int, noun: str) -> str:
    """`1 NPU`, `2 NPUs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
