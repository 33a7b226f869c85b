"""A path of the host, seen from a container that has the host's root somewhere else.

Belongs here: following links as the host itself would, where an absolute one starts at its root and not at ours. Never: what is
looked for.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

_MOST_LINKS: Final = 40  # as the kernel's own


def seen_from_here(path: str, host: Path) -> Path:
    """Where this file of the host is; a link too many, and the path is taken as it is."""
    plain = host / path.removeprefix("/")
    if host == Path("/"):
        return plain
    there, left, links = host, [*reversed(Path(path.removeprefix("/")).parts)], 0
    while left:
        part = left.pop()
        if part == "..":
            there = there.parent if there != host else host
            continue
        step = there / part
        if not step.is_symlink():
            there = step
            continue
        links += 1
        if links > _MOST_LINKS:
            return plain
        target = step.readlink()
        if target.is_absolute():
            there, target = host, target.relative_to("/")
        left += reversed(target.parts)
    return there


def candidate_paths(names: Iterable[str], folders: Iterable[str], host: Path) -> tuple[str, ...]:
    """These names as they are, then the same files in these folders of the host, as far as they are there."""
    names = tuple(names)
    paths = [name if name.startswith("/") else f"{folder}/{name}" for name in names for folder in folders]
    there = (str(seen_from_here(path, host)) for path in paths)
    return tuple(dict.fromkeys((*names, *(path for path in there if Path(path).exists()))))
