"""Paths of the host in a container that mounts the host's root elsewhere.

Belongs here: following links as the host would: an absolute link starts at the host's root, not at ours. Never: which file is
searched.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

_MOST_LINKS: Final = 40  # as in the kernel


def seen_from_here(path: str, host: Path) -> Path:
    """Where this file of the host is here; with too many links, the path as it is."""
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
    """These names as they are, then the same files in these folders of the host, if they exist."""
    names = tuple(names)
    paths = [name if name.startswith("/") else f"{folder}/{name}" for name in names for folder in folders]
    there = (str(seen_from_here(path, host)) for path in paths)
    return tuple(dict.fromkeys((*names, *(path for path in there if Path(path).exists()))))
