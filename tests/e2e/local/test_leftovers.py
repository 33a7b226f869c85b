"""A local cluster starts only without conflicts, and leaves nothing on the machine."""

import http.server
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.local import LocalCluster, configuration
from cluster.local.layout import Layout
from cluster.waiting import wait_until
from tests.e2e.local.kubectl_steps import ROOT, command, create, pod, ready
from tests.e2e.local.machine_state import MachineState, machine_state

pytestmark = pytest.mark.real


def test_it_refuses_to_start_beside_another_kubelet(nothing_up: MachineState, tmp_path: Path) -> None:
    """Two kubelets on one machine end each other's pods; so it says who is there, and touches nothing."""
    (tmp_path / "kubelet").write_bytes(Path("/bin/sleep").read_bytes())
    (tmp_path / "kubelet").chmod(0o755)
    with subprocess.Popen([tmp_path / "kubelet", "600"]) as other:
        try:
            done = command("up")
        finally:
            other.kill()
    assert done.returncode == 1
    assert f"kubelet runs as process {other.pid}" in done.stderr
    assert machine_state() == nothing_up


def test_it_refuses_ports_that_are_taken(nothing_up: MachineState) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 10259), http.server.BaseHTTPRequestHandler):
        done = command("up")
    assert done.returncode == 1
    assert f"port 10259, which kube-scheduler needs, is taken by process {os.getpid()}" in done.stderr
    assert machine_state() == nothing_up


def test_status_and_down_without_a_cluster_say_so(nothing_up: MachineState) -> None:
    assert "no local cluster is up" in command("status").stderr
    assert command("down").stdout == "no local cluster is up\n"


def test_nothing_is_left_of_a_start_that_was_killed(nothing_up: MachineState) -> None:
    """SIGKILL in the middle: `down` still finds every process, mount, link and node, because nothing was only in memory."""
    starter = subprocess.Popen([sys.executable, "-m", "cluster", "up", "--fake-cards"], cwd=ROOT, stdout=subprocess.DEVNULL)
    with starter:
        wait_until((Layout().pids / "kubelet").exists, "kubelet was started", limit_s=120)
        starter.send_signal(signal.SIGKILL)
    assert machine_state() != nothing_up
    assert command("down").returncode == 0
    assert machine_state() == nothing_up


def test_an_interrupted_start_cleans_up_by_itself(nothing_up: MachineState) -> None:
    # A shell that starts us in the background has us and all our children ignore SIGINT, unless told otherwise.
    words = ["env", "--default-signal=INT", sys.executable, "-m", "cluster", "up"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL) as starter:
        wait_until((Layout().pids / "containerd").exists, "containerd was started", limit_s=120)
        starter.send_signal(signal.SIGINT)
    assert starter.returncode == 130
    assert machine_state() == nothing_up


def test_a_start_that_fails_says_which_part_and_where_its_log_is(
    nothing_up: MachineState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it leaves nothing but that log."""
    monkeypatch.setattr(configuration, "kubelet_command", lambda program, _: [str(program), "--nonsense"])
    with pytest.raises(ClusterError, match=r"(?s)^kubelet: .*unknown flag: --nonsense") as failure:
        LocalCluster.up(say=print)
    log = re.search(r"the end of (\S+kubelet\.log)", str(failure.value))
    assert log is not None
    assert "unknown flag: --nonsense" in Path(log[1]).read_text()
    assert machine_state() == nothing_up


def test_nothing_is_left_after_down(nothing_up: MachineState) -> None:
    """Processes, mounts, links, routes, nft tables, device nodes, cgroups, directories and kernel settings are as before."""
    with LocalCluster.up(fake_cards=True) as local:
        create(local, pod("left-behind"), pod("left-behind-too"))
        ready(local, "left-behind", "left-behind-too")
        assert machine_state() != nothing_up
    assert machine_state() == nothing_up
