"""The record of a change and the backups of the changed files, in one directory that only accelshare reads.

The record is written before each change. It is the journal of what is under way and the instruction to undo it.
Belongs here: storing and loading it, saving and restoring one file. Never: deciding what to change (`changes.py`).
"""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

import msgspec

from accelshare.install.errors import InstallError, NotUnderstood
from accelshare.install.host_files.disk import Disk, HostFile, sha256

FORMAT: Final = 2
_RECORD: Final = "record.json"
_BACKUP: Final = ".backup"


class SavedFile(msgspec.Struct, frozen=True):
    """A former state of a file, whose content is in a backup; no hash if the file did not exist."""

    sha256: str | None = None
    mode: int = 0o600
    uid: int = 0
    gid: int = 0


class TrackedFile(msgspec.Struct, frozen=True):
    """One file that accelshare wrote.

    `original` is its state before accelshare, `before` its state before the change under way, `written` the hashes of the
    contents that accelshare gave it, the newest last.
    """

    path: str
    original: SavedFile
    written: list[str] = msgspec.field(default_factory=list)
    before: SavedFile | None = None

    @property
    def latest(self) -> str | None:
        return self.written[-1] if self.written else None

    def knows(self, digest: str | None) -> bool:
        """Whether a content with this hash is the original or from accelshare; anything else is somebody else's."""
        before = self.before.sha256 if self.before is not None else self.original.sha256
        return digest in (self.original.sha256, before, *self.written)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The whole state of one installation on this host."""

    one_hash: ClassVar[bool] = False  # in format 1, `written` of each file is one hash
    state: Literal["applying", "applied", "restoring"]
    files: list[TrackedFile]  # in the order of writing
    made: list[str] = []  # directories that accelshare created
    accelshare: str = ""
    format: int = FORMAT

    def file(self, path: str | Path) -> TrackedFile | None:
        return next((file for file in self.files if file.path == str(path)), None)

    @property
    def unfinished(self) -> str | None:
        """Which change was interrupted, for people; None if none was."""
        if self.state == "applied":
            return None
        what = "an apply" if self.state == "applying" else "a restore"
        return f"{what} was interrupted: `apply` finishes it, `restore` restores the original files"

    @property
    def needed(self) -> frozenset[str | None]:
        """The hashes of the backups that a rollback or a restore needs."""
        return frozenset(saved.sha256 for file in self.files for saved in (file.original, file.before) if saved is not None)


RecordT = TypeVar("RecordT", bound=Record)


def _format_1(record: dict[str, Any], *, one_hash: bool) -> dict[str, Any]:
    """The same in format 1, so that version 0.1 restores the files after a rollback; unchanged if format 1 cannot express it."""
    files = [{**file} for file in record["files"]]
    for file in files if one_hash else ():
        match file["written"]:
            case [digest] if record["state"] == "applying":
                file |= {"written": None, "after": digest}
            case [digest]:
                file |= {"written": digest, "after": None}
            case [digest, after]:
                file |= {"written": digest, "after": after}
            case []:
                file |= {"written": None, "after": None}
            case _:
                return record
    return {**record, "files": files, "format": 1}


def _current_format(record: Any) -> Any:
    """Format 1 had, for kube-scheduler's files, one hash in `written` and that of a change under way in `after`."""
    if not isinstance(record, dict) or record.get("format") != 1 or not isinstance(files := record.get("files"), list):
        return record
    for file in files:
        if isinstance(file, dict) and not isinstance(written := file.get("written"), list):
            file["written"] = [digest for digest in (written, file.pop("after", None)) if digest is not None]
    return {**record, "format": FORMAT}


