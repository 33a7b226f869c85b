"""What we have done to this host, written down before it is done: the journal and the way back in one file.

Belongs here: the record, its backups, and their place outside of the runtime's directories. Never: deciding what to do.
"""

from pathlib import Path
from typing import Final, Literal

import msgspec

from accelshare.runtime_config.disk import Disk, Found, sha256
from accelshare.runtime_config.problems import NotUnderstood

_RECORD: Final = "record.json"
_BACKUP: Final = ".backup"
_FORMAT: Final = 1


class Original(msgspec.Struct, frozen=True):
    """A file as it was before us; no hash if it was not there."""

    sha256: str | None = None
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


class Tracked(msgspec.Struct, frozen=True):
    """One file of ours or changed by us, with the hash of every content that we gave it."""

    path: str
    original: Original
    written: list[str] = []

    def knows(self, found: Found | None) -> bool:
        """Whether this is a content of ours or the original; anything else is somebody else's."""
        now = found.sha256 if found is not None else None
        return now == self.original.sha256 or now in self.written


class Record(msgspec.Struct, frozen=True):
    """The whole state of one installation; what is under way has a state of its own."""

    state: Literal["applying", "applied", "restoring"]
    config: str
    files: list[Tracked]
    made: list[str] = []  # directories, to be removed with the rest if nobody else uses them
    accelshare: str = ""
    format: int = _FORMAT

    def file(self, path: Path) -> Tracked | None:
        return next((file for file in self.files if file.path == str(path)), None)


class Archive:
    """The record and its backups in one directory of ours. Backups are named by their content, so that none is overwritten."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.directory = directory
        self._disk = disk

    def load(self, config: Path) -> Record | None:
        place = self.directory / _RECORD
        found = self._disk.find(place)
        if found is None:
            return None
        try:
            record = msgspec.json.decode(found.content, type=Record)
        except msgspec.DecodeError as error:
            raise NotUnderstood(f"{place} cannot be read: {error}; the backups beside it are whole") from error
        if record.format != _FORMAT:
            raise NotUnderstood(f"{place} is of another accelshare ({record.accelshare}); use that one")
        if record.config != str(config):
            raise NotUnderstood(f"{place} is about {record.config}, not about {config}; give --config or --backup-directory")
        return record

    def save(self, record: Record) -> None:
        content = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
        self._disk.put(self.directory / _RECORD, content, mode=0o600)

    def keep(self, found: Found | None) -> Original:
        """Put a file's content aside."""
        if found is None:
            return Original()
        place = self._place(found.sha256)
        there = self._disk.find(place)
        if there is None or there.content != found.content:
            self._disk.put(place, found.content, mode=0o600)
        return Original(found.sha256, found.mode, found.uid, found.gid)

    def content(self, original: Original) -> bytes | None:
        """None if there was no such file."""
        if original.sha256 is None:
            return None
        found = self._disk.find(self._place(original.sha256))
        if found is None or sha256(found.content) != original.sha256:
            raise NotUnderstood(f"the backup {self._place(original.sha256)} is missing or damaged")
        return found.content

    def destroy(self) -> None:
        """Backups first, the record last: what is half destroyed can be destroyed again."""
        if not self.directory.is_dir():
            return
        for place in self.directory.glob(f"*{_BACKUP}"):
            self._disk.remove(place)
        for half in self.directory.glob(f".*{_BACKUP}.accelshare"):
            half.unlink()
        self._disk.remove(self.directory / _RECORD)
        self._disk.remove_directory(self.directory)

    def _place(self, name: str) -> Path:
        return self.directory / f"{name}{_BACKUP}"
