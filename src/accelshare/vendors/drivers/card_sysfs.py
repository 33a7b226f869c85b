"""Finds cards in sysfs: PCI devices of a kernel driver, with their memory, and their names in /dev/dri.

Belongs here: reading sysfs and the root group's `dmem.capacity`. It blocks; the caller runs it on a thread. Never: any vendor.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from accelshare.vendors.drivers import pci
from accelshare.vendors.drivers.driver import HostCard, Listing, NotInstalled, SkippedDevice, excerpt, listing
from accelshare.vendors.profile import SysfsRules

_SYS: Final = "/sys/"
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_CARD_NODE: Final = re.compile(r"card([0-9]{1,4})")
_RENDER_NODE: Final = re.compile(r"renderD([0-9]{1,4})")
_LONGEST_FILE: Final = 64 * 1024
_BYTES_PER_MIB: Final = 2**20
DMEM_CAPACITY: Final = "fs/cgroup/dmem.capacity"


def read_sysfs(sys_root: Path, rules: SysfsRules, *, memory_mib: int | None = None, model: str = "") -> Listing:
    """The cards that the profile's glob finds; `memory_mib` and `model` are of cards that do not give their own."""
    folders = _device_folders(sys_root, rules.devices)
    if not folders:
        raise NotInstalled(f"no PCI device matches {rules.devices}")
    dmem = dmem_capacity(sys_root) if rules.dmem else {}
    cards: list[HostCard] = []
    skipped: list[SkippedDevice] = []
    for place, (address, folder) in enumerate(sorted(folders.items())):
        card_node, render_node = drm_nodes(sys_root, address)
        number = _CARD_NODE.fullmatch(card_node)
        index = int(number[1]) if number else place
        try:
            memory = _memory_mib(folder, rules, dmem.get(address), memory_mib)
        except ValueError as error:
            skipped.append(SkippedDevice(index, f"{address}: {error}"))
            continue
        cards.append(
            HostCard(
                index=index,
                id=_line(folder, rules.id_file) or address,
                memory_mib=memory or 0,
                minor=index,
                model=_line(folder, rules.model_file) or model,
                numa=pci.numa(sys_root, address),
                pci=address,
                card_node=card_node,
                render_node=render_node,
                measured=memory is not None,
            )
        )
    return listing(cards, skipped)


def drm_nodes(sys_root: Path, address: str) -> tuple[str, str]:
    """The names of this device in /dev/dri: its card node and its render node; empty if it has none."""
    try:
        names = sorted(entry.name for entry in (pci.folder(sys_root, address) / "drm").iterdir()) if address else []
    except OSError:
        names = []
    card = next((name for name in names if _CARD_NODE.fullmatch(name)), "")
    return card, next((name for name in names if _RENDER_NODE.fullmatch(name)), "")


def dmem_capacity(sys_root: Path) -> dict[str, int]:
    """By PCI address: the bytes of all memory regions that the kernel's cgroup controller dmem counts."""
    try:
        with (sys_root / DMEM_CAPACITY).open(encoding="ascii", errors="replace") as file:
            text = file.read(_LONGEST_FILE)
    except OSError:
        return {}
    found = Counter[str]()
    for line in text.splitlines():
        region, _, size = line.strip().rpartition(" ")
        # The domain has four digits in regions of DRM drivers and may have eight in others; slashes stand around the address.
        address = next((pci.address(part) for part in region.split("/") if pci.address(part)), "")
        if address and size.isascii() and size.isdigit() and len(size) <= 18:
            found[address] += int(size)
    return dict(found)


def _device_folders(sys_root: Path, glob: str) -> dict[str, Path]:
    """By PCI address: the folder of each device that matches. Links are followed to the device, which has its address as name."""
    found: dict[str, Path] = {}
    for path in _matching(sys_root, glob):
        try:
            name = path.resolve().name
        except (OSError, RuntimeError):  # a loop of links
            continue
        if _ADDRESS.fullmatch(name):
            found.setdefault(name, path)
    return found


def _matching(sys_root: Path, glob: str) -> Iterator[Path]:
    try:
        yield from sys_root.glob(glob.removeprefix(_SYS))
    except OSError:
        return


def _memory_mib(folder: Path, rules: SysfsRules, dmem_bytes: int | None, otherwise: int | None) -> int | None:
    """From the device's own file, else from dmem, else as the profile gives it; None if nothing does."""
    text = _line(folder, rules.memory_file)
    if text:
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise ValueError(f"{rules.memory_file} is {excerpt(text)}; it must be a number of bytes")
        return int(text) // _BYTES_PER_MIB
    return otherwise if dmem_bytes is None else dmem_bytes // _BYTES_PER_MIB


def _line(folder: Path, name: str | None) -> str:
    """The first line of a file in the device's folder; empty if there is none."""
    if name is None:
        return ""
    try:
        with (folder / name).open(encoding="utf-8", errors="replace") as file:
            lines = file.read(256).strip().splitlines()
    except OSError:
        return ""
    return lines[0].strip() if lines and lines[0].isprintable() else ""
