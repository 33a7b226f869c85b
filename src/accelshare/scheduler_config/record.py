"""What we have done to this host, written down before it is done: the journal and the way back in one file.

Belongs here: the record, its backups, and their place outside kubelet's directory. Never: deciding what to do.
"""

from pathlib import Path
from typing import Final, Literal

import msgspec

from accelshare.scheduler_config.disk import Disk, Found, sha256
from accelshare.scheduler_config.problems import NotUnderstood

_RECORD: Final = "record.json"
_BACKUP: Final = ".backup"
_FORMAT: Final = 1


class Before(msgspec.Struct, frozen=True):
    """A file as it was; no hash if it was not there."""

    sha256: str | None = None
    mode: int = 0o600
    uid: int = 0
    gid: int = 0


class Tracked(msgspec.Struct, frozen=True):
    """One file of ours or changed by us. `original` is from before accelshare, `before` from before the change under way."""

    path: str
    original: Before
    written: str | None = None
    before: Before | None = None
    after: str | None = None

    @property
    def known(self) -> frozenset[str | None]:
        """Every content that we have seen or made; anything else is somebody else's."""
        return frozenset({self.original.sha256, self.written, self.after, self.before.sha256 if self.before else None, None})


class Source(msgspec.Struct, frozen=True):
    """A file of the operator's that ours was made from."""

    path: str
    sha256: str | None


class Record(msgspec.Struct, frozen=True):
    """The whole state of one installation; what is under way has a state of its own."""

    state: Literal["applying", "applied", "restoring"]
    files: list[Tracked]
    trigger: str
    sources: list[Source] = []
    made: list[str] = []  # directories, to be removed with the rest if nobody else uses them
    accelshare: str = ""
    format: int = _FORMAT

    def file(self, path: str) -> Tracked | None:
        return next((file for file in self.files if file.path == path), None)


class Archive:
    """The record and its backups in one directory of ours. Backups are named by their content, so that none is overwritten."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.directory = directory
        self._disk = disk

    def load(self) -> Record | None:
        content = self._disk.read(self.directory / _RECORD)
        if content is None:
            return None
        try:
            record = msgspec.json.decode(content, type=Record)
        except msgspec.DecodeError as error:
            raise NotUnderstood(f"{self.directory / _RECORD} cannot be read: {error}; the backups beside it are whole") from error
        if record.format != _FORMAT:
            raise NotUnderstood(f"{self.directory / _RECORD} is of another accelshare ({record.accelshare}); use that one")
        return record

    def save(self, record: Record) -> None:
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

    def content(self, before: Before) -> bytes:
        assert before.sha256 is not None
        content = self._disk.read(self._place(before.sha256))
        if content is None or sha256(content) != before.sha256:
            raise NotUnderstood(f"the backup {self._place(before.sha256)} is missing or damaged")
        return content

    def put_back(self, path: str, before: Before) -> bool:
        """The file as it was; False if it is so already."""
        found = self._disk.find(path)
        if (found.sha256 if found else None) == before.sha256:
            return False
        if before.sha256 is None:
            self._disk.remove(path)
        else:
            self._disk.put(path, self.content(before), mode=before.mode, owner=(before.uid, before.gid))
        return True

    def forget_unneeded(self, record: Record) -> None:
        """Backups that no way back needs any more."""
        needed = {before.sha256 for file in record.files for before in (file.original, file.before) if before is not None}
        for place in self.directory.glob(f"*{_BACKUP}"):
            if place.name.removesuffix(_BACKUP) not in needed:
                self._disk.remove(place)

    def destroy(self) -> None:
        """Backups first, the record last: what is half destroyed can be destroyed again."""
        if not self.directory.is_dir():
            return
        for place in [*self.directory.glob(f"*{_BACKUP}"), *self.directory.glob(f".*{_BACKUP}.accelshare")]:
            self._disk.remove(place)
        self._disk.remove(self.directory / _RECORD)
        self._disk.remove_directory(self.directory)

    def _place(self, name: str) -> Path:
        return self.directory / f"{name}{_BACKUP}"
