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

# Hidden and with an ending of its own, because kubelet reads every other entry of its manifests directory and a runtime its
# drop-ins; beside the file, so that a rename is atomic.
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
    """The host's files. `on_step` is told before and after each single change; tests end the process there."""

    def __init__(self, on_step: Callable[[str], None] = lambda _step: None) -> None:
        self._on_step = on_step

    def read(self, path: str | Path) -> bytes | None:
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None

    def find(self, path: str | Path) -> Found | None:
        try:
            content, status = Path(path).read_bytes(), Path(path).stat()
        except FileNotFoundError:
            return None
        return Found(content, status.st_mode & 0o7777, status.st_uid, status.st_gid)

    def put(self, path: str | Path, content: bytes, *, mode: int, owner: tuple[int, int] | None = None) -> None:
        """Replace the file, or make it. It is on the disk when this returns."""
        path, fresh = Path(path), _fresh(path)
        try:
            self._on_step(f"create {fresh}")
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                half = len(content) // 2
                file.write(content[:half])
                file.flush()
                self._on_step(f"write the rest of {fresh}")
                file.write(content[half:])
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

    def put_like(self, path: str | Path, content: bytes, like: Found | None) -> None:
        """Replace the file, or make it, guarded as the other one is; without one, nothing in it is secret."""
        if like is None:
            self.put(path, content, mode=0o644)
        else:
            self.put(path, content, mode=like.mode, owner=(like.uid, like.gid))

    def put_back(self, path: str | Path, found: Found | None) -> None:
        """The file as it was found, or none where there was none."""
        if found is None:
            self.remove(path)
        else:
            self.put_like(path, found.content, found)

    def remove(self, path: str | Path) -> None:
        """The file, and a half-written one beside it."""
        path = Path(path)
        for victim in (_fresh(path), path):
            if victim.exists() or victim.is_symlink():
                self._on_step(f"remove {victim}")
                victim.unlink()
                _flush(path.parent)
        self._on_step(f"removed {path}")

    def link(self, path: Path, target: str) -> None:
        """Let the path lead to the target from now on; whoever opens it finds the one or the other, never nothing."""
        fresh = _fresh(path)
        fresh.unlink(missing_ok=True)
        self._on_step(f"link {fresh}")
        fresh.symlink_to(target)
        self._on_step(f"rename to {path}")
        fresh.replace(path)
        _flush(path.parent)
        self._on_step(f"renamed to {path}")

    def give(self, path: Path, owner: tuple[int, int]) -> None:
        """Let somebody else have it; only root may give things away."""
        if os.geteuid() == 0:
            os.chown(path, *owner)

    def sweep(self, path: str | Path) -> None:
        """Only the half-written file that a crash has left beside this one."""
        _fresh(path).unlink(missing_ok=True)

    def make_directory(self, path: Path, *, mode: int) -> None:
        """One level: a whole path of directories would be too much to take away again."""
        if not path.is_dir():
            self._on_step(f"make {path}")
            path.mkdir()
            path.chmod(mode)
            _flush(path.parent)
            self._on_step(f"made {path}")

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


def _fresh(path: str | Path) -> Path:
    path = Path(path)
    return path.with_name(_FRESH.format(name=path.name))


def _flush(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
