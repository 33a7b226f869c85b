"""Put the plan in, and take it out again: backup, journal, write, check.

The journal is written before the first change, and every file is replaced whole. So whatever ends this program in the middle,
the next `apply` finishes what was begun and the next `restore` undoes it. Our own file is there before the line that names it,
and goes after it. Nothing takes effect before the runtime is restarted, which is not done here.

Belongs here: order. Never: what the files say, how one file is replaced or brought back (`files/`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from accelshare import __version__
from accelshare.install.errors import ChangedByOthers, InstallError, Rejected
from accelshare.install.host_files.difference import unified
from accelshare.install.host_files.disk import Found, sha256
from accelshare.install.runtime.host import RuntimeHost
from accelshare.install.runtime.plan import Plan, PlannedFile
from accelshare.install.runtime.program import require_only_the_wished
from accelshare.install.runtime.record import Record, Tracked

Outcome = Literal["applied", "unchanged", "restored", "nothing to restore"]
Say = Callable[[str], None]


def apply(runtime_host: RuntimeHost, *, force: bool = False, say: Say = lambda _line: None) -> Outcome:
    """Make the files say that the runtime insists, or leave everything as it was and say why."""
    with runtime_host.archive.alone(InstallError, make=True):
        return _apply(runtime_host, runtime_host.propose(), force, say)


def _apply(runtime_host: RuntimeHost, plan: Plan, force: bool, say: Say) -> Outcome:
    for notice in plan.notices:
        say(f"note: {notice}")
    record = runtime_host.record()
    _refuse_to_lose_work(runtime_host, plan, force, say)
    changed = [file for file in plan.files if runtime_host.disk.read(file.path) != file.content]
    if not changed:
        if record is not None and record.state != "applied":
            runtime_host.archive.save(msgspec.structs.replace(record, state="applied"))
        elif record is None and plan.files:
            say(f"all is as wished, but without a record in {runtime_host.archive_directory} it cannot be taken back")
        return "unchanged"
    before = _dump(runtime_host)
    former = {file.path: runtime_host.disk.find(file.path) for file in changed}
    journal = _begin(runtime_host, changed, record)
    try:
        _write(runtime_host, changed, say)
        if before is not None:
            require_only_the_wished(before, _dump(runtime_host) or {})
    except (OSError, InstallError) as error:
        _roll_back(runtime_host, journal, record, former)
        raise Rejected(f"{error}; the former files are back") from error
    runtime_host.archive.save(msgspec.structs.replace(journal, state="applied"))
    return "applied"


def restore(runtime_host: RuntimeHost, *, force: bool = False, say: Say = lambda _line: None) -> Outcome:
    """Everything as it was before accelshare, to the byte, and no file of ours left."""
    if not runtime_host.archive_directory.is_dir():
        return "nothing to restore"
    with runtime_host.archive.alone(InstallError):
        record = runtime_host.record()
        if record is None:
            runtime_host.archive.destroy()  # what an apply left that ended before its journal was written
            return "nothing to restore"
        _refuse_to_restore_over_others(runtime_host, record, force, say)
        back = _to_be_put_back(runtime_host, record)
        if record.state != "restoring":
            runtime_host.archive.save(msgspec.structs.replace(record, state="restoring"))
        for file in back:
            runtime_host.archive.put_back(file.path, file.original)
            say(f"{'restored' if file.original.sha256 else 'removed'} {file.path}")
        runtime_host.archive.leave_nothing(record)
    return "restored"


def _refuse_to_lose_work(runtime_host: RuntimeHost, plan: Plan, force: bool, say: Say) -> None:
    foreign = runtime_host.foreign(plan)
    if not foreign:
        return
    lost = runtime_host.difference(Plan(tuple(file for file in plan.files if file.path in foreign)))
    words = f"{' and '.join(map(str, foreign))} was written by somebody else"
    if not force:
        raise ChangedByOthers(f"{words}; --force overrules that, at this price:\n{lost}")
    say(f"overruled: {words}:\n{lost}")


def _refuse_to_restore_over_others(runtime_host: RuntimeHost, record: Record, force: bool, say: Say) -> None:
    foreign = [file for file in record.files if not file.knows(runtime_host.disk.find(file.path))]
    if not foreign:
        return
    lost = "".join(
        unified(file.path, runtime_host.disk.read(file.path), runtime_host.archive.content(file.original)) for file in foreign
    )
    words = f"{' and '.join(file.path for file in foreign)} was changed by somebody else since accelshare wrote it"
    if not force:
        raise ChangedByOthers(f"{words}; --force brings the original back all the same, at this price:\n{lost}")
    say(f"overruled: {words}:\n{lost}")


def _to_be_put_back(runtime_host: RuntimeHost, record: Record) -> list[Tracked]:
    """What is not as it was, the line that names our file before our file; all backups are whole, or none is touched."""
    back = [file for file in reversed(record.files) if not runtime_host.archive.is_back(file.path, file.original)]
    for file in back:
        runtime_host.archive.content(file.original)
    return back


def _dump(runtime_host: RuntimeHost) -> dict[str, Any] | None:
    """containerd's own reading, where it can be had."""
    return (
        runtime_host.program.dump(runtime_host.config)
        if runtime_host.program is not None and runtime_host.runtime == "containerd"
        else None
    )


def _begin(runtime_host: RuntimeHost, changed: list[PlannedFile], record: Record | None) -> Record:
    """The journal: all that is about to happen, with everything that it takes to undo it."""
    files = {file.path: file for file in record.files} if record is not None else {}
    for planned in changed:
        tracked, found = files.get(str(planned.path)), runtime_host.disk.find(planned.path)
        if tracked is None or (not planned.ours and not tracked.knows(found)):
            # If there was one, the operator has written the file anew, without us: that is now what a restore brings back.
            tracked = Tracked(str(planned.path), runtime_host.archive.keep(found))
        elif found is not None and found.sha256 == tracked.original.sha256:
            runtime_host.archive.keep(found)  # a restore that ended in the middle may have thrown it away
        files[tracked.path] = msgspec.structs.replace(tracked, written=[*tracked.written, sha256(planned.content)])
    made = dict.fromkeys(record.made if record is not None else [])
    made |= dict.fromkeys(str(file.path.parent) for file in changed if not file.path.parent.is_dir())
    journal = Record(
        str(runtime_host.config), state="applying", files=list(files.values()), made=list(made), accelshare=__version__
    )
    runtime_host.archive.save(journal)
    return journal


def _write(runtime_host: RuntimeHost, changed: list[PlannedFile], say: Say) -> None:
    for planned in changed:
        runtime_host.disk.make_directory(planned.path.parent, mode=0o755)
        runtime_host.disk.put_like(planned.path, planned.content, runtime_host.disk.find(planned.path))
        say(f"wrote {planned.path}")


def _roll_back(runtime_host: RuntimeHost, journal: Record, record: Record | None, former: dict[Path, Found | None]) -> None:
    """The files of before this apply."""
    for path, found in reversed(former.items()):
        if runtime_host.disk.find(path) != found:
            runtime_host.disk.put_back(path, found)
    if record is None:
        runtime_host.archive.leave_nothing(journal)
    else:
        runtime_host.archive.save(record)
