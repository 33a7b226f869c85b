"""Reads and ends processes of this machine through /proc."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Identity:
    """A process id together with its start time: an id that the kernel reused is another identity."""

    pid: int
    start: str

    @property
    def running(self) -> bool:
        return _look(self.pid) == self

    def signal(self, number: signal.Signals) -> None:
        """Nothing happens to a process that has ended."""
        try:
            descriptor = os.pidfd_open(self.pid)  # keeps the identity while we check once more
        except ProcessLookupError:
            return
        try:
            if self.running:
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            pass
        finally:
            os.close(descriptor)


def identity(pid: int) -> Identity | None:
    """The living process with this id, if there is one."""
    return _look(pid)


def everyone() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def name(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def marked(variable: str, value: str) -> list[Identity]:
    """All that were started with this variable in their environment."""
    wanted = f"{variable}={value}".encode()
    return _alive(pid for pid in everyone() if pid != os.getpid() and wanted in _environment(pid))


def end(them: Iterable[Identity], limit_s: float = 120.0) -> None:
    """SIGKILL, and wait until each is gone."""
    left = list(them)
    deadline = time.monotonic() + limit_s
    while left:
        for process in left:
            process.signal(signal.SIGKILL)
        time.sleep(0.02)
        left = [process for process in left if process.running]
        if left and time.monotonic() > deadline:
            shown = ", ".join(f"{process.pid} ({name(process.pid)})" for process in left)
            raise ClusterError(
                f"still there {limit_s:g} s after SIGKILL: {shown}; the kernel is holding them, see /proc/PID/stack"
            )


def alive(pids: Iterable[int]) -> list[Identity]:
    return _alive(pids)


def _alive(pids: Iterable[int]) -> list[Identity]:
    return [found for pid in pids if (found := _look(pid)) is not None]


def _look(pid: int) -> Identity | None:
    """None also for a zombie: it has ended, only its parent has not reaped it yet.

    While a killed process ends, its first thread may be a zombie before the others are, and they still hold its ports.
    """
    directory = _PROC / str(pid)
    try:
        fields = _stat(directory)
        ended = fields[0] in "ZX" and not any(_is_alive(thread) for thread in (directory / "task").iterdir())
    except OSError:
        return None
    return None if ended else Identity(pid, fields[19])


def _is_alive(thread: Path) -> bool:
    try:
        return _stat(thread)[0] not in "ZX"
    except OSError:
        return False  # it has ended meanwhile


def _stat(directory: Path) -> list[str]:
    return (directory / "stat").read_text().rpartition(")")[2].split()


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