class Archive(Generic[RecordT]):
    """The record and the backups. A backup is named by the hash of its content, so none is overwritten."""

    def __init__(self, directory: Path, disk: Disk, record: type[RecordT]) -> None:
        self.directory = directory
        self._disk = disk
        self._type = record

    def load(self) -> RecordT | None:
        path = self.directory / _RECORD
        content = self._disk.read(path)
        if content is None:
            return None
        try:
            record: RecordT = msgspec.convert(_current_format(msgspec.json.decode(content)), type=self._type)
        except msgspec.MsgspecError as error:
            raise NotUnderstood(f"{path} cannot be read: {error}; the backups in {self.directory} are complete") from error
        if record.format != FORMAT:
            raise NotUnderstood(f"{path} was written by accelshare {record.accelshare}; use that version")
        return record

    def save(self, record: RecordT) -> None:
        written = _format_1(msgspec.to_builtins(record), one_hash=record.one_hash)
        content = msgspec.json.format(msgspec.json.encode(written), indent=2) + b"\n"
        self._disk.put(self.directory / _RECORD, content, mode=0o600)

    def back_up(self, file: HostFile | None) -> SavedFile:
        """Store a file's content."""
        if file is None:
            return SavedFile()
        path = self._backup(file.sha256)
        if self._disk.read(path) != file.content:
            self._disk.put(path, file.content, mode=0o600)
        return SavedFile(file.sha256, file.mode, file.uid, file.gid)

    def content(self, saved: SavedFile) -> bytes | None:
        """The backup's content; None if the file did not exist."""
        if saved.sha256 is None:
            return None
        content = self._disk.read(self._backup(saved.sha256))
        if content is None or sha256(content) != saved.sha256:
            raise NotUnderstood(f"the backup {self._backup(saved.sha256)} is missing or damaged")
        return content

    def is_restored(self, path: str, saved: SavedFile) -> bool:
        """Whether the file has the saved content."""
        content = self._disk.read(path)
        return (None if content is None else sha256(content)) == saved.sha256

    def restore(self, path: str, saved: SavedFile) -> bool:
        """Give the file its saved state; False if it already has the content."""
        if self.is_restored(path, saved):
            return False
        content = self.content(saved)
        self._disk.put_back(path, None if content is None else HostFile(content, saved.mode, saved.uid, saved.gid))
        return True

    def remove_unneeded(self, needed: Collection[str | None]) -> None:
        """Remove the backups whose hashes are not among the needed ones."""
        for path in self.directory.glob(f"*{_BACKUP}"):
            if path.name.removesuffix(_BACKUP) not in needed:
                self._disk.remove(path)

    def remove_all(self, record: RecordT) -> None:
        """When all files are restored: remove temporary files, directories that accelshare created, and the archive."""
        for file in record.files:
            self._disk.remove_temporary(file.path)
        for directory in reversed(record.made):
            self._disk.remove_directory(Path(directory))
        self.destroy()

    def destroy(self) -> None:
        """Remove backups first and the record last, so that an interrupted removal can be repeated."""
        if not self.directory.is_dir():
            return
        for path in [*self.directory.glob(f"*{_BACKUP}"), *self.directory.glob(f".*{_BACKUP}.accelshare")]:
            self._disk.remove(path)
        self._disk.remove(self.directory / _RECORD)
        self._disk.remove_directory(self.directory)

    @contextmanager
    def locked(self, *, create: bool = False) -> Iterator[None]:
        """Hold the archive's lock; errors of the disk become InstallError. A directory that stays empty is removed again."""
        try:
            if create:
                self._disk.make_directory(self.directory, mode=0o700)
            with self._disk.locked(self.directory):
                try:
                    yield
                finally:
                    if create and self.directory.is_dir() and not any(self.directory.iterdir()):
                        self.directory.rmdir()
        except BlockingIOError as error:
            raise InstallError(f"another accelshare process holds the lock on {self.directory}") from error
        except OSError as error:
            raise InstallError(f"{error.filename or self.directory}: {os.strerror(error.errno or 0)}") from error

    def _backup(self, digest: str) -> Path:
        return self.directory / f"{digest}{_BACKUP}"
