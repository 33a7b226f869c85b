"""Journal of every change outside our own directory, written before the change, so that any later process can undo it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Kind(StrEnum):
    """The kinds of change there are."""

    DIRECTORY = "directory"  # made, empty
    DEVICE = "device"  # made; value is major:minor
    KERNEL_SETTING = "kernel-setting"  # may be changed; value is that of before
    NETWORK = "network"  # the bridge, its route, and whatever uses them
    NFT_TABLE = "nft-table"  # name is the family; it was not there before


@dataclass(frozen=True, slots=True)
class Change:
    kind: Kind
    name: str
    value: str = ""


class Journal:
    """One line of JSON for each change, in their order."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, kind: Kind, name: str, value: str = "") -> None:
        """Down on disk before the return."""
        with self._file.open("a") as file:
            file.write(json.dumps([kind, name, value]) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def newest_first(self) -> Iterator[Change]:
        """All changes, the last one first; a line that a kill cut short stands for a change that was not made."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        for line in reversed(lines):
            try:
                kind, name, value = json.loads(line)
            except ValueError:
                continue
            yield Change(Kind(kind), name, value)
