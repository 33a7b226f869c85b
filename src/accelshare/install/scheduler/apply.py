"""`scheduler-config apply` and `restore`: change kube-scheduler's files, wait for its health, roll back if it fails.

The order is: accelshare's file, then the trigger that makes kube-scheduler read it. A restore goes the other way round, so that
kube-scheduler never has to read a file that does not exist.

Belongs here: the order of the steps. Never: what the files say (`plan.py`), how one file is changed (`host_files/`).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import msgspec

from accelshare import __version__
from accelshare.install.errors import ChangedByOthers, InstallError, NoLease, NotUnderstood, RolledBack
from accelshare.install.host_files.archive import TrackedFile
from accelshare.install.host_files.changes import ChangeOutcome, PlannedFile, Say
from accelshare.install.host_files.disk import sha256
from accelshare.install.scheduler import leadership, validation
from accelshare.install.scheduler.health import HealthCheck, Patience, Scheduler, wait_for_new
from accelshare.install.scheduler.host import EarlierTrigger, Proposal, SchedulerHost, SchedulerRecord, Source
from accelshare.install.scheduler.leadership import LeaseObserver, ReadLease
from accelshare.install.scheduler.plan import Intent, SchedulerPlan
from accelshare.kube.leases import LeaseSpec

ConfigCheck = Callable[[SchedulerPlan], None]
# As a standby: the kube-scheduler of another host leads, so this one is ready and was not seen scheduling pods.
ApplyOutcome = Literal["applied", "applied as standby", "unchanged"]


def apply(
    host: SchedulerHost,
    intent: Intent,
    scheduler: Scheduler,
    *,
    patience: Patience,
    force: bool = False,
    check: ConfigCheck | None = None,
    read_lease: ReadLease | None = None,
    host_name: str = "",
    say: Say = lambda _line: None,
) -> ApplyOutcome:
    """Make kube-scheduler call the extender, or leave everything unchanged and raise.

    `host_name`: by which kube-scheduler's identity in the Lease `read_lease` reads begins.
    """
    with host.archive.locked(create=True):
        run = _Apply(host, scheduler, patience, say, host_name)
        return run.run(host.propose(intent), intent, force, check, read_lease)


class _Apply:
    """One apply."""

    def __init__(self, host: SchedulerHost, scheduler: Scheduler, patience: Patience, say: Say, host_name: str) -> None:
        self._host = host
        self._changes = host.changes
        self._scheduler = scheduler
        self._patience = patience
        self._say = say
        self._host_name = host_name
        self._lease: LeaseObserver | None = None

    def run(
        self, proposal: Proposal, intent: Intent, force: bool, check: ConfigCheck | None, read_lease: ReadLease | None
    ) -> ApplyOutcome:
        try:
            self._changes.refuse_to_overwrite(proposal.plan.files, proposal.record)
        except ChangedByOthers as refusal:
            if not force:
                raise
            self._say(f"overruled: {refusal}")
        changed = self._changes.different(proposal.plan.files)
        if not changed and self._is_recorded(proposal):
            return "unchanged"
        validation.refuse_what_would_not_start(proposal.plan, intent.desired, self._host.disk)
        if check is not None:
            check(proposal.plan)
        if read_lease is not None and self._patience.limit_s > 0:
            self._follow_lease(proposal.plan, intent, read_lease)
        before = self._scheduler.check_health()
        journal = self._begin(proposal)
        try:
            self._changes.write(proposal.plan.files, self._say)
            if not self._host.target.restarts_itself:
                self._host.target.restart()
            failure = self._wait(before, changed)
        except (OSError, InstallError) as error:
            failure = f"could not be configured: {error}"
        if failure is not None:
            raise self._roll_back(journal, failure)
        for file in journal.files:
            if not proposal.names(file.path):  # a configuration of another kind, for another version of Kubernetes
                self._host.archive.restore(file.path, file.original)
        files = [TrackedFile(file.path, file.original, file.written[-1:]) for file in journal.files if proposal.names(file.path)]
        self._changes.finish(msgspec.structs.replace(journal, state="applied", files=files))
        if self._lease is None or not self._lease.other_host:
            return "applied"
        self._say(
            f"standby: host {self._lease.other_host} holds the Lease and schedules pods; this host's kube-scheduler is healthy"
        )
        return "applied as standby"

    def _follow_lease(self, plan: SchedulerPlan, intent: Intent, read: ReadLease) -> None:
        """Wait for the leader's Lease too, if it can be read now; else report that only health is checked."""
        try:
            place = leadership.place(plan, intent.release)
            lease = read(place)
        except NoLease as reason:
            self._say(f"only kube-scheduler's health is checked, not whether it schedules pods: {reason}")
            return

        def read_again() -> LeaseSpec | None:
            try:
                return read(place)
            except NoLease:
                return None  # the API server may be unreachable for a moment

        self._lease = LeaseObserver(read_again, host_name=self._host_name, ready_only_as_leader=place.ready_only_as_leader)
        # A killed leader does not release its Lease: the next one leads when it has expired, and polls now and then.
        limit_s = max(self._patience.limit_s, 2 * (lease.lease_duration_seconds or 0))
        self._patience = replace(self._patience, limit_s=limit_s)

    def _is_recorded(self, proposal: Proposal) -> bool:
        """Whether the record fits the files too, or there is no record to be repaired."""
        record = proposal.record
        if record is None:
            self._say(f"nothing to change, but without a record in {self._host.archive_directory} it cannot be restored")
            return True
        written = {file.path: file.latest for file in record.files}
        if record.state != "applied" or written != {file.path: sha256(file.content) for file in proposal.plan.files}:
            return False
        fresh = msgspec.structs.replace(record, sources=self._sources(proposal))
        if fresh != self._host.archive.load():
            self._changes.finish(fresh)
        return True

    def _begin(self, proposal: Proposal) -> SchedulerRecord:
        """Save the record of all that is about to happen, with all that is needed to undo it."""
        host, record = self._host, proposal.record
        try:
            other = [file for file in record.files if not proposal.names(file.path)] if record is not None else []
            files = [msgspec.structs.replace(file, before=self._changes.before(file, record)) for file in other if record]
            files += [self._changes.track(planned, record) for planned in proposal.plan.files]
            journal = SchedulerRecord(
                host.target.trigger,
                self._sources(proposal),
                state="applying",
                files=files,
                made=self._changes.new_directories(proposal.plan.files, record),
                accelshare=__version__,
                earlier=self._earlier(record),
            )
            host.archive.save(journal)
        except OSError:
            if record is None:
                host.archive.destroy()  # nothing was changed yet
            raise
        return journal

    def _earlier(self, record: SchedulerRecord | None) -> list[EarlierTrigger]:
        if record is None:
            return []
        return record.overwritten() if self._host.is_replaced(self._host.disk.find(record.trigger)) else record.earlier

    def _sources(self, proposal: Proposal) -> list[Source]:
        return [Source(path, self._host.sha256(path)) for path in proposal.made.sources]

    def _wait(self, before: HealthCheck, changed: list[PlannedFile]) -> str | None:
        if self._patience.limit_s <= 0:
            return None
        lease = " and the leader's Lease is renewed" if self._lease is not None else ""
        self._say(f"waiting until the new kube-scheduler is healthy{lease}")
        # If the trigger already has its content (an interrupted apply, a repaired file), nothing starts another kube-scheduler.
        trigger = self._host.target.trigger
        kubelet_acts = self._host.target.restarts_itself and any(file.path == trigger for file in changed)
        return wait_for_new(self._scheduler, before, self._patience, restarted=not kubelet_acts, lease=self._lease)

    def _roll_back(self, journal: SchedulerRecord, failure: str) -> RolledBack:
        """Restore the files of before this apply: the original ones, or those of the previous apply."""
        host, trigger = self._host, journal.trigger
        log = self._scheduler.last_log_lines()
        self._say(f"kube-scheduler {failure}: rolling back")
        # Replaced by kubeadm upgrade, say: the backup may be of another version, and the new trigger names no file of ours.
        replaced = host.is_replaced(host.disk.find(trigger)) and not self._is_restored(journal)
        changed = self._changes.roll_back(journal, keep=(trigger,) if replaced else ())
        ending = "the former files are restored"
        if replaced:
            ending = f"{trigger} was replaced in the meantime; it stays unchanged"
        elif trigger in changed or not host.target.restarts_itself:
            ending += self._restart_after_roll_back()
        self._changes.finish_roll_back(journal)
        return RolledBack("\n".join(part for part in (f"kube-scheduler {failure}", log, ending) if part))

    def _is_restored(self, journal: SchedulerRecord) -> bool:
        tracked = journal.file(journal.trigger)
        return (
            tracked is not None and tracked.before is not None and self._host.archive.is_restored(journal.trigger, tracked.before)
        )

    def _restart_after_roll_back(self) -> str:
        try:
            self._host.target.restart()
        except InstallError as error:
            return f", but {error}"
        if self._patience.limit_s <= 0:
            return ""
        # A healthy kube-scheduler is now the former one.
        failure = wait_for_new(self._scheduler, HealthCheck(False, ""), self._patience, restarted=True)
        return ", and kube-scheduler is healthy" if failure is None else f", but kube-scheduler {failure}"


