"""Parses the three outputs of efsmi: JSON, the blocks of `-q`, and the table in all its versions.

Belongs here: reading these texts. Never: running the tool.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from accelshare.vendors.drivers import pci
from accelshare.vendors.drivers.driver import HostCard, Listing, QueryFailed, SkippedDevice, excerpt, listing

TOOLS: Final = ("efsmi",)
TOOL_FOLDERS: Final = ("/usr/bin", "/usr/local/bin", "/usr/local/efsmi")
NOT_HEALTHY: Final = "efsmi reports it as not healthy"

_NONE = frozenset({"", "n/a", "-", "none", "unknown", "xxx"})
# The unit also shows that a size was not cut short; JSON may have a number without a unit, which cannot be cut short.
_SIZE = re.compile(r"([0-9]{1,9})(?:\.[0-9]+)?\s*(?:MiB|MB)")
_UNITLESS_SIZE = re.compile(r"([0-9]{1,9})(?:\.[0-9]+)?(?:\s*(?:MiB|MB))?")
_CELL_SIZE = re.compile(r"(?<![0-9.])([0-9]{1,9})\s*MiB(?![A-Za-z/])")
_DEVICE = re.compile(r"DEV ID\s+([0-9]{1,4})")
_FIRST_CELL = re.compile(r"([0-9]{1,4})\s+(\S.*)")
_SERIAL_CELL = re.compile(r"[0-9.]+\s*%\s+([0-9A-Za-z]{6,32})")
_HEX = re.compile(r"(?:0x)?([0-9A-Fa-f]{1,8})")


def card_id(uuid: str, serial: str, place: str, index: int) -> str:
    """The card's id in gcushare's form GCU-<uuid>; else by its serial number, else by its PCI address."""
    known = next((text for text in (uuid, serial) if text.lower() not in _NONE), place or str(index))
    return known if known.startswith("GCU-") else f"GCU-{known}"


def with_distinct_ids(cards: Iterable[HostCard]) -> list[HostCard]:
    """Virtual functions of one card share its serial number; their index makes the ids distinct."""
    cards = list(cards)
    ids = Counter(card.id for card in cards)
    return [replace(card, id=f"{card.id}-{card.index}") if ids[card.id] > 1 else card for card in cards]


def parse_json(text: str) -> Listing:
    """The cards of `efsmi -q --json-format`; QueryFailed if it is no such answer."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise QueryFailed(f"printed {excerpt(text)}; it must be JSON ({type(error).__name__})") from error
    devices = answer.get("devices") if isinstance(answer, dict) else None
    if not isinstance(devices, list):
        raise QueryFailed(f"printed {excerpt(text)}; it must be JSON with a list of devices")
    blocks = []
    for device in devices:
        if not isinstance(device, dict):
            raise QueryFailed(f"has a device {excerpt(str(device))}; it must be an object")
        blocks.append((device.get("id"), dict(_flat(device))))
    return _from_blocks(blocks, _UNITLESS_SIZE)


def _flat(block: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys of a device and of its parts (`Device Info`, `PCIe Info`, …), which have no name twice but for speeds."""
    for key, value in block.items():
        if isinstance(value, dict):
            yield from ((name, str(part)) for name, part in value.items() if not isinstance(part, dict | list))
        elif not isinstance(value, list):
            yield key, str(value)


def parse_query(text: str) -> Listing:
    """The cards of `efsmi -q`; QueryFailed if it has no block of a device."""
    blocks: list[tuple[int, dict[str, str]]] = []
    for line in map(str.strip, text.splitlines()):
        device = _DEVICE.fullmatch(line)
        key, colon, value = line.partition(":")
        if device:
            blocks.append((int(device[1]), {}))
        elif colon and blocks:
            blocks[-1][1].setdefault(key.strip(), value.strip())
    if not blocks:
        raise QueryFailed(f"printed {excerpt(text)}; it must be blocks that begin with DEV ID")
    return _from_blocks(blocks, _SIZE)


def _from_blocks(blocks: Iterable[tuple[Any, Mapping[str, str]]], size_form: re.Pattern[str]) -> Listing:
    cards: list[HostCard] = []
    skipped: list[SkippedDevice] = []
    for number, values in blocks:
        if isinstance(number, bool) or not re.fullmatch(r"[0-9]{1,4}", str(number)):
            skipped.append(SkippedDevice(None, f"its id is {excerpt(str(number))}; it must be a number"))
            continue
        index = int(number)
        size_text = values.get("Total Size", values.get("Mem Size", ""))
        size = size_form.fullmatch(size_text)
        if size is None:
            skipped.append(SkippedDevice(index, f"Total Size is {excerpt(size_text)}; it must be a number of MiB"))
            continue
        place = _place(values)
        health = values.get("Health", "True")  # an answer about memory alone has no health
        healthy = health.lower() == "true"
        cards.append(
            HostCard(
                index=index,
                id=card_id(values.get("Dev UUID", ""), values.get("Dev SN", ""), place, index),
                memory_mib=int(size[1]),
                model=values.get("Dev Name", ""),
                pci=place,
                healthy=healthy,
                problem="" if healthy else NOT_HEALTHY,
            )
        )
    return listing(with_distinct_ids(cards), skipped)


def _place(values: Mapping[str, str]) -> str:
    parts = [_HEX.fullmatch(values.get(key, "")) for key in ("Domain", "Bus", "Dev", "Func")]
    numbers = [int(part[1], 16) for part in parts if part]
    # Through the same reading as an address in text, so that an impossible number is no address.
    return pci.address(pci.format_address(*numbers)) if len(numbers) == 4 else ""


def parse_table(text: str) -> Listing:
    """The cards of the plain table: a line with number, name and bus, then one with memory; QueryFailed if it is no such table.

    Generations differ in the second line (`39 C  Sleep  105W  300W`, `-  Sleep  -`, `34℃  LP0  N/A`) and not in the cells used.
    """
    cards: list[HostCard] = []
    skipped: list[SkippedDevice] = []
    seen_header = False
    first: tuple[int, str, str] | None = None
    for line in map(str.strip, text.splitlines()):
        if not (line.startswith("|") and line.endswith("|") and len(line) > 1):
            continue  # also a line that was cut short
        cells = [cell.strip() for cell in line[1:-1].split("|")]
        head = _FIRST_CELL.fullmatch(cells[0])
        place = pci.address(cells[2]) if len(cells) == 3 else ""
        if len(cells) == 3 and cells[0].startswith("DEV") and cells[2].startswith("BUS-ID"):
            seen_header = True
        elif seen_header and first is None and head and place:
            first = (int(head[1]), head[2], place)
        elif first is not None:
            index, model, place = first
            first = None
            size = _CELL_SIZE.match(cells[1]) if len(cells) == 3 else None
            if size is None:
                skipped.append(
                    SkippedDevice(index, f"efsmi printed {excerpt(line)}; its second cell must begin with a size in MiB")
                )
                continue
            serial = _SERIAL_CELL.fullmatch(cells[2])
            id = card_id("", serial[1] if serial else "", place, index)
            cards.append(HostCard(index, id, int(size[1]), model=model, pci=place))
    if not seen_header:
        raise QueryFailed(f"printed {excerpt(text)}; it must be a table with DEV, NAME and BUS-ID")
    if first is not None:
        skipped.append(SkippedDevice(first[0], "the table ends before its memory"))
    return listing(with_distinct_ids(cards), skipped)
