"""What a runtime's files say about plugins, in words that are the same for every runtime.

Belongs here: the values. Never: how a runtime spells them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class UnreadableError(Exception):
    """A runtime's file that cannot be read; the words name it."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One file of a runtime's configuration; a later one overrules an earlier one."""

    path: Path
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """All layers together. Plugins come only if `nri` and `connections` are on; `validator` makes the runtime insist."""

    nri: bool
    connections: bool
    validator: bool
    validator_in: Path | None  # who had the last word on it
    socket: Path
    files: tuple[Path, ...]
    switched_off_in: Path | None = None  # a file that switches NRI off in a manner that no other file can undo

    @property
    def insists(self) -> bool:
        return self.nri and self.connections and self.validator
