"""A stage in its own network namespace cleans up when it is interrupted, and leaves nothing when its starter is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.local.processes import identity
from cluster.waiting import wait_until

ROOT = Path(__file__).parents[2]
STARTER = "import signal, sys; from tests import __main__ as t; signal.signal(signal.SIGTERM, t._interrupt); "
STARTER += "sys.exit(t.run_alone([sys.executable, '-c', sys.argv[1]]))"
# Writes its id and its network namespace, then waits; cleaning up takes it longer than subprocess.run would wait.
STAGE = """
import os, pathlib, time
here = pathlib.Path({directory!r})
(here / "namespace").write_text(os.readlink("/proc/self/ns/net"))
(here / "pid.new").write_text(str(os.getpid()))
(here / "pid.new").rename(here / "pid")
try:
    time.sleep(600)
except KeyboardInterrupt:
    time.sleep(1)
    (here / "cleaned").touch()
    raise SystemExit(3)
"""


@pytest.fixture
def starter(tmp_path: Path) -> subprocess.Popen[bytes]:
    return start(tmp_path)


def start(directory: Path, before: str = "") -> subprocess.Popen[bytes]:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a network namespace needs root on Linux")
    started = subprocess.Popen([sys.executable, "-c", before + STARTER, STAGE.format(directory=str(directory))], cwd=ROOT)
    wait_until((directory / "pid").exists, "the stage runs")
    return started


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_cleans_up_first(starter: subprocess.Popen[bytes], tmp_path: Path, number: signal.Signals) -> None:
    assert (tmp_path / "namespace").read_text() != os.readlink("/proc/self/ns/net")  # noqa: PTH115 – it is no path
    starter.send_signal(number)
    assert starter.wait(60) == 3
    assert (tmp_path / "cleaned").exists()


def test_a_stage_of_a_background_job_cleans_up_too(tmp_path: Path) -> None:
    """A shell lets the processes of its background jobs ignore SIGINT, and they would let the stage ignore it, too."""
    started = start(tmp_path, "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); ")
    started.send_signal(signal.SIGTERM)
    assert started.wait(60) == 3
    assert (tmp_path / "cleaned").exists()


def test_killed_it_takes_the_stage_with_it(starter: subprocess.Popen[bytes], tmp_path: Path) -> None:
    pid = int((tmp_path / "pid").read_text())
    starter.kill()
    starter.wait(60)
    wait_until(lambda: identity(pid) is None, "the stage has ended")
    assert not (tmp_path / "cleaned").exists()
