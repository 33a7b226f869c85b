"""CPU and memory of processes and of the machine, from the kernel.

Belongs here: reading /proc and process clocks; the parsing is pure. Never: what the numbers are compared with.
"""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one process, in MB (10⁶ bytes): resident, proportional and peak."""

    rss_mb: float
    pss_mb: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class Machine:
    cpu: str
    cores: int
    memory_gb: float
    kernel: str


def cpu_s(pid: int) -> float:
    """CPU seconds of the whole process with all threads, also ended ones, to the nanosecond.

    The clock's number is made as by clock_getcpuclockid(3): the complement of the pid, three bits up, and 2 for the
    scheduler's own count, the one that /proc/<pid>/schedstat shows for a single thread.
    """
    return time.clock_gettime((~pid << 3) | 2)


def machine_cpu_s() -> float:
    """CPU seconds that all processes and the kernel have used since the machine started, to about a hundredth."""
    return busy_ticks((PROC / "stat").read_text()) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> Memory:
    status = (PROC / str(pid) / "status").read_text()
    rollup = (PROC / str(pid) / "smaps_rollup").read_text()
    return Memory(rss_mb=kib(status, "VmRSS") / 1e6, pss_mb=kib(rollup, "Pss") / 1e6, peak_mb=kib(status, "VmHWM") / 1e6)


def private_mb(pid: int) -> float:
    """The memory that would become free if this process ended."""
    return private_of((PROC / str(pid) / "smaps_rollup").read_text()) / 1e6


def machine() -> Machine:
    return Machine(
        cpu=cpu_model((PROC / "cpuinfo").read_text()),
        cores=os.cpu_count() or 1,
        memory_gb=kib((PROC / "meminfo").read_text(), "MemTotal") / 1e9,
        kernel=os.uname().release,
    )


def load() -> float:
    return load_of((PROC / "loadavg").read_text())


def kib(text: str, key: str) -> int:
    """The bytes of a line such as `VmRSS:    1234 kB`."""
    match = re.search(rf"^{re.escape(key)}:\s+(\d+) kB$", text, re.MULTILINE)
    if match is None:
        raise ValueError(f"no line '{key}: … kB' in {text[:80]!r}…")
    return int(match[1]) * 1024


def private_of(rollup: str) -> int:
    """The bytes of pages that no other process has mapped."""
    return kib(rollup, "Private_Clean") + kib(rollup, "Private_Dirty")


def cpu_model(cpuinfo: str) -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return " ".join(match[1].split()) if match else "unknown"


def busy_ticks(stat: str) -> int:
    """The time of all cores that was neither idle nor iowait. user includes guests."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(part) for part in stat.split("\n", 1)[0].split()[1:9])
    return user + nice + system + irq + softirq + steal


def load_of(loadavg: str) -> float:
    """The load average of the last minute."""
    return float(loadavg.split()[0])
