"""Put the plan in, and take it out again: backup, journal, write, wait, roll back.

The journal is written before each change, and every file is replaced whole. So whatever ends this program in the middle, the next
`apply` finishes what was begun and the next `restore` undoes it. The order is always: our file, then the trigger that makes
kube-scheduler read it; and the other way round on the way back, so that no scheduler is ever told of a file that is not there.

Belongs here: order. Never: what the files say (`plan.py`), how one file is replaced or brought back (`files/`).
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec

from accelshare import __version__
from accelshare.install.errors import ChangedByOthers, InstallError, NoLease, NotUnderstood, RolledBack
from accelshare.install.host_files.difference import unified
from accelshare.install.host_files.disk import Found, sha256
from accelshare.install.host_files.journal import Before
from accelshare.install.scheduler import leadership, validation
from accelshare.install.scheduler.health import Look, Patience, Scheduler, wait_for_new
from accelshare.install.scheduler.host import Proposal, SchedulerHost
from accelshare.install.scheduler.leadership import ReadLease
from accelshare.install.scheduler.plan import Intent, Plan, PlannedFile
from accelshare.install.scheduler.record import Earlier, Record, Source, Tracked

Outcome = Literal["applied", "unchanged", "restored", "nothing to restore"]
Say = Callable[[str], None]


def apply(
    scheduler_host: SchedulerHost,
    intent: Intent,
    scheduler: Scheduler,
    *,
    patience: Patience,
    force: bool = False,
    check: Callable[[Plan], None] | None = None,
    read_lease: ReadLease | None = None,
    say: Say = lambda _line: None,
) -> Outcome:
    """Make kube-scheduler ask the extender, or leave everything as it was and say why."""
    with scheduler_host.archive.alone(InstallError, make=True):
        return _Applying(scheduler_host, scheduler, patience, say).run(
            scheduler_host.propose(intent), intent, force, check, read_lease
        )


def refuse_to_lose_work(scheduler_host: SchedulerHost, proposal: Proposal) -> None:
    """Raises if this proposal would overwrite what somebody else wrote, and shows it."""
    if foreign := scheduler_host.foreign(proposal.record, proposal.plan.files):
        read = scheduler_host.disk.read
        lost = "".join(unified(file.path, read(file.path), file.content) for file in proposal.plan.files if file.path in foreign)
        raise ChangedByOthers(
            f"{' and '.join(foreign)} was changed by somebody else; --force overrules that, at this price:\n{lost}"
        )


class _Applying:
    """One apply."""

    def __init__(self, scheduler_host: SchedulerHost, scheduler: Scheduler, patience: Patience, say: Say) -> None:
        self._scheduler_host = scheduler_host
        self._scheduler = scheduler
        self._patience = patience
        self._say = say
        self._renewed: Callable[[], str] | None = None

    def _follow(self, plan: Plan, intent: Intent, read: ReadLease) -> None:
        """Wait for the leader's Lease too, where it can be read now; else say that only health is waited for."""
        try:
            place = leadership.place(plan, intent.release)
            lease = read(place)
        except NoLease as why:
            self._say(f"whether pods are scheduled afterwards is not looked at: {why}")
            return

        def renewed() -> str:
            try:
                return read(place).renewed or ""
            except NoLease:
                return ""  # the API server may be away for a moment

        self._renewed = renewed
        # A leader that was killed gives nothing back: the next one leads when the Lease has run out, and looks now and then.
        self._patience = replace(self._patience, limit_s=max(self._patience.limit_s, 2 * (lease.duration_s or 0)))

    def run(
        self,
        proposal: Proposal,
        intent: Intent,
        force: bool,
        check: Callable[[Plan], None] | None,
        read_lease: ReadLease | None,
    ) -> Outcome:
        self._refuse_to_lose_work(proposal, force)
        changed = [file for file in proposal.plan.files if self._scheduler_host.disk.read(file.path) != file.content]
        if not changed and self._settled(proposal):
            return "unchanged"
        validation.refuse_what_would_not_start(proposal.plan, intent.desired, self._scheduler_host.disk)
        if check is not None:
            check(proposal.plan)
        if read_lease is not None and self._patience.limit_s > 0:
            self._follow(proposal.plan, intent, read_lease)
        before = self._scheduler.look()
        journal = self._begin(proposal)
        try:
            self._write(proposal)
            if not self._scheduler_host.target.restarts_itself:
                self._scheduler_host.target.restart()
            why = self._wait(before, changed)
        except (OSError, InstallError) as error:
            why = f"could not be told of the extender: {error}"
        if why is not None:
            raise self._roll_back(journal, why)
        for file in journal.files:
            if not proposal.names(file.path):  # of another kind, for another version of Kubernetes
                self._scheduler_host.archive.put_back(file.path, file.original)
        files = [Tracked(file.path, file.original, written=file.after) for file in journal.files if proposal.names(file.path)]
        self._settle(msgspec.structs.replace(journal, state="applied", files=files))
        return "applied"

    def _refuse_to_lose_work(self, proposal: Proposal, force: bool) -> None:
        try:
            refuse_to_lose_work(self._scheduler_host, proposal)
        except ChangedByOthers as refused:
            if not force:
                raise
            self._say(f"overruled: {refused}")

    def _settled(self, proposal: Proposal) -> bool:
        """The files are as wished; so is the record, or there is none to be had any more."""
        record = proposal.record
        if record is None:
            self._say(f"all is as wished, but without a record in {self._scheduler_host.archive_directory} it cannot be restored")
            return True
        written = {file.path: file.written for file in record.files}
        if record.state != "applied" or written != {file.path: sha256(file.content) for file in proposal.plan.files}:
            return False
        fresh = msgspec.structs.replace(record, sources=self._sources(proposal))
        if fresh != self._scheduler_host.archive.load():
            self._settle(fresh)
        return True

    def _begin(self, proposal: Proposal) -> Record:
        """The journal: all that is about to happen, with everything that it takes to undo it."""
        scheduler_host, record = self._scheduler_host, proposal.record
        try:
            files = [self._tracked(planned, record) for planned in proposal.plan.files]
            for tracked in record.files if record is not None else []:
                if not proposal.names(tracked.path):
                    before = self._before(tracked, scheduler_host.disk.find(tracked.path), record)
                    files.append(msgspec.structs.replace(tracked, before=before, after=None))
            made = dict.fromkeys(record.made if record is not None else [])
            made |= dict.fromkeys(str(place) for place in _directories(proposal) if not place.is_dir())
            journal = Record(
                scheduler_host.target.trigger,
                self._sources(proposal),
                state="applying",
                files=files,
                made=list(made),
                accelshare=__version__,
                earlier=self._earlier(record),
            )
            scheduler_host.archive.save(journal)
        except OSError:
            if record is None:
                scheduler_host.archive.destroy()  # nothing was changed yet
            raise
        return journal

    def _tracked(self, planned: PlannedFile, record: Record | None) -> Tracked:
        scheduler_host = self._scheduler_host
        found = scheduler_host.disk.find(planned.path)
        tracked = record.file(planned.path) if record is not None else None
        if tracked is None or (planned.path == scheduler_host.target.trigger and self._overwritten(found)):
            kept = scheduler_host.archive.keep(found)
            return Tracked(planned.path, original=kept, before=kept, after=sha256(planned.content))
        return msgspec.structs.replace(tracked, before=self._before(tracked, found, record), after=sha256(planned.content))

    def _overwritten(self, trigger: Found | None) -> bool:
        return trigger is not None and not self._scheduler_host.target.is_ours(trigger.content)

    def _earlier(self, record: Record | None) -> list[Earlier]:
        if record is None:
            return []
        return record.overwritten() if self._overwritten(self._scheduler_host.disk.find(record.trigger)) else record.earlier

    def _before(self, tracked: Tracked, found: Found | None, record: Record | None) -> Before:
        """What a roll-back brings back: not what an apply that ended in the middle has left, but what was there before it."""
        ours = found is None or found.sha256 in tracked.known
        if ours and record is not None and record.state == "restoring":
            return tracked.original
        if ours and record is not None and record.state == "applying" and tracked.before is not None:
            return tracked.before
        return self._scheduler_host.archive.keep(found)

    def _sources(self, proposal: Proposal) -> list[Source]:
        return [Source(path, self._scheduler_host.sha256(path)) for path in proposal.made.sources]

    def _write(self, proposal: Proposal) -> None:
        disk = self._scheduler_host.disk
        for directory in _directories(proposal):
            disk.make_directory(directory, mode=0o755)
        for planned in proposal.plan.files:
            if disk.read(planned.path) == planned.content:
                disk.sweep(planned.path)
                continue
            # Nothing in a new file of ours is secret; one that was made from another is guarded as that one is.
            disk.put_like(planned.path, planned.content, disk.find(planned.like) if planned.like is not None else None)
            self._say(f"wrote {planned.path}")

    def _wait(self, before: Look, changed: list[PlannedFile]) -> str | None:
        if self._patience.limit_s <= 0:
            return None
        self._say(f"waiting until the new kube-scheduler is healthy{' and leads' if self._renewed is not None else ''}")
        # Where the trigger is as wished already (a crash in the middle, a repaired file), nobody will start another one.
        kubelet_acts = self._scheduler_host.target.restarts_itself and any(
            file.path == self._scheduler_host.target.trigger for file in changed
        )
        return wait_for_new(self._scheduler, before, self._patience, restarted=not kubelet_acts, renewed=self._renewed)

    def _roll_back(self, journal: Record, why: str) -> RolledBack:
        """The files of before this apply: the original ones, or those of the apply before."""
        scheduler_host = self._scheduler_host
        words = self._scheduler.last_words()
        self._say(f"kube-scheduler {why}: rolling back")
        overwritten = self._overwritten(scheduler_host.disk.find(journal.trigger)) and not self._is_back(journal)
        back = {
            file.path: scheduler_host.archive.put_back(file.path, file.before)
            for file in sorted(journal.files, key=lambda file: file.path != journal.trigger)
            if file.before is not None and not (overwritten and file.path == journal.trigger)
        }
        ending = "the former files are back"
        if overwritten:  # by kubeadm upgrade, say: the backup may be of another version, and nothing there names our files
            ending = f"{journal.trigger} was written anew in the meantime; it stays as it is"
        elif back[journal.trigger] or not scheduler_host.target.restarts_itself:
            ending += self._after_roll_back()
        if all(file.before == file.original for file in journal.files):
            scheduler_host.archive.leave_nothing(journal)
        else:
            there = [(file, file.before) for file in journal.files if file.before is not None and file.before.sha256 is not None]
            files = [Tracked(file.path, file.original, written=before.sha256) for file, before in there]
            self._settle(msgspec.structs.replace(journal, state="applied", files=files))
        return RolledBack("\n".join(part for part in (f"kube-scheduler {why}", words, ending) if part))

    def _is_back(self, journal: Record) -> bool:
        tracked = journal.file(journal.trigger)
        return (
            tracked is not None
            and tracked.before is not None
            and self._scheduler_host.archive.is_back(journal.trigger, tracked.before)
        )

    def _after_roll_back(self) -> str:
        try:
            self._scheduler_host.target.restart()
        except InstallError as error:
            return f", but {error}"
        if self._patience.limit_s <= 0:
            return ""
        # Whoever is healthy now is the old one, or was never replaced.
        still = wait_for_new(self._scheduler, Look(False, ""), self._patience, restarted=True)
        return ", and kube-scheduler is healthy" if still is None else f", but kube-scheduler {still}"

    def _settle(self, record: Record) -> None:
        self._scheduler_host.archive.save(record)
        self._scheduler_host.archive.forget_all_but(record.needed)


