"""Configuration files of container runtimes: reading them, with planned changes applied, and their NRI settings.

Belongs here: what is the same for every runtime. Never: how a runtime spells its settings (`containerd.py`, `crio.py`).
"""

import glob
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class UnreadableConfigError(Exception):
    """A runtime's file that cannot be read; the message names it."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One file of a runtime's configuration; a later layer overrides an earlier one."""

    path: Path
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NriSettings:
    """All layers combined. Plugins can connect only if `nri` and `connections` are on."""

    nri: bool
    connections: bool
    validator: bool
    validator_in: Path | None  # the file that decides it
    socket: Path
    files: tuple[Path, ...]
    disabled_in: Path | None = None  # a file that disables NRI in a way that no other file can undo

    @property
    def enforced(self) -> bool:
        """Whether the runtime refuses a container whose required plugin is not connected."""
        return self.nri and self.connections and self.validator


class Tree:
    """The host's files with planned changes: another content, or None for a file that is planned not to exist."""

    def __init__(self, planned: Mapping[Path, bytes | None] | None = None) -> None:
        self._planned = dict(planned or {})

    def read(self, path: Path) -> bytes | None:
        if path in self._planned:
            return self._planned[path]
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def matching(self, pattern: str) -> list[Path]:
        """The files that match, sorted by name."""
        # Runtimes find hidden files too; the pattern is absolute, which Path.glob does not take.
        matches = {Path(name) for name in glob.glob(pattern, include_hidden=True)}  # noqa: PTH207
        matches |= {path for path in self._planned if path.match(pattern)}
        return sorted(path for path in matches if self._planned.get(path, b"") is not None)

    def changed_s(self, path: Path) -> float:
        """When the file last changed; moving an old file into place counts as a change."""
        return path.stat().st_ctime


def parse(path: Path, raw: bytes) -> dict[str, Any]:
    """A TOML file's content. Raises UnreadableConfigError."""
    try:
        return tomllib.loads(raw.decode())
    except ValueError as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise UnreadableConfigError(f"{path} cannot be read: {error}") from error
    except RecursionError:
        raise UnreadableConfigError(f"{path} cannot be read: it is nested too deep") from None


def table(content: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The table at these keys; empty if there is none, or if something else is there."""
    for key in keys:
        inner = content.get(key)
        content = inner if isinstance(inner, Mapping) else {}
    return content
