"""Free ports for programs that we start: reserved until they listen."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.ports import free_port

ROOT = Path(__file__).parents[3]


def test_the_same_port_does_not_come_again_soon() -> None:
    """Also while nobody listens there: its program may be on its way."""
    assert len({free_port() for _ in range(100)}) == 100


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        assert taken.getsockname()[1] not in {free_port() for _ in range(249)}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes cannot tell each other by a name")
def test_no_two_processes_share_a_port() -> None:
    """Two workers of one run, for example."""
    program = "from cluster.ports import free_port; print(*(free_port() for _ in range(200)), flush=True); input()"
    command = [sys.executable, "-c", program]
    with (
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one,
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
    ):
        reserved = []
        for process in (one, other):
            assert process.stdout is not None
            reserved.append(set(process.stdout.readline().split()))
        for process in (one, other):
            process.communicate("\n")
    assert [len(ports) for ports in reserved] == [200, 200]
    assert reserved[0] & reserved[1] == set()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which ports its kernel gives away")
def test_they_are_not_those_that_the_kernel_gives_away() -> None:
    lowest, highest = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    if lowest < 30000:
        pytest.skip(f"this machine gives away {lowest} to {highest}, which is its own choice")
    assert free_port() < lowest
