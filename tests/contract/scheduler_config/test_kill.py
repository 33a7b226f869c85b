"""A real SIGKILL at every step of a real process: what is then on the disk is enough to finish or to undo."""

import os
import shutil
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from accelshare.scheduler_config import static_pod
from accelshare.scheduler_config.disk import Disk
from accelshare.scheduler_config.site import State
from tests.unit.scheduler_config.builders import KUBEADM, Host


@pytest.fixture(autouse=True)
def _planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_pod, "plan", cache(static_pod.plan))
    monkeypatch.setattr(static_pod, "existing_path", cache(static_pod.existing_path))


def killed_at(step: int, act: Callable[[Disk], object]) -> bool:
    """Run it in a process of its own that dies at this step; False if it ended before."""
    child = os.fork()
    if child == 0:
        left = step

        def die(_step: str) -> None:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

        code = 1
        try:
            act(Disk(die))
            code = 0
        finally:
            os._exit(code)
    _, how = os.waitpid(child, 0)
    assert os.WIFSIGNALED(how) or os.waitstatus_to_exitcode(how) == 0
    return os.WIFSIGNALED(how)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("first", ["apply", "restore"])
@pytest.mark.parametrize("then", ["apply", "restore"])
def test_killed_at_every_step(tmp_path: Path, first: str, then: str) -> None:
    for step in range(1000):
        root = tmp_path / "host"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        host = Host(root)
        if first == "restore":
            host.apply()
        act = host.apply if first == "apply" else host.restore
        if not killed_at(step, lambda disk, act=act: act(disk=disk)):  # type: ignore[misc]
            assert step > 10
            return
        if then == "apply":
            host.apply()
            assert host.state() is State.INSTALLED
        host.restore()
        assert host.places() == {"manifests", "manifests/kube-scheduler.yaml"}
        assert host.manifest.read_bytes() == KUBEADM