def restore(
    scheduler_host: SchedulerHost, scheduler: Scheduler, *, patience: Patience, force: bool = False, say: Say = lambda _line: None
) -> Outcome:
    """Everything as it was before accelshare, to the byte, and no file of ours left."""
    if not scheduler_host.archive_directory.is_dir():
        _refuse_without_record(scheduler_host)
        return "nothing to restore"
    with scheduler_host.archive.alone(InstallError):
        record = scheduler_host.record()
        if record is None:
            _refuse_without_record(scheduler_host)
            scheduler_host.archive.destroy()  # what an apply left that ended before its journal was written
            return "nothing to restore"
        _refuse_to_restore_over_others(scheduler_host, record, force, say)
        before = scheduler.look()
        if record.state != "restoring":
            scheduler_host.archive.save(msgspec.structs.replace(record, state="restoring"))
        why = None
        if _put_trigger_back(scheduler_host, record, force, say):
            why = _restarted(scheduler_host, scheduler, before, patience, say)
        for file in record.files:
            if file.path != record.trigger and scheduler_host.archive.put_back(file.path, file.original):
                say(f"{'restored' if file.original.sha256 else 'removed'} {file.path}")
        scheduler_host.archive.leave_nothing(record)
    if why is not None:
        words = scheduler.last_words()
        raise InstallError("\n".join([f"the original files are back, but kube-scheduler {why}", *([words] if words else [])]))
    return "restored"


