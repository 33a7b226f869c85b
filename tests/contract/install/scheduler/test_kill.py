"""A real SIGKILL at every step of a real process: what is then on the disk is enough to finish or to undo."""

import shutil
from functools import cache
from pathlib import Path

import pytest

from accelshare.install.scheduler import static_pod
from accelshare.install.scheduler.host import HostState
from tests.unit.install.host_files.ending import killed_at
from tests.unit.install.scheduler.builders import KUBEADM, Host


@pytest.fixture(autouse=True)
def _planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_pod, "plan", cache(static_pod.plan))
    monkeypatch.setattr(static_pod, "existing_path", cache(static_pod.existing_path))


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
            assert host.state() is HostState.INSTALLED
        host.restore()
        assert host.places() == {"manifests", "manifests/kube-scheduler.yaml"}
        assert host.manifest.read_bytes() == KUBEADM
