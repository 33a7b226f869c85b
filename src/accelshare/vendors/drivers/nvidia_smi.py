"""Parses the CSV of nvidia-smi: the fallback if NVML cannot be loaded, as in a container that has only the tool.

Belongs here: the fields of the query, and reading the answer. Never: running the tool.
"""

import re
from pathlib import Path
from typing import Final

from accelshare.vendors.drivers import pci
from accelshare.vendors.drivers.driver import HostCard, Listing, QueryFailed, SkippedDevice, excerpt, listing
from accelshare.vendors.drivers.nvidia_nvml import MIG_IS_ON

TOOLS: Final = ("nvidia-smi",)

# The name is last: it is the only field that may hold a comma. Drivers older than MIG refuse the field, so there are two lists.
FIELDS: Final = ("index", "uuid", "memory.total", "pci.bus_id", "mig.mode.current", "name")
OLD_FIELDS: Final = ("index", "uuid", "memory.total", "pci.bus_id", "name")

_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUMBER = re.compile(r"[0-9]{1,9}")
_MEMORY = re.compile(r"[0-9]{1,9}|\[?N/A\]?|\[Not Supported\]")  # the latter of cards that share the host's memory
# If a card is lost, the tool prints this and fails, but still lists the other cards.
_LOST = "Unable to determine the device handle"
_NONE = "No devices were found"
_MINOR = re.compile(r"^Device Minor:\s*([0-9]{1,5})\s*$", re.MULTILINE)


def arguments(fields: tuple[str, ...]) -> tuple[str, ...]:
    """The tool's arguments to query these fields."""
    return (f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")


def refuses_fields(text: str) -> bool:
    """Whether this driver does not know one of the fields."""
    return "is not a valid field to query" in text


def reports_lost_cards(text: str) -> bool:
    return _LOST in text


def parse_csv(text: str, fields: tuple[str, ...]) -> Listing:
    """The cards of a CSV answer; QueryFailed if it is no such answer."""
    cards: list[HostCard] = []
    skipped: list[SkippedDevice] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        values = dict(zip(fields, (value.strip() for value in line.split(",", len(fields) - 1)), strict=False))
        if _LOST in line:
            skipped.append(SkippedDevice(None, line))
        elif len(values) < len(fields) or not _NUMBER.fullmatch(values["index"]):
            skipped.append(SkippedDevice(None, f"nvidia-smi printed {excerpt(line)}; it must be {len(fields)} values"))
        elif values.get("mig.mode.current") == "Enabled":
            skipped.append(SkippedDevice(int(values["index"]), MIG_IS_ON))
        elif not _UUID.fullmatch(values["uuid"]) or not _MEMORY.fullmatch(values["memory.total"]):
            skipped.append(
                SkippedDevice(int(values["index"]), f"nvidia-smi printed {excerpt(line)}; uuid or memory.total is unreadable")
            )
        else:
            measured = values["memory.total"].isdecimal()
            cards.append(
                HostCard(
                    index=int(values["index"]),
                    id=values["uuid"],
                    memory_mib=int(values["memory.total"]) if measured else 0,
                    measured=measured,
                    model=values["name"],
                    pci=pci.address(values["pci.bus_id"]),
                )
            )
    understood = cards or any(left.index is not None or _LOST in left.why for left in skipped)
    if not understood and _NONE not in text:
        raise QueryFailed(f"printed {excerpt(text)}; it must be lines of {', '.join(fields)}")
    return listing(cards, skipped if understood else ())


def minor(proc_root: Path, place: str) -> int | None:
    """The number in /dev/nvidia<minor>, which the CSV does not have; None if the kernel does not have it. It is not the index."""
    if not place:
        return None
    try:
        text = (proc_root / "driver" / "nvidia" / "gpus" / place / "information").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = _MINOR.search(text)
    return int(found[1]) if found else None
