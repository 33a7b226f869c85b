"""One host: how its kube-scheduler is started, where accelshare's files are, and their status.

Belongs here: reading and planning. Never: changing anything (`apply.py`).
"""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import ClassVar, Final, Self

import msgspec

from accelshare.install.errors import NotUnderstood
from accelshare.install.host_files.archive import Archive, Record, SavedFile, TrackedFile
from accelshare.install.host_files.changes import FileChanges, PlannedFile, difference
from accelshare.install.host_files.disk import Disk, HostFile, sha256
from accelshare.install.scheduler.plan import Intent, SchedulerPlan, Target, TargetPlan

_KEPT: Final = 3  # an upgrade may be tried more than once


class Source(msgspec.Struct, frozen=True):
    """A file of the operator's from which accelshare's file was made."""

    path: str
    sha256: str | None


class EarlierTrigger(msgspec.Struct, frozen=True):
    """A trigger that accelshare wrote and that was overwritten; kubeadm restores it if its upgrade fails."""

    written: str
    original: SavedFile


class SchedulerRecord(Record, frozen=True):
    """The record of one kube-scheduler's configuration. The trigger makes kube-scheduler read accelshare's file."""

    one_hash: ClassVar[bool] = True
    trigger: str
    sources: list[Source] = msgspec.field(default_factory=list)
    earlier: list[EarlierTrigger] = msgspec.field(default_factory=list)  # the newest first

    @property
    def needed(self) -> frozenset[str | None]:
        return Record.needed.__get__(self) | {each.original.sha256 for each in self.earlier}  # type: ignore[no-any-return]

    def overwritten(self) -> list[EarlierTrigger]:
        """The earlier triggers, once the current one is overwritten too."""
        tracked = self.file(self.trigger)
        if tracked is None:
            return self.earlier
        newest = [EarlierTrigger(each, tracked.original) for each in reversed(tracked.written) if each != tracked.original.sha256]
        known = {each.written for each in newest}
        return [*newest, *(each for each in self.earlier if each.written not in known)][:_KEPT]

    def with_trigger(self, digest: str | None) -> Self:
        """The record that fits a trigger with this hash: an earlier one of ours, if kubeadm restored that."""
        restored = next((each for each in self.earlier if each.written == digest), None)
        tracked = self.file(self.trigger)
        if self.state != "applied" or restored is None or tracked is None or tracked.latest == digest:
            return self
        again = TrackedFile(self.trigger, restored.original, [restored.written])
        files = [again if file is tracked else file for file in self.files]
        return msgspec.structs.replace(self, files=files, earlier=[each for each in self.earlier if each is not restored])


class HostState(Enum):
    """The state of accelshare's configuration on this host."""

    INSTALLED = "installed"
    NOT_INSTALLED = "not installed"
    DRIFTED = "drifted"  # somebody changed a file of accelshare's, or one that it was made from
    OVERWRITTEN = "overwritten"  # the trigger was replaced without accelshare, as kubeadm upgrade does
    UNFINISHED = "unfinished"  # an apply or a restore was interrupted


@dataclass(frozen=True, slots=True)
class HostStatus:
    """The state, with its reasons."""

    state: HostState
    remarks: tuple[str, ...]
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan for this host in its present state."""

    made: TargetPlan
    record: SchedulerRecord | None

    @property
    def plan(self) -> SchedulerPlan:
        return self.made.plan

    def names(self, path: str) -> bool:
        return any(planned.path == path for planned in self.plan.files)


@dataclass(frozen=True, slots=True)
class SchedulerHost:
    """The kube-scheduler of this host, accelshare's directory and the archive."""

    target: Target
    directory: Path  # accelshare's configuration, which kube-scheduler reads
    archive_directory: Path  # record and backups, which only accelshare reads
    disk: Disk = field(default_factory=Disk)

    @property
    def archive(self) -> Archive[SchedulerRecord]:
        return Archive(self.archive_directory, self.disk, SchedulerRecord)

    @property
    def changes(self) -> FileChanges[SchedulerRecord]:
        return FileChanges(self.archive, self.disk, self._is_operators)

    def record(self) -> SchedulerRecord | None:
        """What accelshare changed here, if anything; it fits the present trigger if kubeadm restored an earlier one."""
        record = self.archive.load()
        if record is not None and record.trigger != self.target.trigger:
            raise NotUnderstood(
                f"the record in {self.archive_directory} is about {record.trigger}, not about {self.target.trigger}"
            )
        return record.with_trigger(self.sha256(record.trigger)) if record is not None else None

    def status(self) -> HostStatus:
        record = self.record()
        trigger = self.disk.read(self.target.trigger)
        ours = trigger is not None and self.target.is_ours(trigger)
        if record is None:
            if ours:
                remark = f"accelshare wrote {self.target.trigger}, but its record in {self.archive_directory} is missing"
                return HostStatus(HostState.DRIFTED, (remark,), (self.target.trigger,))
            return HostStatus(HostState.NOT_INSTALLED, (f"{self.target.trigger} does not name accelshare's configuration",))
        files = tuple(file.path for file in record.files)
        if record.unfinished is not None:
            return HostStatus(HostState.UNFINISHED, (record.unfinished,), files)
        if not ours:
            what = "does not exist" if trigger is None else "was replaced without accelshare, as kubeadm upgrade does"
            return HostStatus(HostState.OVERWRITTEN, (f"{record.trigger} {what}: `apply` changes it again",), files)
        remarks = [
            f"{file.path} {'does not exist' if now is None else 'was changed by somebody else'}"
            for file in record.files
            if (now := self.sha256(file.path)) != file.latest
        ]
        remarks += [
            f"{source.path}, from which accelshare's file was made, has changed: `apply` takes the change over"
            for source in record.sources
            if self.sha256(source.path) != source.sha256
        ]
        if record != self.archive.load():
            remarks.append(
                f"{record.trigger} is an earlier one of accelshare's, as kubeadm leaves it if its upgrade fails: "
                "`apply` updates the record and the files"
            )
        if remarks:
            return HostStatus(HostState.DRIFTED, tuple(remarks), files)
        return HostStatus(HostState.INSTALLED, (f"{record.trigger} makes kube-scheduler call the extender",), files)

    def propose(self, intent: Intent) -> Proposal:
        """What `apply` would do."""
        record = self.record()
        return Proposal(self.target.make(self.base(record), intent, self.disk), record)

    def difference(self, proposal: Proposal) -> str:
        """The proposal as a diff; empty if nothing would change."""
        return difference(proposal.plan.files, self.disk)

    def base(self, record: SchedulerRecord | None) -> bytes | None:
        """The trigger without accelshare: the present one if accelshare did not write it, else its backup."""
        content = self.disk.read(self.target.trigger)
        if content is None or not self.target.is_ours(content) or record is None:
            return content
        tracked = record.file(self.target.trigger)
        return self.archive.content(tracked.original) if tracked is not None else None

    def is_replaced(self, trigger: HostFile | None) -> bool:
        """Whether the trigger was written without accelshare."""
        return trigger is not None and not self.target.is_ours(trigger.content)

    def sha256(self, path: str) -> str | None:
        content = self.disk.read(path)
        return None if content is None else sha256(content)

    def _is_operators(self, file: PlannedFile, current: HostFile, _tracked: TrackedFile | None) -> bool:
        """A trigger that was replaced without accelshare becomes the new original."""
        return file.path == self.target.trigger and self.is_replaced(current)
