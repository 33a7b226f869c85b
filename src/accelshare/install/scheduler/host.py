"""One host: how its kube-scheduler is started, where our things lie, and how they stand.

Belongs here: looking. Never: changing anything.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from accelshare.install.errors import NotUnderstood
from accelshare.install.host_files.archive import Archive
from accelshare.install.host_files.disk import Disk, sha256
from accelshare.install.scheduler import plan as planning
from accelshare.install.scheduler.plan import Intent, Plan, PlannedFile
from accelshare.install.scheduler.record import Record
from accelshare.install.scheduler.targets import Made, Target


class State(Enum):
    """How things stand on this host."""

    INSTALLED = "installed"
    NOT_INSTALLED = "not installed"
    DRIFTED = "drifted"  # somebody changed what we wrote, or what it was made from
    OVERWRITTEN = "overwritten"  # the trigger was written anew without us, as kubeadm upgrade does
    UNFINISHED = "unfinished"  # an apply or a restore ended in the middle


@dataclass(frozen=True, slots=True)
class Standing:
    """A state, with all that led to it."""

    state: State
    says: tuple[str, ...]
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan for this host as it is now."""

    made: Made
    record: Record | None

    @property
    def plan(self) -> Plan:
        return self.made.plan

    def names(self, path: str) -> bool:
        return any(planned.path == path for planned in self.plan.files)


@dataclass(frozen=True, slots=True)
class SchedulerHost:
    """Everything that looking and changing needs to know about the host."""

    target: Target
    directory: Path  # our configuration, seen by kube-scheduler
    archive_directory: Path  # record and backups, seen by nobody else
    disk: Disk = field(default_factory=Disk)

    @property
    def archive(self) -> Archive[Record]:
        return Archive(self.archive_directory, self.disk, Record, NotUnderstood)

    def record(self) -> Record | None:
        """What we have done here, if anything; about the trigger that is there, should an earlier one of ours be back."""
        record = self.archive.load()
        if record is not None and record.trigger != self.target.trigger:
            raise NotUnderstood(
                f"the record in {self.archive_directory} is about {record.trigger}, not about {self.target.trigger}"
            )
        return record.as_found(self.sha256(record.trigger)) if record is not None else None

    def status(self) -> Standing:
        """How things stand, in words."""
        record = self.record()
        trigger = self.disk.read(self.target.trigger)
        ours = trigger is not None and self.target.is_ours(trigger)
        if record is None:
            if ours:
                says = f"{self.target.trigger} is of our making, but its record in {self.archive_directory} is gone"
                return Standing(State.DRIFTED, (says,), (self.target.trigger,))
            return Standing(State.NOT_INSTALLED, (f"{self.target.trigger} does not name accelshare's configuration",))
        files = tuple(file.path for file in record.files)
        if record.unfinished is not None:
            return Standing(State.UNFINISHED, (record.unfinished,), files)
        if not ours:
            what = "is gone" if trigger is None else "was written anew without accelshare, as kubeadm upgrade does"
            return Standing(State.OVERWRITTEN, (f"{record.trigger} {what}: `apply` puts it in again",), files)
        says_all = [
            f"{file.path} {'is gone' if now is None else 'was changed by somebody else'}"
            for file in record.files
            if (now := self.sha256(file.path)) != file.written
        ]
        says_all += [
            f"{source.path}, from which our file was made, has changed: `apply` takes the change over"
            for source in record.sources
            if self.sha256(source.path) != source.sha256
        ]
        if record != self.archive.load():
            says = f"{record.trigger} is an earlier one of ours again, as kubeadm leaves it if its upgrade fails"
            says_all.append(f"{says}: `apply` makes all agree with it")
        if says_all:
            return Standing(State.DRIFTED, tuple(says_all), files)
        return Standing(State.INSTALLED, (f"{record.trigger} tells kube-scheduler of the extender",), files)

    def propose(self, intent: Intent) -> Proposal:
        """What `apply` would do."""
        record = self.record()
        return Proposal(self.target.make(self.base(record), intent, self.disk), record)

    def difference(self, proposal: Proposal) -> str:
        """The proposal as people read it."""
        return planning.difference(proposal.plan, self.disk.read)

    def base(self, record: Record | None) -> bytes | None:
        """The trigger as it would be without us: what is there if we did not write it, else its backup."""
        content = self.disk.read(self.target.trigger)
        if content is None or not self.target.is_ours(content) or record is None:
            return content
        tracked = record.file(self.target.trigger)
        return self.archive.content(tracked.original) if tracked is not None else None

    def foreign(self, record: Record | None, files: Iterable[PlannedFile]) -> list[str]:
        """Files with a content that is neither ours nor the original: somebody else's work, not to be lost."""
        found = []
        for file in files:
            content = self.disk.read(file.path)
            if content is None or content == file.content:
                continue
            if file.path == self.target.trigger and not self.target.is_ours(content):
                continue  # the operator's own, which becomes the new original
            tracked = record.file(file.path) if record is not None else None
            if tracked is None or sha256(content) not in tracked.known:
                found.append(file.path)
        return found

    def sha256(self, path: str) -> str | None:
        content = self.disk.read(path)
        return None if content is None else sha256(content)
