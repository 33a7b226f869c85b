"""Parses the two outputs of xpu_smi: the table, by its header, and the lines of `-m`, one for each device.

Belongs here: reading these texts, and recognizing Intel's tool of the same name. Never: running the tool.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from accelshare.vendors.drivers import pci
from accelshare.vendors.drivers.driver import HostCard, Listing, NotInstalled, QueryFailed, SkippedDevice, excerpt, listing

TOOLS: Final = ("xpu_smi", "xpu-smi")
TOOL_FOLDERS: Final = ("/usr/local/xpu/bin", "/usr/local/bin", "/usr/bin")
PF_IS_NO_CARD: Final = "it is a physical function that only carries virtual ones (SR-IOV)"

_COLUMNS = ("DevID", "PCI Addr", "Model", "SN", "State", "Memory")
_NUMBER = re.compile(r"[0-9]{1,6}")
_INODE = re.compile(r"/dev/xpu([0-9]{1,5})")
# 0 / 8064 MB, and 0 / 16384MB without the space; the tool's MB are MiB
_MEMORY = re.compile(r"([0-9]{1,9})\s*(?:Mi?B)?\s*/\s*([0-9]{1,9})\s*Mi?B")
_INTEL = re.compile(r"\bintel\b|\bDevice ID\s*\|\s*Device Information\b", re.IGNORECASE)
_RANK = "-chip"
_NO_SERIAL = frozenset({"", "n/a", "-", "none", "unknown"})

# Positions in a line of -m, as several public readers and a captured P800 have them. The state's position is not known.
_PCI, _DEV_ID, _SERIAL, _USED, _TOTAL, _MODEL, _FEWEST = 0, 2, 3, 17, 18, 21, 22
_QUOTED = re.compile(r'"[^"]*"|[^\s"]+')


def board_id(serial: str, place: str, minor: int) -> str:
    """The board's serial number, else its PCI address, else the number of its device file. No device number: that changes."""
    return serial if serial.lower() not in _NO_SERIAL else place or f"xpu{minor}"


def with_distinct_ids(cards: Iterable[HostCard]) -> list[HostCard]:
    """Cards with an id of their own: the board's where it has one card, else with the card's rank on the board (K200: two).

    Earlier versions wrote the board's id and the device number; a pod's record may still have it.
    """
    cards = sorted(cards, key=lambda card: (card.minor or 0, card.index))
    on_board, ranks = Counter(card.id for card in cards), Counter[str]()
    named = []
    for card in cards:
        id = f"{card.id}{_RANK}{ranks[card.id]}" if on_board[card.id] > 1 else card.id
        ranks[card.id] += 1
        named.append(replace(card, id=id, former_ids=(f"{card.id}-{card.index}",)))
    return named


class KnownRanks:
    """Ranks as they were first seen. If one card of a board fails, the other keeps its id."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, int | None], str] = {}

    def kept(self, found: Listing) -> Listing:
        cards = [replace(card, id=self._ids.setdefault((_board(card), card.minor), card.id)) for card in found.cards]
        return listing(cards, found.skipped)


def _board(card: HostCard) -> str:
    board, rank, number = card.id.rpartition(_RANK)
    return board if rank and number.isdecimal() else card.id


def refuse_intel(text: str) -> None:
    """Intel ships an xpu-smi of its own, for its GPUs."""
    if _INTEL.search(text):
        raise NotInstalled(
            f"is Intel's tool of that name, it printed {excerpt(text)}; Kunlun's prints a table with DevID and Memory"
        )


def parse_table(text: str) -> Listing:
    """The cards of the DEVICES table; QueryFailed if there is none."""
    refuse_intel(text)
    columns: dict[str, int] = {}
    width = 0  # of the header; a name that occurs twice is one column
    cards: list[HostCard] = []
    skipped: list[SkippedDevice] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("PROCESSES"):
            break  # its rows begin with a DevID too
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not columns:
            names = {name: position for position, name in enumerate(cells)}
            columns = names if all(cells.count(column) == 1 for column in _COLUMNS) else {}
            width = len(cells)
        elif len(cells) == width:
            _read_row({name: cells[position] for name, position in columns.items()}, cards, skipped)
        else:
            skipped.append(SkippedDevice(None, f"xpu_smi printed {excerpt(line)}; it must be {width} cells"))
    if not columns:
        raise QueryFailed(f"printed {excerpt(text)}; it must be a table with {', '.join(_COLUMNS)}")
    return listing(with_distinct_ids(cards), skipped)


def _read_row(cell: dict[str, str], cards: list[HostCard], skipped: list[SkippedDevice]) -> None:
    memory = _MEMORY.fullmatch(cell["Memory"])
    if not _NUMBER.fullmatch(cell["DevID"]):
        skipped.append(SkippedDevice(None, f"DevID is {cell['DevID']!r}; it must be a number"))
        return
    index = int(cell["DevID"])
    if cell["Model"].endswith("-PF"):
        skipped.append(SkippedDevice(index, PF_IS_NO_CARD))
        return
    if memory is None:
        skipped.append(SkippedDevice(index, f"Memory is {cell['Memory']!r}; it must be like 0 / 8064 MB"))
        return
    node = _INODE.fullmatch(cell.get("INODE", ""))
    minor = int(node[1]) if node else index
    healthy = cell["State"] == "N"
    cards.append(
        HostCard(
            index=index,
            id=board_id(cell["SN"], pci.address(cell["PCI Addr"]), minor),
            memory_mib=int(memory[2]),
            used_mib=int(memory[1]),
            minor=minor,
            model=cell["Model"],
            pci=pci.address(cell["PCI Addr"]),
            healthy=healthy,
            problem="" if healthy else f"xpu_smi shows state {cell['State']!r}",
        )
    )


def parse_lines(text: str) -> Listing:
    """The cards of `xpu_smi -m`; QueryFailed if no line is one of it. An empty answer is no cards."""
    refuse_intel(text)
    cards: list[HostCard] = []
    skipped: list[SkippedDevice] = []
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    for line in lines:
        fields = _QUOTED.findall(line)
        complete = len(fields) >= _FEWEST and line.count('"') % 2 == 0 and len(fields[_MODEL]) >= 2 and fields[_MODEL][0] == '"'
        if not complete or not pci.address(fields[_PCI]) or not _NUMBER.fullmatch(fields[_DEV_ID]):
            skipped.append(SkippedDevice(None, f"xpu_smi -m printed {excerpt(line)}; it must be at least {_FEWEST} fields"))
            continue
        index = int(fields[_DEV_ID])
        place = pci.address(fields[_PCI])
        model = fields[_MODEL].strip('"')
        if model.endswith("-PF"):
            skipped.append(SkippedDevice(index, PF_IS_NO_CARD))
        elif not re.fullmatch(r"[0-9]{1,9}", fields[_TOTAL]):
            skipped.append(SkippedDevice(index, f"memory is {fields[_TOTAL]!r}; it must be a number of MiB"))
        else:
            total = int(fields[_TOTAL])
            used = int(fields[_USED]) if re.fullmatch(r"[0-9]{1,9}", fields[_USED]) else None
            id = board_id(fields[_SERIAL], place, index)
            cards.append(HostCard(index, id, total, minor=index, model=model, pci=place, used_mib=used))
    if lines and not cards and all(left.index is None for left in skipped):
        raise QueryFailed(f"printed {excerpt(text)}; it must be a line of {_FEWEST} or more fields per device")
    return listing(with_distinct_ids(cards), skipped)
