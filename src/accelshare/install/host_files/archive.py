"""The journal and the backups in one directory of ours, outside of any that others read.

Belongs here: keeping them, bringing a file back, leaving nothing, one of us at a time. Never: deciding what to do.
"""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from accelshare.install.host_files.disk import Disk, Found, sha256
from accelshare.install.host_files.journal import FORMAT, Before, Journal

_RECORD: Final = "record.json"
_BACKUP: Final = ".backup"

Problem = Callable[[str], Exception]  # a room's own error, so that what is raised here leaves it as its own
RecordT = TypeVar("RecordT", bound=Journal[Any])


class Archive(Generic[RecordT]):
    """One room's record and its backups. Backups are named by their content, so that none is overwritten."""

    def __init__(self, directory: Path, disk: Disk, record: type[RecordT], not_understood: Problem) -> None:
        self.directory = directory
        self._disk = disk
        self._type = record
        self._not_understood = not_understood

    def load(self) -> RecordT | None:
        place = self.directory / _RECORD
        content = self._disk.read(place)
        if content is None:
            return None
        try:
            record: RecordT = msgspec.json.decode(content, type=self._type)
        except msgspec.DecodeError as error:
            raise self._not_understood(f"{place} cannot be read: {error}; the backups beside it are whole") from error
        if record.format != FORMAT:
            raise self._not_understood(f"{place} is of another accelshare ({record.accelshare}); use that one")
        return record

    def save(self, record: RecordT) -> None:
        content = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
        self._disk.put(self.directory / _RECORD, content, mode=0o600)

    def keep(self, found: Found | None) -> Before:
        """Put a file's content aside."""
        if found is None:
            return Before()
        place = self._place(found.sha256)
        if self._disk.read(place) != found.content:
            self._disk.put(place, found.content, mode=0o600)
        return Before(found.sha256, found.mode, found.uid, found.gid)

    def content(self, before: Before) -> bytes | None:
        """None if there was no such file."""
        if before.sha256 is None:
            return None
        content = self._disk.read(self._place(before.sha256))
        if content is None or sha256(content) != before.sha256:
            raise self._not_understood(f"the backup {self._place(before.sha256)} is missing or damaged")
        return content

    def is_back(self, path: str, before: Before) -> bool:
        """Whether the file has the content that it had."""
        content = self._disk.read(path)
        return (None if content is None else sha256(content)) == before.sha256

    def put_back(self, path: str, before: Before) -> bool:
        """The file as it was; False if it is so already."""
        if self.is_back(path, before):
            return False
        content = self.content(before)
        self._disk.put_back(path, None if content is None else Found(content, before.mode, before.uid, before.gid))
        return True

    def forget_all_but(self, needed: Collection[str | None]) -> None:
        """Backups that no way back needs any more; the needed ones are named by their hashes."""
        for place in self.directory.glob(f"*{_BACKUP}"):
            if place.name.removesuffix(_BACKUP) not in needed:
                self._disk.remove(place)

    def leave_nothing(self, record: RecordT) -> None:
        """For when all files are back: neither what a crash left beside them, nor directories that we made, nor this one."""
        for file in record.files:
            self._disk.sweep(file.path)
        for directory in reversed(record.made):
            self._disk.remove_directory(Path(directory))
        self.destroy()

    def destroy(self) -> None:
        """Backups first, the record last: what is half destroyed can be destroyed again."""
        if not self.directory.is_dir():
            return
        for place in [*self.directory.glob(f"*{_BACKUP}"), *self.directory.glob(f".*{_BACKUP}.accelshare")]:
            self._disk.remove(place)
        self._disk.remove(self.directory / _RECORD)
        self._disk.remove_directory(self.directory)

    @contextmanager
    def alone(self, problem: Problem, *, make: bool = False) -> Iterator[None]:
        """One of us at a time; the disk's own errors leave in words. A directory made for nothing is removed again."""
        try:
            if make:
                self._disk.make_directory(self.directory, mode=0o700)
            with self._disk.locked(self.directory):
                try:
                    yield
                finally:
                    if make and self.directory.is_dir() and not any(self.directory.iterdir()):
                        self.directory.rmdir()
        except BlockingIOError as error:
            raise problem(f"another accelshare is at work in {self.directory}") from error
        except OSError as error:
            raise problem(f"{error.filename or self.directory}: {os.strerror(error.errno or 0)}") from error

    def _place(self, name: str) -> Path:
        return self.directory / f"{name}{_BACKUP}"
