"""`make test`, its siblings (`test-real`, `test-nodes`, `test-coscheduling`, `test-vm`) and `make fuzz`: run tests, then sum up.

Belongs here: which tests run, in which order, and the summary. Never: a test.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from cluster.build import binaries
from cluster.errors import ClusterError
from cluster.local.bring_up import provide
from cluster.process import with_parent
from cluster.versions import CONTROL_PLANE_PROGRAMS, KUEUE, PROGRAMS, SCHEDULER_PLUGINS
from cluster.vm import network, virtual_node

ROOT = Path(__file__).parents[1]
SLOWEST = 12  # files, and tests, that are named at the end with their time


@dataclass(frozen=True, slots=True)
class Stage:
    title: str
    pytest: Sequence[str]
    own_network: bool = False  # in a network namespace that ends with it


# Workers take file by file, in the order of collection: tests/contract, whose files are the slowest, comes first. Contract tests
# wait for processes much of the time, so there are two workers more than there are cores.
FAST_WORKERS = min((os.cpu_count() or 1) + 2, 8)
FAST = (
    Stage(
        "everything that needs neither root nor built programs",
        ["-q", "-n", str(FAST_WORKERS), "--no-loadscope-reorder", "-m", "not real and not vm", "tests"],
    ),
)
# A machine has one kubelet: the tests that need it run on one worker (tests/workers.py).
REAL_WORKERS = 3  # that one, and two more; with three more, a slow machine starves their API servers for seconds
REAL = (
    Stage(
        "on the real control plane, kubelet and containerd",
        ["-v", "-n", str(REAL_WORKERS), "--no-loadscope-reorder", "-m", "real", "tests/e2e", "tests/contract"],
    ),
)
# One cluster of three nodes, so one worker.
SEVERAL_NODES = (Stage("on three real nodes", ["-v", "-s", "--nodes", "tests/e2e/nodes"]),)


# Their kube-scheduler takes minutes to build, so they are no part of `make test-real`. One control plane, so one worker.
COSCHEDULING = (
    Stage(
        "with coscheduling on the real control plane", ["-v", "--coscheduling", "-k", "coscheduling", "tests/e2e/test_gangs.py"]
    ),
)

# One virtual node at a time, which takes two cores. What it prints is progress.
VIRTUAL = (Stage("on a virtual node with its own kernel", ["-v", "-s", "tests/vm"], own_network=True),)


@dataclass(slots=True)
class Summary:
    counts: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, list[str]] = field(default_factory=dict)  # reason → tests
    seconds: Counter[str] = field(default_factory=Counter)  # by file
    of_tests: Counter[str] = field(default_factory=Counter)  # seconds by test
    broken: list[str] = field(default_factory=list)  # name and first line of what went wrong

    def add(self, report: Path) -> None:
        for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 – pytest wrote it a moment ago
            skipped = case.find("skipped")
            broken = [found for kind in ("failure", "error") if (found := case.find(kind)) is not None]
            file = case.get("classname", "").replace(".", "/")
            self.seconds[file] += round(float(case.get("time", "0")))
            self.of_tests[f"{file}::{case.get('name')}"] += round(float(case.get("time", "0")))
            self.broken += [f"{file}::{case.get('name')}: {_first_line(one.get('message', ''))}" for one in broken]
            self.counts["failed" if broken else "skipped" if skipped is not None else "passed"] += 1
            if skipped is not None:
                self.skipped.setdefault(skipped.get("message", "no reason given"), []).append(f"{file}::{case.get('name')}")

    def show(self, took_s: float) -> None:
        _print(f"\n{took_s:.0f} s; the slowest files and tests, in seconds:")
        for name, seconds in self.seconds.most_common(SLOWEST) + self.of_tests.most_common(SLOWEST):
            _print(f"  {seconds:4} {name}")
        _print("could not run here:" if self.skipped else "nothing was skipped")
        for reason, names in self.skipped.items():
            _print(f"  {len(names)} × {reason}:")
            for name in sorted(names):
                _print(f"      {name}")
        for name in self.broken:
            _print(f"failed: {name}")
        _print(f"{self.counts['passed']} passed, {self.counts['failed']} failed, {self.counts['skipped']} skipped")


def main() -> int:
    options = sys.argv[1:]
    if "--fuzz" in options:
        from tests.fuzz.__main__ import main as fuzz

        at = options.index("--fuzz")
        return fuzz(["--cases", *options[at + 1 :], *options[:at]])
    stages: Sequence[Stage] = FAST
    try:
        if "--real" in options:
            options.remove("--real")
            stages = REAL
            _build_programs(*KUEUE.packages)
        elif "--nodes" in options:
            options.remove("--nodes")
            stages = SEVERAL_NODES
            _build_programs()
        elif "--coscheduling" in options:
            options.remove("--coscheduling")
            stages = COSCHEDULING
            binaries((*CONTROL_PLANE_PROGRAMS, *SCHEDULER_PLUGINS.packages), _print)
        elif "--vm" in options:
            options.remove("--vm")
            stages = VIRTUAL
            signal.signal(signal.SIGTERM, _interrupt)  # so that `kill` cleans up just as Ctrl-C does
            virtual_node.provide(_print)
    except ClusterError as error:
        what = "the virtual node" if stages is VIRTUAL else "the real control plane"
        _print(f"{what} cannot be built, and without it none of these tests can run:\n{error}")
        return 1
    return _run(stages, options)


def _build_programs(*more: str) -> None:
    if sys.platform != "linux":
        raise ClusterError(f"it is built for Linux only, this is {sys.platform}")
    if os.geteuid() == 0:
        provide(_print, (*PROGRAMS, *more))
    else:  # a kubelet needs root; kubeadm, which some tests ask for its manifests, does not
        binaries((*CONTROL_PLANE_PROGRAMS, "kubeadm", "helm", *more), _print)


def _run(stages: Sequence[Stage], options: Sequence[str]) -> int:
    started = time.monotonic()
    summary = Summary()
    codes = []
    with tempfile.TemporaryDirectory() as directory:
        for number, stage in enumerate(stages, start=1):
            _print(f"\n=== {number}/{len(stages)} {stage.title}")
            report = Path(directory) / f"{number}.xml"
            command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *stage.pytest, *options]
            codes.append(run_alone(command) if stage.own_network else _run_here(command))
            if report.exists():
                summary.add(report)
    summary.show(time.monotonic() - started)
    return max(codes)


def _run_here(command: Sequence[str]) -> int:
    return subprocess.run(command, cwd=ROOT, env=_environment(), check=False).returncode


def run_alone(command: Sequence[str]) -> int:
    """In a network namespace, and interrupted only through us: once, after which it has all the time to clean up."""
    alone = with_parent(network.in_namespace(command))
    # A background job of a shell ignores SIGINT, and so would its children. A signal with a handler is not ignored by them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(alone, cwd=ROOT, env=_environment(), start_new_session=True) as child:
        interrupted = False
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:
                if interrupted:
                    child.kill()  # and with it, by the kernel, every process that it started
                else:
                    _print("interrupted: the virtual node is powered off; once more ends it at once")
                    child.send_signal(signal.SIGINT)
                interrupted = True


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _environment() -> dict[str, str]:
    """Ours, but with bytecode caches: tests start hundreds of processes that would each compile for 0.1 to 0.25 s."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else "no message"


def _print(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
