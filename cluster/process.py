"""A program that we started: its log, its state and its end. It never outlives us.

Every program leads its own process group, so that Ctrl-C in a terminal reaches only us and we end the programs in order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from cluster.errors import ClusterError, ProcessError
from cluster.waiting import wait_until

_END_WITH_PARENT: Final = Path(__file__).with_name("end_with_parent.py")
_LAST_LINES: Final = 15
_FIRST_WORD_S: Final = 2.0
_WORD_EVERY_S: Final = 5.0

# The kernel's parent-death signal fires when the *thread* that started a child ends, so one thread that lives as long as
# the interpreter starts them all; a caller's worker thread may come and go.
_starter: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="process-starter")


class Process:
    """One running program. `log` holds all it prints."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        url: str = "",
    ) -> None:
        self.name = name
        self.log = log
        self.url = url  # where it serves, if it does
        log.parent.mkdir(parents=True, exist_ok=True)
        whole = with_parent(command)
        with log.open("wb") as output:
            self._popen = _starter.submit(
                subprocess.Popen[bytes],
                whole,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=directory,
                start_new_session=True,
            ).result()

    def __repr__(self) -> str:
        state = "running" if self.running else f"ended with {self.exit_code}"
        return f"<{self.name} pid={self.pid} {state}>"

    @property
    def pid(self) -> int:
        """Its process id, which is also its process group."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._popen.poll()

    def last_lines(self, count: int = _LAST_LINES) -> str:
        """The end of its log."""
        lines = self.log.read_text(errors="replace").splitlines()[-count:]
        return "\n".join(f"  {line}" for line in lines)

    def wait_ended(self, say: Callable[[str], None], how_far: Callable[[], str]) -> int:
        """Its exit code once it has ended; until then, `say` prints progress. If the wait ends early, the program is ended."""
        begun = time.monotonic()
        pause_s = _FIRST_WORD_S
        try:
            while True:
                try:
                    return self._popen.wait(pause_s)
                except subprocess.TimeoutExpired:
                    say(f"{self.name} … {time.monotonic() - begun:.0f} s{how_far()}")
                    pause_s = _WORD_EVERY_S
        finally:
            self.stop()  # Ctrl-C reaches only us

    def wait_ready(self, ready: Callable[[], bool], limit_s: float = 300.0) -> None:
        """Return once `ready` is true; raise an error if the program ends first or takes too long."""

        def ready_or_dead() -> bool:
            if not self.running:
                raise ProcessError(f"{self.name} ended with exit code {self.exit_code} before it was ready; {self._evidence()}")
            return ready()

        try:
            wait_until(ready_or_dead, f"{self.name} ready", limit_s)
        except ProcessError:
            raise
        except ClusterError as error:
            raise ProcessError(f"{self.name} runs but was not ready within {limit_s:g} s; {self._evidence()}") from error

    def stop(self, limit_s: float = 60.0) -> None:
        """Ask it to end, and end it if it does not. Stopping what has ended changes nothing."""
        self.terminate()
        try:
            self._popen.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def terminate(self) -> None:
        """Ask it to end; do not wait."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        self._popen.wait()

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and does nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT, after a pause."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if not self.running:  # polled just now, so an id that the kernel reused is never signalled
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def _evidence(self) -> str:
        return f"the end of {self.log}:\n{self.last_lines()}"


def with_parent(command: Sequence[str | Path]) -> list[str | Path]:
    """The same command, killed by the kernel when the thread that starts it, or this process, ends."""
    return [sys.executable, "-I", "-S", _END_WITH_PARENT, str(os.getpid()), *command]


def last_lines(*processes: Process | None) -> str:
    """The end of each log, for the error of a wait; a process that was not started has none."""
    return "".join(f"\n--- {process.name}\n{process.last_lines()}" for process in processes if process is not None)