def restore(
    host: SchedulerHost, scheduler: Scheduler, *, patience: Patience, force: bool = False, say: Say = lambda _line: None
) -> ChangeOutcome:
    """Restore the original files to the byte, and remove every file of accelshare."""
    if not host.archive_directory.is_dir():
        _refuse_without_record(host)
        return "nothing to restore"
    with host.archive.locked():
        record, changes = host.record(), host.changes
        if record is None:
            _refuse_without_record(host)
            host.archive.destroy()  # left by an apply that was interrupted before it saved its record
            return "nothing to restore"
        files = [file for file in record.files if not _stays(host, record, file, force=False)]
        try:
            changes.refuse_to_restore_over(file for file in files if host.sha256(file.path) is not None)
        except ChangedByOthers as refusal:
            if not force:
                raise
            say(f"overruled: {refusal}")
        files = [file for file in record.files if not _stays(host, record, file, force=force)]
        before = scheduler.check_health()
        changes.begin_restore(record, files)
        failure = None
        for file in sorted(record.files, key=lambda file: file.path != record.trigger):
            if file not in files:
                _say_why_it_stays(host, file, say)
                host.disk.remove_temporary(file.path)
            elif changes.restore(file, say) and file.path == record.trigger:
                failure = _restart(host, scheduler, before, patience, say)
        host.archive.remove_all(record)
    if failure is not None:
        log = scheduler.last_log_lines()
        raise InstallError("\n".join(filter(None, [f"the original files are restored, but kube-scheduler {failure}", log])))
    return "restored"


