"""Files as a runtime would find them: those of the host, and those that are only planned.

Belongs here: finding and reading. Never: what is in them.
"""

import glob
from collections.abc import Mapping
from pathlib import Path


class Tree:
    """The host's files, but for those that are planned: with another content, or not there (None)."""

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
        """In the order of their names."""
        # Runtimes find hidden files too; the pattern is absolute, which Path.glob does not take.
        found = {Path(name) for name in glob.glob(pattern, include_hidden=True)}  # noqa: PTH207
        found |= {path for path in self._planned if path.match(pattern)}
        return sorted(path for path in found if self._planned.get(path, b"") is not None)

    def changed_s(self, path: Path) -> float:
        """When it was last changed. A file that was written long ago and moved here just now has changed just now."""
        return path.stat().st_ctime
