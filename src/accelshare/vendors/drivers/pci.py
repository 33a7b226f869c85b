"""PCI addresses as Linux writes them, and a device's data in sysfs.

Belongs here: one form for the addresses of every tool. Never: a vendor.
"""

import re
from pathlib import Path
from typing import Final

# Tools print domains of two, four or eight digits, in either case: 00:2e:00.0, 0000:86:00.0, 00000000:3B:00.0.
ADDRESS: Final = re.compile(r"(?<![0-9A-Fa-f:.])([0-9A-Fa-f]{2,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])(?![0-9A-Fa-f:.])")


def address(text: str) -> str:
    """The first address in the text, spelled as in sysfs (0000:3b:00.0); empty if there is none."""
    found = ADDRESS.search(text)
    return format_address(*(int(part, 16) for part in found.groups())) if found else ""


def format_address(domain: int, bus: int, device: int, function: int) -> str:
    """An address from its numbers."""
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"


def folder(sys_root: Path, pci: str) -> Path:
    """Where sysfs has this device."""
    return sys_root / "bus" / "pci" / "devices" / pci


def numa(sys_root: Path, pci: str) -> int | None:
    """The NUMA node of this device; None if there is none, or it is not known."""
    if not pci:
        return None
    try:
        node = int((folder(sys_root, pci) / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def has_vendor(sys_root: Path, vendor: str) -> bool | None:
    """Whether a device of this PCI vendor (four hex digits) exists; None if sysfs cannot be read."""
    try:
        devices = list((sys_root / "bus" / "pci" / "devices").iterdir())
    except OSError:
        return None
    return any(_vendor(device) == vendor for device in devices)


def _vendor(device: Path) -> str:
    try:
        return (device / "vendor").read_text(encoding="ascii").strip().removeprefix("0x").lower()
    except (OSError, ValueError):
        return ""