def _stays(host: SchedulerHost, record: SchedulerRecord, file: TrackedFile, *, force: bool) -> bool:
    """Whether a restore leaves the trigger alone: it was replaced without accelshare, or somebody removed it.

    A replaced trigger does not name accelshare's file, and its backup is of another version of kube-scheduler.
    """
    if file.path != record.trigger:
        return False
    current = host.disk.find(file.path)
    removed = current is None and file.original.sha256 is not None and not force
    return removed or host.is_replaced(current)


def _say_why_it_stays(host: SchedulerHost, file: TrackedFile, say: Say) -> None:
    digest = host.sha256(file.path)
    if digest is None:
        say(f"{file.path} does not exist any more; it is not restored")
    elif digest != file.original.sha256:
        say(f"{file.path} was replaced without accelshare; it stays unchanged")


def _restart(host: SchedulerHost, scheduler: Scheduler, before: HealthCheck, patience: Patience, say: Say) -> str | None:
    try:
        host.target.restart()
    except InstallError as error:
        return f"could not be restarted: {error}"
    if patience.limit_s <= 0:
        return None
    say("waiting until kube-scheduler is healthy")
    return wait_for_new(scheduler, before, patience, restarted=not host.target.restarts_itself)


def _refuse_without_record(host: SchedulerHost) -> None:
    trigger = host.disk.read(host.target.trigger)
    if trigger is not None and host.target.is_ours(trigger):
        raise NotUnderstood(
            f"accelshare wrote {host.target.trigger}, but its record in {host.archive_directory} is missing, so the original is "
            "not known; remove the settings by hand"
        )
