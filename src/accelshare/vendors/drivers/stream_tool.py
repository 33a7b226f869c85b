"""Parses the three outputs of `stc-smi`: each board in full (-q), a table of values (csv), and the list of boards.

Belongs here: from text to boards; any other text is an error. Pure. Never: running the tool.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from accelshare.vendors.drivers import pci
from accelshare.vendors.drivers.driver import QueryFailed, excerpt

QUERY: Final = ("-q",)
CSV: Final = ("--query-npu=index,name,serial,memory.total", "--format=csv")
LIST: Final = ("--list",)

_BOARD = re.compile(r"\s*NPU:\s*([0-9]{1,6})\s*")
_CLUSTER = re.compile(r"\s*Cluster\s+([0-9]+):\s*")
_STATUS = re.compile(r"(?:^|\s)Status:\s*(\S+)")
_CLUSTER_MEMORY = re.compile(r"Memory Used\s*/\s*Total:\s*\S+\s*/\s*(\S+)")
_NUMBER = re.compile(r"[0-9]{1,6}")
_FIELD_NAME = re.compile(r"[A-Z][A-Za-z ]*")
_LISTED = re.compile(r"(\S+)\s+BUS-ID:\s*(\S+)(?:\s*\((\S*)\))?")  # of a line without space around it
_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([KMGT]?)i?B?", re.IGNORECASE)
_MIB: Final = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class Board:
    """One NPU as the tool reports it; values that an output does not have are empty."""

    index: int
    model: str = ""
    serial: str = ""
    memory_mib: int = 0
    pci: str = ""
    status: str = ""
    cluster_count: int = 0
    clusters: tuple[str, ...] = ()  # the status of each, by number


def from_query(text: str) -> list[Board]:
    """The boards of `stc-smi -q`."""
    blocks: list[tuple[int, list[str]]] = []
    for line in text.splitlines():
        begins = _BOARD.fullmatch(line)
        if begins:
            blocks.append((int(begins[1]), []))
        elif blocks:
            blocks[-1][1].append(line)
    if text.strip() and not blocks:
        raise QueryFailed(f"no line 'NPU: n' in its answer, which begins with {excerpt(text)}")
    return [_board(index, lines) for index, lines in blocks]


def from_csv(text: str) -> list[Board]:
    """The boards of a csv query, by the names in its header."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    head = [cell.partition("[")[0].rstrip() if cell.endswith("]") else cell for cell in rows[0]] if rows else []
    if "index" not in head:
        raise QueryFailed(f"no header with 'index' in its answer, which begins with {excerpt(text)}")
    return list(_csv_boards(head, rows[1:]))


def from_list(text: str) -> list[Board]:
    """The boards of `stc-smi --list`."""
    boards: list[Board] = []
    for line in text.splitlines():
        begins, reported = _BOARD.fullmatch(line), _LISTED.fullmatch(line.strip())
        if begins:
            boards.append(Board(int(begins[1])))
        elif reported and boards:
            boards[-1] = replace(boards[-1], model=reported[1], serial=reported[3] or "", pci=_address(reported[2]))
    if text.strip() and not boards:
        raise QueryFailed(f"no line 'NPU: n' in its answer, which begins with {excerpt(text)}")
    return boards


def size_mib(text: str) -> int:
    """A size such as `16384 MiB`, `4.00G` or `16384` (MiB) in MiB; 0 if it is none."""
    found = _SIZE.fullmatch(text.strip())
    return round(float(found[1]) * _MIB[found[2].upper()]) if found else 0


def _board(index: int, lines: list[str]) -> Board:
    fields: dict[str, str] = {}
    states: list[str] = []
    memory_mib, in_clusters = 0, False
    for line in lines:
        in_clusters = in_clusters or _CLUSTER.fullmatch(line) is not None
        if not in_clusters:
            name, colon, value = (part.strip() for part in line.partition(":"))
            if colon and _FIELD_NAME.fullmatch(name):
                fields.setdefault(name, value)
            continue
        states.extend(_STATUS.findall(line))
        memory_mib += sum(map(size_mib, _CLUSTER_MEMORY.findall(line)))
    return Board(
        index=index,
        model=fields.get("Product Name", ""),
        serial=fields.get("Sn", ""),
        memory_mib=memory_mib,
        pci=_address(fields.get("Bus", "")),
        status=fields.get("Status", ""),
        cluster_count=int(fields["Cluster count"]) if _NUMBER.fullmatch(fields.get("Cluster count", "")) else 0,
        clusters=tuple(states),
    )


def _csv_boards(head: list[str], rows: list[list[str]]) -> Iterator[Board]:
    for row in rows:
        reported = dict(zip(head, row, strict=False))
        if len(row) != len(head) or not _NUMBER.fullmatch(reported["index"]):
            raise QueryFailed(f"the line {excerpt(', '.join(row))} does not fit its header {', '.join(head)}")
        yield Board(
            int(reported["index"]),
            model=reported.get("name", ""),
            serial=reported.get("serial", ""),
            memory_mib=size_mib(reported.get("memory.total", "")),
        )


def _address(text: str) -> str:
    # The list has 0:65:00.0 for the 0000:65:00.0 of the query.
    return pci.address(text.strip().rjust(12, "0")) if text.strip() else ""
