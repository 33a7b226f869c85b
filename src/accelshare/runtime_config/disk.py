"""Files that are replaced whole or not at all, so that a crash at any moment leaves one content or the other.

Belongs here: reading, replacing, removing. Never: which file, and why.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Hidden and with an ending of its own, so that no runtime takes it for a drop-in; beside the file, so that a rename is atomic.
_FRESH: Final = ".{name}.accelshare"


@dataclass(frozen=True, slots=True)
class Found:
    """A file as it is: content, mode and owner."""

    content: bytes
    mode: int
    uid: int
    gid: int

    @property
    def sha256(self) -> str:
        return sha256(self.content)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Disk:
    """The host's files. `on_step` is told before each single change; tests end the process there."""

    def __init__(self, on_step: Callable[[str], None] = lambda _step: None) -> None:
        self._on_step = on_step

    def find(self, path: Path) -> Found | None:
        try:
            content, status = path.read_bytes(), path.stat()
        except FileNotFoundError:
            return None
        return Found(content, status.st_mode & 0o7777, status.st_uid, status.st_gid)

    def put(self, path: Path, content: bytes, *, mode: int, owner: tuple[int, int] | None = None) -> None:
        """Replace the file, or make it. It is on the disk when this returns."""
        fresh = _fresh(path)
        self._on_step(f"create {fresh}")
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(descriptor, mode)
                if owner is not None and os.geteuid() == 0:  # nobody else may give files away
                    os.fchown(descriptor, *owner)
                os.fsync(descriptor)
            self._on_step(f"rename to {path}")
            fresh.replace(path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        _flush(path.parent)
        self._on_step(f"renamed to {path}")

    def remove(self, path: Path) -> None:
        """The file, and a half-written one beside it."""
        for victim in (_fresh(path), path):
            if victim.exists():
                self._on_step(f"remove {victim}")
                victim.unlink()
                _flush(path.parent)

    def sweep(self, path: Path) -> None:
        """Only the half-written file that a crash has left beside this one."""
        _fresh(path).unlink(missing_ok=True)

    def make_directory(self, path: Path, *, mode: int) -> None:
        """One level: a whole path of directories would be too much to take away again."""
        if not path.is_dir():
            self._on_step(f"make {path}")
            path.mkdir()
            path.chmod(mode)
            _flush(path.parent)

    def remove_directory(self, path: Path) -> None:
        """If it is empty."""
        self._on_step(f"remove {path}")
        with contextlib.suppress(OSError):
            path.rmdir()

    @contextlib.contextmanager
    def locked(self, directory: Path) -> Iterator[None]:
        """One of us at a time. The lock is on the directory itself, so that there is no lock file to forget."""
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)


def _fresh(path: Path) -> Path:
    return path.with_name(_FRESH.format(name=path.name))


def _flush(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
