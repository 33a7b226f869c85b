"""A clock that a run moves: the time of day of the process jumps while it runs, and clocks that measure durations do not."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.trust.clock_shift import ClockShift

PRINTS = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), time.clock_gettime(7), flush=True)"


@contextmanager
def asked(clock: ClockShift) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PRINTS]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(clock.variables))
    with process:
        yield process


def times(process: subprocess.Popen[str]) -> list[float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return [float(word) for word in process.stdout.readline().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is of Linux")
@pytest.mark.parametrize("seconds", [400 * 86400.0, -400 * 86400.0, -1.5, 0.25])
def test_only_the_time_of_day_jumps_and_it_comes_back(tmp_path: Path, seconds: float) -> None:
    clock = ClockShift(tmp_path, "one")
    with asked(clock) as process:
        for shift in (0.0, seconds, 0.0):
            clock.move(shift)
            before = (time.time() + shift, time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))
            found = times(process)
            after = (time.time() + shift, time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))
            assert all(low <= each <= high for low, each, high in zip(before, found, after, strict=True)), (before, found, after)


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is of Linux")
def test_each_process_has_its_own_clock(tmp_path: Path) -> None:
    moved, right = ClockShift(tmp_path, "moved"), ClockShift(tmp_path, "right")
    moved.move(1e6)
    with asked(moved) as first, asked(right) as second:
        assert times(first)[0] - times(second)[0] > 9e5
