"""`runtime-config apply` and `restore`: enable the runtime's validator in its files, and restore the files.

The drop-in is written before the line that imports it, and restored after it. Nothing takes effect before the runtime is
restarted: `restart` and `wait_until_enabled` do that on request.

Belongs here: the order of the steps. Never: what the files say (`plan.py`), how one file is changed (`host_files/`).
"""

import shlex
import subprocess
import time
from typing import Any, Final

import msgspec

from accelshare import __version__
from accelshare.install.errors import ChangedByOthers, InstallError, NotUnderstood, Rejected
from accelshare.install.host_files.changes import ChangeOutcome, Say
from accelshare.install.runtime.host import RuntimeHost, RuntimeRecord
from accelshare.install.runtime.plan import RuntimePlan
from accelshare.install.runtime.program import require_planned_change_only
from accelshare.runtimes.validator_status import ValidatorStatus

_RESTART_LIMIT_S: Final = 300.0
_POLL_S: Final = 0.2


def apply(host: RuntimeHost, *, force: bool = False, say: Say = lambda _line: None) -> ChangeOutcome:
    """Enable the validator in the runtime's files, or leave everything unchanged and raise."""
    with host.archive.locked(create=True):
        return _apply(host, host.propose(), force, say)


def _apply(host: RuntimeHost, plan: RuntimePlan, force: bool, say: Say) -> ChangeOutcome:
    for notice in plan.notices:
        say(f"note: {notice}")
    record, changes = host.record(), host.changes
    try:
        changes.refuse_to_overwrite(plan.files, record)
    except ChangedByOthers as refusal:
        if not force:
            raise
        say(f"overruled: {refusal}")
    changed = changes.different(plan.files)
    if not changed:
        if record is not None and record.state != "applied":
            host.archive.save(msgspec.structs.replace(record, state="applied"))
        elif record is None and plan.files:
            say(f"nothing to change, but without a record in {host.archive_directory} it cannot be restored")
        return "unchanged"
    before = _dump(host)
    files = {file.path: file for file in record.files} if record is not None else {}
    files |= {file.path: changes.track(file, record) for file in changed}
    journal = RuntimeRecord(
        str(host.config),
        state="applying",
        files=list(files.values()),
        made=changes.new_directories(changed, record),
        accelshare=__version__,
    )
    host.archive.save(journal)
    try:
        changes.write(changed, say)
        if before is not None:
            require_planned_change_only(before, _dump(host) or {})
    except (OSError, InstallError) as error:
        changes.roll_back(journal)
        changes.finish_roll_back(journal)
        raise Rejected(f"{error}; the former files are restored") from error
    done = [msgspec.structs.replace(file, before=None) for file in journal.files]
    changes.finish(msgspec.structs.replace(journal, state="applied", files=done))
    return "applied"


def restore(host: RuntimeHost, *, force: bool = False, say: Say = lambda _line: None) -> ChangeOutcome:
    """Restore the original files to the byte, and remove every file of accelshare."""
    if not host.archive_directory.is_dir():
        return "nothing to restore"
    with host.archive.locked():
        record, changes = host.record(), host.changes
        if record is None:
            host.archive.destroy()  # left by an apply that was interrupted before it saved its record
            return "nothing to restore"
        try:
            changes.refuse_to_restore_over(record.files)
        except ChangedByOthers as refusal:
            if not force:
                raise
            say(f"overruled: {refusal}")
        changes.begin_restore(record, record.files)
        for file in reversed(record.files):
            changes.restore(file, say)
        host.archive.remove_all(record)
    return "restored"


def parsed(command: str) -> list[str]:
    """The words of a command that restarts the runtime. Raises NotUnderstood."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise NotUnderstood(
            f"--restart-command {command!r} cannot be read: {error}; it must be a command as in a shell"
        ) from error
    if not words:
        raise NotUnderstood(f"--restart-command is {command!r}; it must be a command, such as systemctl restart containerd")
    return words


def restart(command: str) -> None:
    """Run the command that restarts the runtime."""
    try:
        done = subprocess.run(parsed(command), capture_output=True, text=True, timeout=_RESTART_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"the files are written, but `{command}` failed: {error}") from error
    if done.returncode != 0:
        output = done.stderr.strip() or done.stdout.strip() or "no output"
        raise InstallError(f"the files are written, but `{command}` ended with {done.returncode}: {output}")


def wait_until_enabled(host: RuntimeHost, limit_s: float) -> ValidatorStatus:
    """The validator's status when it is enabled, or when the time is up."""
    deadline = time.monotonic() + limit_s
    while not (validator := host.validator()).enabled and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return validator


def _dump(host: RuntimeHost) -> dict[str, Any] | None:
    """containerd's own reading of its files, where its program is available."""
    return host.program.dump(host.config) if host.program is not None and host.runtime == "containerd" else None
