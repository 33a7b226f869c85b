"""Fake device nodes: each behaves like /dev/null and has the name of a card."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cluster.errors import ClusterError
from cluster.local.journal import Journal, Kind

CARDS_FILE: Final = Path(__file__).parents[1] / "fake-cards.toml"
_NULL: Final = (1, 3)  # the numbers of /dev/null


def fake_cards() -> dict[str, list[str]]:
    """Vendor → the device nodes that its cards would have."""
    return {vendor: list(entry["nodes"]) for vendor, entry in tomllib.loads(CARDS_FILE.read_text()).items()}


def make_node(path: Path, journal: Journal) -> None:
    """Refuses a path that exists: it may be a real card."""
    if os.path.lexists(path):
        raise ClusterError(f"{path} exists already, and may be real")
    journal.write(Kind.DEVICE, str(path), ":".join(map(str, _NULL)))
    missing = [directory for directory in path.parents if not directory.exists()]
    for directory in reversed(missing):
        journal.write(Kind.DIRECTORY, str(directory))
        directory.mkdir()
    _make(path)


def make_fake_cards(journal: Journal, say: Callable[[str], None]) -> None:
    """Every vendor's, except those of which this machine has any node already."""
    for vendor, nodes in fake_cards().items():
        if real := [node for node in nodes if os.path.lexists(node)]:
            say(f"no fake cards of {vendor}: {real[0]} exists already")
            continue
        for node in nodes:
            make_node(Path(node), journal)


def make_fake_cards_of(root: Path) -> None:
    """Every vendor's, for a node whose /dev is its own and has this root directory. They are gone with it."""
    for nodes in fake_cards().values():
        for node in nodes:
            path = root / node.removeprefix("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            _make(path)


def remove_node(path: Path, numbers: str) -> None:
    """Only what is still the node that was made."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    made = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    if stat.S_ISCHR(found.st_mode) and made == numbers:
        path.unlink()


def remove_made(path: Path, journal: Journal) -> None:
    """Only what we made according to the journal."""
    for change in journal.newest_first():
        if change.kind is Kind.DEVICE and change.name == str(path):
            remove_node(path, change.value)
            return
    raise ClusterError(f"{path} was not made by the local cluster, so it stays")


def _make(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*_NULL))
    path.chmod(0o666)  # whatever the umask took away
