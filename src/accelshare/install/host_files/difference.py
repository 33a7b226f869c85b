"""The difference between two contents of a file, in words that people read.

Belongs here: that text. Never: the disk.
"""

import difflib
from pathlib import Path


def unified(path: str | Path, before: bytes | None, after: bytes | None) -> str:
    """One file's difference, as `diff -u` prints it; nothing if there is none."""
    if before == after:
        return ""
    old, new = ((text or b"").decode(errors="replace").splitlines(keepends=True) for text in (before, after))
    names = ("/dev/null" if before is None else str(path), "/dev/null" if after is None else str(path))
    lines = difflib.unified_diff(old, new, *names)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
