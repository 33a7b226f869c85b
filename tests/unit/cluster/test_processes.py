"""Whether a process has ended, as the kernel shows it."""

import subprocess
import sys
from pathlib import Path

import pytest

from cluster.local import processes
from cluster.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc, which only Linux has")

# The first thread ends by the system call exit, the other one goes on.
OUTLIVED = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


def test_a_process_runs_until_its_last_thread_has_ended() -> None:
    """A killed server whose first thread has ended may still hold its port."""
    with subprocess.Popen([sys.executable, "-c", OUTLIVED]) as process:
        try:
            stat = Path(f"/proc/{process.pid}/stat")
            wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "its first thread has ended")
            identity = processes.identity(process.pid)
            assert identity is not None
            processes.end([identity])
            assert not identity.running
        finally:
            process.kill()
