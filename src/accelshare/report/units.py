"""Names of memory units, and amounts as people read them.

Belongs here: units and amounts as text. Never: sums; the ledger counts units, whatever they are.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from accelshare.vendors.profile import Profile
from accelshare.wire.inventory import KindEntry

# node → kind → the entry in the node's inventory.
Inventories: TypeAlias = Mapping[str, Mapping[str, KindEntry]]
NO_INVENTORIES: Final[Inventories] = {}

# A card with more units than this is assumed to be counted in MiB, as in the original tools.
_LARGEST_IN_GIB: Final = 100


def in_cards(profile: Profile) -> bool:
    """Is this vendor counted in cards? Yes, if its cards are only allocated whole."""
    return profile.resources.memory is None


def unit_name(profile: Profile, node: str, size: int, inventories: Inventories = NO_INVENTORIES) -> str:
    """The profile's name of this node's unit: from the inventory, else guessed from the size of its first card."""
    entry = inventories.get(node, {}).get(profile.name)
    if entry is not None and entry.unit:
        return entry.unit
    guess = "MiB" if size > _LARGEST_IN_GIB else "GiB"
    return guess if guess in profile.unit.mib or guess in profile.unit.labels.values() else profile.unit.default


def unit_label(profile: Profile, node: str, size: int, inventories: Inventories = NO_INVENTORIES) -> str:
    """The same unit as people read it."""
    return profile.unit.label(unit_name(profile, node, size, inventories))


def amount(units: int, label: str) -> str:
    """`4 GiB`, or `40 × 0.1 GB` where the unit is itself an amount."""
    return f"{units} × {label}" if label[:1].isdigit() else f"{units} {label}"


def cards(count: int, noun: str) -> str:
    """`1 NPU`, `2 NPUs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
