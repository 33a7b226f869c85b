"""A program that keeps running after its starter ends; any later process finds it by its pid file and can end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cluster.errors import ProcessError
from cluster.local import cgroups, namespace, processes
from cluster.local.layout import MARK, Layout
from cluster.local.processes import Identity

LAUNCH: Final = Path(__file__).with_name("launch.py")
_LAST_LINES: Final = 15


class Daemon:
    """One program by its name; whether it runs is read from the kernel each time."""

    def __init__(self, layout: Layout, name: str) -> None:
        self._layout = layout
        self._pid_file = layout.pids / name
        self.name = name
        self.log = layout.logs / f"{name}.log"

    @property
    def running(self) -> bool:
        return self.identity is not None

    @property
    def identity(self) -> Identity | None:
        """The living process, also if another of our processes started it."""
        try:
            pid, start = self._pid_file.read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        written = Identity(int(pid), start)
        return written if written.running else None

    def start(self, command: Sequence[str | Path], *, inside: bool = True) -> None:
        """In the node's cgroup, and in its namespaces unless it creates them. The log is appended to."""
        namespaces = namespace_files(self._layout) if inside else ""
        groups = cgroups.daemons(self._layout)
        launcher: list[str | Path] = [sys.executable, "-I", "-S", LAUNCH, self._pid_file, groups, namespaces]
        with self.log.open("ab") as log:
            subprocess.run(
                [*launcher, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(self._layout),
                cwd="/",
                check=False,
            )
        if not self.running:
            raise ProcessError(f"{self.name} did not start; {self.evidence()}")

    def kill(self) -> None:
        """End it as a crash would, and wait until it is gone."""
        if (found := self.identity) is not None:
            processes.end([found])

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and does nothing."""
        if (found := self.identity) is not None:
            found.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT, after a pause."""
        if (found := self.identity) is not None:
            found.signal(signal.SIGCONT)

    def check(self) -> None:
        """Raise an error if it has ended."""
        if not self.running:
            raise ProcessError(f"{self.name} has ended; {self.evidence()}")

    def evidence(self) -> str:
        return f"the end of {self.log}:\n{last_lines(self.log)}"


def namespace_files(layout: Layout) -> str:
    """The node's namespaces, in the form of launch.py."""
    kinds = namespace.KINDS_OF_FIRST if layout.first else namespace.KINDS
    return ":".join(f"/proc/{holder(layout)}/ns/{kind}" for kind in kinds)


def holder(layout: Layout) -> int:
    """The id of the process that holds the node's namespaces open."""
    found = Daemon(layout, "namespace").identity
    if found is None:
        raise ProcessError(f"the namespaces of {layout.node_name} have no holder: it is not up")
    return found.pid


def environment(layout: Layout) -> dict[str, str]:
    """Of everything that runs in the cluster: our programs first, and the mark by which they are found."""
    path = ":".join([str(layout.tools), str(layout.programs), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    kept = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    return {**kept, "PATH": path, "HOME": str(layout.state), MARK: str(layout.cluster)}


def last_lines(log: Path, count: int = _LAST_LINES) -> str:
    lines = log.read_text(errors="replace").splitlines()[-count:] if log.exists() else []
    return "\n".join(f"  {line}" for line in lines) or "  (empty)"


def wait_for(path: Path, limit_s: float) -> bool:
    """Whether the file appears in time."""
    deadline = time.monotonic() + limit_s
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
