"""A shell on an overlay of this machine, whose changes are discarded.

All of its files are seen through an overlay, so a command may write to /etc or into the checkout and nobody outside notices.
It has processes of its own too, which end with it. It shares the network, so that it reaches what a test has started.

Belongs here: making it, and typing into its shell. Never: what is typed.
"""

import os
import queue
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from cluster.build import binaries
from cluster.cache import cache_directory
from tests.contract.docs.pages import ROOT

LIMIT_S = 300.0
STAND_IN = Path(__file__).with_name("fake_systemctl.py")
PROGRAMS = ("kubectl", "kubeadm", "kube-scheduler", "helm", "containerd")
_MAKE = """
set -e
mount -t tmpfs none "$1"
here=$1; checkout=$2; shift 2
root=$here/root
mkdir -p "$here/all" "$here/all-work" "$root" "$here/checkout" "$here/checkout-work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$here/all,workdir=$here/all-work" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
for directory in "$@"; do
  mkdir -p "$root$directory"
  mount --rbind "$directory" "$root$directory"
done
mkdir -p "$root$checkout"
mount -t overlay overlay -o "lowerdir=$checkout,upperdir=$here/checkout,workdir=$here/checkout-work" "$root$checkout"
exec chroot "$root" /bin/bash --noprofile --norc
"""


@dataclass(frozen=True, slots=True)
class Done:
    """How a line ended, and what it printed."""

    code: int
    out: str
    err: str


class Machine:
    """One shell, in which `cd` and `export` last from line to line."""

    def __init__(self, directory: Path, *, seen: Sequence[Path] = (), environment: Mapping[str, str] | None = None) -> None:
        self._answers: queue.Queue[str] = queue.Queue()
        self._papers = directory / "papers"
        self._papers.mkdir(parents=True)
        self._log = (directory / "shell.log").open("wb")
        self._lines = 0
        place = directory / "machine"
        place.mkdir()
        own = {"PATH": _search_path(directory / "tools"), "HOME": "/root", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        shared = dict.fromkeys(
            str(path) for path in (directory, Path(sys.base_prefix), Path(sys.prefix), cache_directory(), *seen)
        )
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        self._shell = subprocess.Popen(
            [*unshare, "sh", "-c", _MAKE, "sh", str(place), str(ROOT), *shared],
            cwd=ROOT,
            env={**own, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            bufsize=1,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        # Jobs get signals of their own, as in a terminal.
        first = self._ask(f"cd {shlex.quote(str(ROOT))} && set -m; printf 'here\\n'", LIMIT_S)
        if first != "here":
            self.close()
            pytest.skip(f"no overlay of this machine can be made: {(directory / 'shell.log').read_text().strip()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the shell, and with it all that it started."""
        self._shell.kill()
        self._shell.wait()
        self._listener.join()
        for stream in (self._shell.stdin, self._shell.stdout, self._log):
            if stream is not None:
                stream.close()

    def type(self, line: str, *, limit_s: float = LIMIT_S) -> Done:
        """Run a line to its end."""
        paper = self._paper()
        code = self._ask(f"{{ {line}\n}} > {paper}.out 2> {paper}.err < /dev/null\nprintf '%s\\n' \"$?\"", limit_s)
        assert code.isdigit(), f"not within {limit_s:g} s: {line}\n{self._printed(paper)}"
        return Done(int(code), *self._printed(paper))

    def begin(self, line: str) -> "Job":
        """Run a line that does not end by itself."""
        paper = self._paper()
        # A signal is for the line's own program; the shell around it waits, to tell how that ended.
        job = f"{{ trap : INT TERM\n{line}\n}} > {paper}.out 2> {paper}.err < /dev/null &"
        pid = self._ask(f"{job}\nprintf '%s\\n' \"$!\"", LIMIT_S)
        return Job(self, line, int(pid), lambda: self._printed(paper))

    def must(self, line: str) -> str:
        """What a line prints that is no command of the docs, and has to work."""
        done = self.type(line)
        assert done.code == 0, f"{line}: {done.err}"
        return done.out

    def write(self, path: str, content: str | bytes) -> None:
        """A file of this machine."""
        paper = self._paper()
        Path(paper).write_bytes(content.encode() if isinstance(content, str) else content)
        self.must(f"install -D -m 0644 {paper} {shlex.quote(path)}")

    def read(self, path: str) -> str:
        return self.must(f"cat {shlex.quote(path)}")

    def _paper(self) -> str:
        self._lines += 1
        paper = str(self._papers / str(self._lines))
        for stream in ("out", "err"):
            Path(f"{paper}.{stream}").touch()
        return paper

    @staticmethod
    def _printed(paper: str) -> tuple[str, str]:
        out, err = (Path(f"{paper}.{stream}").read_text(encoding="utf-8", errors="replace") for stream in ("out", "err"))
        return out, err

    def _ask(self, text: str, limit_s: float) -> str:
        """The shell's next own line; nothing if it has ended or takes too long."""
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.write(text + "\n")
            return self._answers.get(timeout=limit_s)
        except (BrokenPipeError, queue.Empty):
            return ""

    def _listen(self) -> None:
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            self._answers.put(line.rstrip("\n"))
        self._answers.put("")


class Job:
    """A line that runs on."""

    def __init__(self, machine: Machine, line: str, pid: int, printed: Callable[[], tuple[str, str]]) -> None:
        self._machine = machine
        self.line = line
        self._pid = pid
        self.printed = printed

    def until(self, pattern: str, about: str, limit_s: float = LIMIT_S) -> None:
        """Wait until it has printed this."""
        deadline = time.monotonic() + limit_s
        while re.search(pattern, text := "".join(self.printed())) is None:
            runs = self._machine.type(f"kill -0 {self._pid}").code == 0
            assert runs, f"{about}\n{self.line}: ended without printing {pattern!r}\n{text}"
            assert time.monotonic() < deadline, f"{about}\n{self.line}: did not say {pattern!r} in {limit_s:g} s\n{text}"
            time.sleep(0.1)

    def end(self, signal: str = "INT") -> int:
        """Its exit code after Ctrl-C, or another signal."""
        return self._machine.type(f"kill -{signal} -- -{self._pid}; wait {self._pid}").code


def _search_path(tools: Path) -> str:
    """Our own programs, then the machine's; systemctl is a stand-in."""
    tools.mkdir()
    (tools / "systemctl").write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    (tools / "systemctl").chmod(0o755)
    programs = binaries(PROGRAMS, lambda _words: None)
    ours = (tools, *(programs[name].parent for name in PROGRAMS), Path(sys.executable).parent)
    return os.pathsep.join([*dict.fromkeys(map(str, ours)), os.environ.get("PATH", os.defpath)])


def possible() -> str:
    """Why no such machine can be made here, or nothing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "an overlay of the machine, in which commands of the docs are typed, needs root on Linux"
    missing = [name for name in ("unshare", "mount", "chroot", "bash") if shutil.which(name) is None]
    return f"{', '.join(missing)} is not installed" if missing else ""
