"""`make test`: everything there is to test, with what it needs built first and what could not run named last.

Belongs here: the order of things. Never: a test.
"""

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from cluster.build import binaries
from cluster.errors import ClusterError
from cluster.local.bring_up import provide
from cluster.versions import CONTROL_PLANE_PROGRAMS

ROOT = Path(__file__).parents[1]
# Each on both cores, file by file, each worker with a control plane of its own. A machine has one kubelet: what needs it runs on
# one worker, which begins with it (tests/workers.py).
STAGES = (
    ("unit, property and contract", ["-q", "-n", "2", "tests/unit", "tests/property", "tests/contract"]),
    ("end to end, on the real control plane", ["-v", "-n", "2", "--no-loadscope-reorder", "tests/e2e"]),
)

LONGEST = 12  # files whose time is told at the end


@dataclass(slots=True)
class Sum:
    counts: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)  # by file

    def add(self, report: Path) -> None:
        for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 – pytest wrote it a moment ago
            skipped = case.find("skipped")
            broken = case.find("failure") is not None or case.find("error") is not None
            self.seconds[case.get("classname", "").replace(".", "/")] += round(float(case.get("time", "0")))
            self.counts["failed" if broken else "skipped" if skipped is not None else "passed"] += 1
            if skipped is not None:
                self.left_out[skipped.get("message", "no reason given")] += 1


def main() -> int:
    began = time.monotonic()
    total = Sum()
    options = sys.argv[1:]
    leave_out: list[str] = []
    if sys.platform == "linux":
        try:
            # A kubelet needs root; kubeadm, which some tests ask for its manifests, does not.
            provide(_say) if os.geteuid() == 0 else binaries((*CONTROL_PLANE_PROGRAMS, "kubeadm", "helm"), _say)
        except ClusterError as error:
            _say(f"the real control plane cannot be built, and without it nothing is proven:\n{error}")
            return 1
    else:
        leave_out = ["-m", "not real"]
        total.left_out[f"every test of the real control plane: it is built for Linux only, this is {sys.platform}"] += 1
    codes = []
    with tempfile.TemporaryDirectory() as directory:
        for number, (title, arguments) in enumerate(STAGES, start=1):
            _say(f"\n=== {number}/{len(STAGES)} {title}")
            report = Path(directory) / f"{number}.xml"
            command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *arguments, *leave_out, *options]
            codes.append(subprocess.run(command, cwd=ROOT, check=False).returncode)
            if report.exists():
                total.add(report)
    _say(f"\nall stages took {time.monotonic() - began:.0f} s; most of it, in seconds:")
    for file, seconds in total.seconds.most_common(LONGEST):
        _say(f"  {seconds:4} {file}")
    if total.left_out:
        _say("could not run here:")
        for reason, times in total.left_out.items():
            _say(f"  {times} × {reason}")
    else:
        _say("nothing was left out")
    _say(f"{total.counts['passed']} passed, {total.counts['failed']} failed, {total.counts['skipped']} skipped")
    return max(codes)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
