"""Atomic writes of single files: a crash at any moment leaves the old content or the new one.

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

# Hidden and with its own suffix, because kubelet reads every other entry of its manifests directory and a runtime its drop-ins;
# in the same directory, so that the rename is atomic.
_TEMPORARY: Final = ".{name}.accelshare"


@dataclass(frozen=True, slots=True)
class HostFile:
    """A file on the host: content, mode and owner."""

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
    """The host's files. `on_step` is called before and after each single change; tests end the process there."""

    def __init__(self, on_step: Callable[[str], None] = lambda _step: None) -> None:
        self._on_step = on_step

    def read(self, path: str | Path) -> bytes | None:
        """The content; None if the file does not exist."""
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None

    def find(self, path: str | Path) -> HostFile | None:
        """The whole file; None if it does not exist."""
        try:
            content, status = Path(path).read_bytes(), Path(path).stat()
        except FileNotFoundError:
            return None
        return HostFile(content, status.st_mode & 0o7777, status.st_uid, status.st_gid)

    def put(self, path: str | Path, content: bytes, *, mode: int, owner: tuple[int, int] | None = None) -> None:
        """Replace or create the file. It is synced to the disk when this returns."""
        path, temporary = Path(path), _temporary(path)
        try:
            self._on_step(f"create {temporary}")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                half = len(content) // 2
                file.write(content[:half])
                file.flush()
                self._on_step(f"write the rest of {temporary}")
                file.write(content[half:])
                file.flush()
                os.fchmod(descriptor, mode)
                if owner is not None and os.geteuid() == 0:  # only root may change owners
                    os.fchown(descriptor, *owner)
                os.fsync(descriptor)
            self._on_step(f"rename to {path}")
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        _flush(path.parent)
        self._on_step(f"renamed to {path}")

    def put_like(self, path: str | Path, content: bytes, like: HostFile | None) -> None:
        """Replace or create the file with the mode and owner of another one; without one, everybody may read it."""
        if like is None:
            self.put(path, content, mode=0o644)
        else:
            self.put(path, content, mode=like.mode, owner=(like.uid, like.gid))

    def put_back(self, path: str | Path, former: HostFile | None) -> None:
        """Restore the file; None removes it."""
        if former is None:
            self.remove(path)
        else:
            self.put_like(path, former.content, former)

    def remove(self, path: str | Path) -> None:
        """Remove the file, and the temporary file of an interrupted write."""
        path = Path(path)
        for each in (_temporary(path), path):
            if each.exists() or each.is_symlink():
                self._on_step(f"remove {each}")
                each.unlink()
                _flush(path.parent)
        self._on_step(f"removed {path}")

    def link(self, path: Path, target: str) -> None:
        """Replace or create a symbolic link; a reader finds the old target or the new one."""
        temporary = _temporary(path)
        temporary.unlink(missing_ok=True)
        self._on_step(f"link {temporary}")
        temporary.symlink_to(target)
        self._on_step(f"rename to {path}")
        temporary.replace(path)
        _flush(path.parent)
        self._on_step(f"renamed to {path}")

    def chown(self, path: Path, owner: tuple[int, int]) -> None:
        """Change the owner, if this process is root."""
        if os.geteuid() == 0:
            os.chown(path, *owner)

    def remove_temporary(self, path: str | Path) -> None:
        """Remove the temporary file of an interrupted write, if there is one."""
        _temporary(path).unlink(missing_ok=True)

    def make_directory(self, path: Path, *, mode: int) -> None:
        """Create one level of directory; more levels could not be removed again safely."""
        if not path.is_dir():
            self._on_step(f"create {path}")
            path.mkdir()
            path.chmod(mode)
            _flush(path.parent)
            self._on_step(f"created {path}")

    def remove_directory(self, path: Path) -> None:
        """Remove the directory if it is empty."""
        self._on_step(f"remove {path}")
        with contextlib.suppress(OSError):
            path.rmdir()

    @contextlib.contextmanager
    def locked(self, directory: Path) -> Iterator[None]:
        """Hold an exclusive lock on the directory itself, so that no lock file remains."""
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)


def _temporary(path: str | Path) -> Path:
    path = Path(path)
    return path.with_name(_TEMPORARY.format(name=path.name))


def _flush(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
