"""The kernel's controller of device memory (dmem): its files, and which of its regions belong to a card.

Belongs here: the texts of dmem.capacity and dmem.max. Pure. Never: opening files (`cgroups.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from accelshare.vendors.container_edits import EditsError, filled, naming
from accelshare.vendors.drivers import pci
from accelshare.vendors.drivers.driver import HostCard
from accelshare.vendors.enforcement import Region

CONTROLLER: Final = "dmem"
CAPACITY: Final = "dmem.capacity"  # in the root only
MAX: Final = "dmem.max"  # everywhere else
CURRENT: Final = "dmem.current"
_UNLIMITED: Final = "max"


def values(text: str) -> dict[str, int | None]:
    """The number of each region, from lines `region bytes`; None for `max`."""
    pairs = [line.rpartition(" ") for line in text.splitlines()]
    return {name: None if value == _UNLIMITED else int(value) for name, _, value in pairs if name and _is_value(value)}


def _is_value(text: str) -> bool:
    return text == _UNLIMITED or (text.isascii() and text.isdecimal())


def regions(capacity: str, card: HostCard, template: str | None) -> tuple[Region, ...]:
    """The card's regions: those that name its PCI address, else the one that the template names; none if there are none.

    Drivers write the domain of an address with four or eight digits, so names are compared and never built.
    """
    known = [Region(name, size) for name, size in values(capacity).items() if size]
    by_address = tuple(region for region in known if card.pci and pci.address(region.name) == card.pci)
    if by_address or template is None:
        return by_address
    try:
        name = filled(template, naming(card))
    except EditsError:
        return ()
    return tuple(region for region in known if region.name == name)


def parts(found: Sequence[Region], limit: int) -> dict[str, int]:
    """What each region is limited to, so that all together are not more than the limit: its part by its size."""
    total = sum(region.capacity for region in found)
    return {region.name: limit * region.capacity // total for region in found}


def lines(limits: Mapping[str, int]) -> str:
    """The text that sets these limits; the runtime writes it line by line."""
    return "\n".join(f"{name} {limit}" for name, limit in limits.items())


def limit_in(text: str, found: Sequence[Region]) -> int | None:
    """The limit of all these regions together; None if one of them has none."""
    all_values = values(text)
    own = [all_values.get(region.name) for region in found]
    known = [value for value in own if value is not None]
    return sum(known) if own and len(known) == len(own) else None
