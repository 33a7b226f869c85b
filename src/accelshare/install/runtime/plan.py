"""The files that shall be there.

Belongs here: the plan. Never: the disk, which file says what.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file as it shall be. `ours`: nobody else has a reason to write it."""

    path: Path
    content: bytes
    ours: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The files in the order of writing: ours, then what makes the runtime read it. No file: all is as wished without us."""

    files: tuple[PlannedFile, ...]
    notices: tuple[str, ...] = ()
