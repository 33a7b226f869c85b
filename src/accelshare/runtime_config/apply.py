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
from accelshare.files.difference import unified
from accelshare.files.disk import Found, sha256
from accelshare.runtime_config.plan import Plan, PlannedFile
from accelshare.runtime_config.problems import ChangedByOthers, Rejected, RuntimeConfigError
from accelshare.runtime_config.program import require_only_the_wished
from accelshare.runtime_config.record import Record, Tracked
from accelshare.runtime_config.site import Site

Outcome = Literal["applied", "unchanged", "restored", "nothing to restore"]
Say = Callable[[str], None]


def apply(site: Site, *, force: bool = False, say: Say = lambda _line: None) -> Outcome:
    """Make the files say that the runtime insists, or leave everything as it was and say why."""
    with site.archive.alone(RuntimeConfigError, make=True):
        return _apply(site, site.propose(), force, say)


def _apply(site: Site, plan: Plan, force: bool, say: Say) -> Outcome:
    for notice in plan.notices:
        say(f"note: {notice}")
    record = site.record()
    _refuse_to_lose_work(site, plan, force, say)
    changed = [file for file in plan.files if site.disk.read(file.path) != file.content]
    if not changed:
        if record is not None and record.state != "applied":
            site.archive.save(msgspec.structs.replace(record, state="applied"))
        elif record is None and plan.files:
            say(f"all is as wished, but without a record in {site.archive_directory} it cannot be taken back")
        return "unchanged"
    before = _dump(site)
    former = {file.path: site.disk.find(file.path) for file in changed}
    journal = _begin(site, changed, record)
    try:
        _write(site, changed, say)
        if before is not None:
            require_only_the_wished(before, _dump(site) or {})
    except (OSError, RuntimeConfigError) as error:
        _roll_back(site, journal, record, former)
        raise Rejected(f"{error}; the former files are back") from error
    site.archive.save(msgspec.structs.replace(journal, state="applied"))
    return "applied"


def restore(site: Site, *, force: bool = False, say: Say = lambda _line: None) -> Outcome:
    """Everything as it was before accelshare, to the byte, and no file of ours left."""
    if not site.archive_directory.is_dir():
        return "nothing to restore"
    with site.archive.alone(RuntimeConfigError):
        record = site.record()
        if record is None:
            site.archive.destroy()  # what an apply left that ended before its journal was written
            return "nothing to restore"
        _refuse_to_restore_over_others(site, record, force, say)
        back = _to_be_put_back(site, record)
        if record.state != "restoring":
            site.archive.save(msgspec.structs.replace(record, state="restoring"))
        for file in back:
            site.archive.put_back(file.path, file.original)
            say(f"{'restored' if file.original.sha256 else 'removed'} {file.path}")
        site.archive.leave_nothing(record)
    return "restored"


def _refuse_to_lose_work(site: Site, plan: Plan, force: bool, say: Say) -> None:
    foreign = site.foreign(plan)
    if not foreign:
        return
    lost = site.difference(Plan(tuple(file for file in plan.files if file.path in foreign)))
    words = f"{' and '.join(map(str, foreign))} was written by somebody else"
    if not force:
        raise ChangedByOthers(f"{words}; --force overrules that, at this price:\n{lost}")
    say(f"overruled: {words}:\n{lost}")


def _refuse_to_restore_over_others(site: Site, record: Record, force: bool, say: Say) -> None:
    foreign = [file for file in record.files if not file.knows(site.disk.find(file.path))]
    if not foreign:
        return
    lost = "".join(unified(file.path, site.disk.read(file.path), site.archive.content(file.original)) for file in foreign)
    words = f"{' and '.join(file.path for file in foreign)} was changed by somebody else since accelshare wrote it"
    if not force:
        raise ChangedByOthers(f"{words}; --force brings the original back all the same, at this price:\n{lost}")
    say(f"overruled: {words}:\n{lost}")


def _to_be_put_back(site: Site, record: Record) -> list[Tracked]:
    """What is not as it was, the line that names our file before our file; all backups are whole, or none is touched."""
    back = [file for file in reversed(record.files) if not site.archive.is_back(file.path, file.original)]
    for file in back:
        site.archive.content(file.original)
    return back


def _dump(site: Site) -> dict[str, Any] | None:
    """containerd's own reading, where it can be had."""
    return site.program.dump(site.config) if site.program is not None and site.runtime == "containerd" else None


def _begin(site: Site, changed: list[PlannedFile], record: Record | None) -> Record:
    """The journal: all that is about to happen, with everything that it takes to undo it."""
    files = {file.path: file for file in record.files} if record is not None else {}
    for planned in changed:
        tracked, found = files.get(str(planned.path)), site.disk.find(planned.path)
        if tracked is None or (not planned.ours and not tracked.knows(found)):
            # If there was one, the operator has written the file anew, without us: that is now what a restore brings back.
            tracked = Tracked(str(planned.path), site.archive.keep(found))
        elif found is not None and found.sha256 == tracked.original.sha256:
            site.archive.keep(found)  # a restore that ended in the middle may have thrown it away
        files[tracked.path] = msgspec.structs.replace(tracked, written=[*tracked.written, sha256(planned.content)])
    made = dict.fromkeys(record.made if record is not None else [])
    made |= dict.fromkeys(str(file.path.parent) for file in changed if not file.path.parent.is_dir())
    journal = Record(str(site.config), state="applying", files=list(files.values()), made=list(made), accelshare=__version__)
    site.archive.save(journal)
    return journal


def _write(site: Site, changed: list[PlannedFile], say: Say) -> None:
    for planned in changed:
        site.disk.make_directory(planned.path.parent, mode=0o755)
        site.disk.put_like(planned.path, planned.content, site.disk.find(planned.path))
        say(f"wrote {planned.path}")


def _roll_back(site: Site, journal: Record, record: Record | None, former: dict[Path, Found | None]) -> None:
    """The files of before this apply."""
    for path, found in reversed(former.items()):
        if site.disk.find(path) != found:
            site.disk.put_back(path, found)
    if record is None:
        site.archive.leave_nothing(journal)
    else:
        site.archive.save(record)
