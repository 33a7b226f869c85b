"""The steps of every change of host files: plan, refuse to lose work of others, record, write, roll back, restore.

The record is saved before the first write and every file is replaced atomically. So after an interruption at any moment the next
`apply` finishes what was begun and the next `restore` undoes it. A file that makes a program read another one is written after
that one and restored before it.

Belongs here: these steps, the same for kube-scheduler and for the container runtime. Never: what the files say.
"""

import difflib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal

import msgspec

from accelshare.install.errors import ChangedByOthers
from accelshare.install.host_files.archive import Archive, Record, RecordT, SavedFile, TrackedFile
from accelshare.install.host_files.disk import Disk, HostFile, sha256

ChangeOutcome = Literal["applied", "unchanged", "restored", "nothing to restore"]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that a plan wants.

    `like`: the file whose mode and owner it takes, if that exists. `owned`: accelshare's own file, not one of the operator's.
    """

    path: str
    content: bytes
    like: str | None = None
    owned: bool = True


def unified_diff(path: str | Path, before: bytes | None, after: bytes | None) -> str:
    """One file's difference as `diff -u` prints it; empty if there is none."""
    if before == after:
        return ""
    old, new = ((text or b"").decode(errors="replace").splitlines(keepends=True) for text in (before, after))
    names = ("/dev/null" if before is None else str(path), "/dev/null" if after is None else str(path))
    lines = difflib.unified_diff(old, new, *names)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def difference(files: Iterable[PlannedFile], disk: Disk) -> str:
    """A plan as a diff against the disk; empty if nothing would change."""
    return "".join(unified_diff(file.path, disk.read(file.path), file.content) for file in files)


class FileChanges(Generic[RecordT]):
    """Changes of files that one archive records. `is_operators`: this planned file now has the operator's own content."""

    def __init__(
        self, archive: Archive[RecordT], disk: Disk, is_operators: Callable[[PlannedFile, HostFile, TrackedFile | None], bool]
    ) -> None:
        self._archive = archive
        self._disk = disk
        self._is_operators = is_operators

    def different(self, files: Iterable[PlannedFile]) -> list[PlannedFile]:
        """The planned files whose content on the disk is another one."""
        return [file for file in files if self._disk.read(file.path) != file.content]

    def refuse_to_overwrite(self, files: Sequence[PlannedFile], record: Record | None) -> None:
        """Raise ChangedByOthers, with the diff, if the plan would overwrite what somebody else wrote into a file of ours."""
        foreign = []
        for file in files:
            current, tracked = self._disk.find(file.path), record.file(file.path) if record is not None else None
            if current is None or current.content == file.content or self._is_operators(file, current, tracked):
                continue
            if tracked is None or not tracked.knows(current.sha256):
                foreign.append(file)
        if foreign:
            names = " and ".join(file.path for file in foreign)
            raise ChangedByOthers(
                f"{names} was changed by somebody else; --force overwrites it and loses this:\n{difference(foreign, self._disk)}"
            )

    def refuse_to_restore_over(self, files: Iterable[TrackedFile]) -> None:
        """Raise ChangedByOthers, with the diff, if restoring one of these files would lose what somebody else wrote."""
        foreign = [file for file in files if not file.knows(self._digest(file.path))]
        if foreign:
            lost = "".join(
                unified_diff(file.path, self._disk.read(file.path), self._archive.content(file.original)) for file in foreign
            )
            raise ChangedByOthers(
                f"{' and '.join(file.path for file in foreign)} was changed by somebody else since accelshare wrote it; "
                f"--force restores the original and loses this:\n{lost}"
            )

    def track(self, file: PlannedFile, record: Record | None) -> TrackedFile:
        """The entry of a file that is about to be written; all that is needed to undo it is backed up."""
        current, tracked, digest = self._disk.find(file.path), record.file(file.path) if record else None, sha256(file.content)
        if record is None or tracked is None or (current is not None and self._is_operators(file, current, tracked)):
            saved = self._archive.back_up(current)
            return TrackedFile(file.path, saved, [digest], saved)
        if current is not None and current.sha256 == tracked.original.sha256:
            self._archive.back_up(current)  # an interrupted restore may have removed it
        written = [*(each for each in tracked.written if each != digest), digest]
        return msgspec.structs.replace(tracked, before=self.before(tracked, record), written=written)

    def before(self, tracked: TrackedFile, record: Record) -> SavedFile:
        """The state that a rollback restores: not what an interrupted change left, but what was there before it."""
        current = self._disk.find(tracked.path)
        if current is None or tracked.knows(current.sha256):
            if record.state == "restoring":
                return tracked.original
            if record.state == "applying" and tracked.before is not None:
                return tracked.before
        return self._archive.back_up(current)

    def new_directories(self, files: Iterable[PlannedFile], record: Record | None) -> list[str]:
        """Directories that accelshare created or is about to create."""
        missing = (str(parent) for file in files if not (parent := Path(file.path).parent).is_dir())
        return list(dict.fromkeys([*(record.made if record is not None else []), *missing]))

    def write(self, files: Sequence[PlannedFile], say: Say) -> None:
        for file in files:
            self._disk.make_directory(Path(file.path).parent, mode=0o755)
        for file in files:
            if self._disk.read(file.path) == file.content:
                self._disk.remove_temporary(file.path)
                continue
            like = self._disk.find(file.like) if file.like is not None else None
            self._disk.put_like(file.path, file.content, like)
            say(f"wrote {file.path}")

    def finish(self, record: RecordT) -> None:
        """Save the record of a finished change, and remove backups that nothing needs any more."""
        self._archive.save(record)
        self._archive.remove_unneeded(record.needed)

    def roll_back(self, record: RecordT, *, keep: Collection[str] = ()) -> list[str]:
        """Restore the state before this change, except of the paths to keep; returns the paths that changed."""
        return [
            file.path
            for file in reversed(record.files)
            if file.before is not None and file.path not in keep and self._archive.restore(file.path, file.before)
        ]

    def finish_roll_back(self, record: RecordT) -> None:
        """Forget the change that was rolled back; without an earlier one, leave nothing."""
        if all(file.before == file.original for file in record.files):
            self._archive.remove_all(record)
            return
        files = []
        for file in record.files:
            if file.before is None:
                files.append(file)
            elif file.before.sha256 is not None:
                files.append(TrackedFile(file.path, file.original, [file.before.sha256]))
        self.finish(msgspec.structs.replace(record, state="applied", files=files))

    def begin_restore(self, record: RecordT, files: Iterable[TrackedFile]) -> None:
        """Record that a restore of these files is under way; all their backups are complete, or nothing is touched."""
        for file in files:
            if not self._archive.is_restored(file.path, file.original):
                self._archive.content(file.original)
        if record.state != "restoring":
            self._archive.save(msgspec.structs.replace(record, state="restoring"))

    def restore(self, file: TrackedFile, say: Say) -> bool:
        """Give one file its original state; False if it already has it."""
        if not self._archive.restore(file.path, file.original):
            return False
        say(f"{'restored' if file.original.sha256 else 'removed'} {file.path}")
        return True

    def _digest(self, path: str) -> str | None:
        content = self._disk.read(path)
        return None if content is None else sha256(content)