def _refuse_to_restore_over_others(scheduler_host: SchedulerHost, record: Record, force: bool, say: Say) -> None:
    foreign = [
        file
        for file in record.files
        if not (file.path == record.trigger and _stays(scheduler_host, record))
        and scheduler_host.sha256(file.path) not in file.known
    ]
    if not foreign:
        return
    originals = {file.path: scheduler_host.archive.content(file.original) for file in foreign}
    lost = "".join(unified(path, scheduler_host.disk.read(path), original) for path, original in originals.items())
    if not force:
        raise ChangedByOthers(
            f"{' and '.join(originals)} was changed by somebody else since accelshare wrote it; --force brings the original back "
            f"all the same, at this price:\n{lost}"
        )
    say(f"overruled:\n{lost}")


def _stays(scheduler_host: SchedulerHost, record: Record) -> bool:
    """A trigger that was written anew has nothing of ours in it, and its backup is of another version of kube-scheduler."""
    content = scheduler_host.disk.read(record.trigger)
    return content is not None and not scheduler_host.target.is_ours(content)


def _put_trigger_back(scheduler_host: SchedulerHost, record: Record, force: bool, say: Say) -> bool:
    tracked = record.file(record.trigger)
    assert tracked is not None, "a record is about its trigger"
    now = scheduler_host.sha256(record.trigger)
    if now is None and tracked.original.sha256 is not None and not force:
        say(f"{record.trigger} is gone; it stays so")
    elif _stays(scheduler_host, record):
        if now != tracked.original.sha256:
            say(f"{record.trigger} was written anew without accelshare; it stays as it is")
    elif scheduler_host.archive.put_back(record.trigger, tracked.original):
        say(f"{'restored' if tracked.original.sha256 else 'removed'} {record.trigger}")
        return True
    scheduler_host.disk.sweep(record.trigger)
    return False


def _restarted(scheduler_host: SchedulerHost, scheduler: Scheduler, before: Look, patience: Patience, say: Say) -> str | None:
    try:
        scheduler_host.target.restart()
    except InstallError as error:
        return f"could not be restarted: {error}"
    if patience.limit_s <= 0:
        return None
    say("waiting until kube-scheduler is healthy")
    return wait_for_new(scheduler, before, patience, restarted=not scheduler_host.target.restarts_itself)


def _refuse_without_record(scheduler_host: SchedulerHost) -> None:
    trigger = scheduler_host.disk.read(scheduler_host.target.trigger)
    if trigger is not None and scheduler_host.target.is_ours(trigger):
        raise NotUnderstood(
            f"{scheduler_host.target.trigger} is of our making, but its record in {scheduler_host.archive_directory} is gone, "
            "so that what was there before is not known; take the settings out by hand"
        )


def _directories(proposal: Proposal) -> list[Path]:
    return list(dict.fromkeys(Path(file.path).parent for file in proposal.plan.files))
