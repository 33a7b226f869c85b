"""The files that shall be there, and the difference in words that people read.

Belongs here: the plan. Never: the disk, which file says what.
"""

import difflib
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


def unified(path: Path, before: bytes | None, after: bytes | None) -> str:
    """One file's difference, as `diff -u` prints it; nothing if there is none."""
    if before == after:
        return ""
    old, new = ((text or b"").decode(errors="replace").splitlines(keepends=True) for text in (before, after))
    names = ("/dev/null" if before is None else str(path), "/dev/null" if after is None else str(path))
    lines = difflib.unified_diff(old, new, *names)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
