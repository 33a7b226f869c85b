"""Killed at every single step: the next apply finishes, the next restore undoes, and kubelet never reads half a file."""

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from accelshare.install.errors import RolledBack
from accelshare.install.host_files.disk import Disk
from accelshare.install.scheduler import static_pod
from accelshare.install.scheduler.host import HostState
from accelshare.install.scheduler.plan import CHECKSUM
from tests.unit.install.host_files.ending import ended_at_each_step
from tests.unit.install.scheduler.builders import KUBEADM, Host, desired

ORIGINAL = {"manifests/kube-scheduler.yaml": KUBEADM}
SECOND = desired("http://127.0.0.1:2/second")


@pytest.fixture(autouse=True)
def _planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning is pure, and the same host is killed hundreds of times."""
    monkeypatch.setattr(static_pod, "plan", cache(static_pod.plan))
    monkeypatch.setattr(static_pod, "existing_path", cache(static_pod.existing_path))


def crashes(tmp_path: Path, prepare: Callable[[Host], object], act: Callable[[Host, Disk], object]) -> Iterator[Host]:
    """A host for each step at which `act` can be ended, ended there."""

    def fresh() -> Host:
        root = tmp_path / "host"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        host = Host(root)
        prepare(host)
        return host

    for host in ended_at_each_step(fresh, act, least=5):
        whole_manifest(host)
        yield host


def whole_manifest(host: Host) -> None:
    """Whatever happened, kubelet finds one whole manifest, and the file that it names is there."""
    visible = [entry for entry in host.manifest.parent.iterdir() if not entry.name.startswith(".")]
    assert visible == [host.manifest]
    content = host.manifest.read_bytes()
    pod = yaml.safe_load(content)
    assert pod["kind"] == "Pod"
    if CHECKSUM.encode() in content:
        assert yaml.safe_load(host.config.read_bytes())["kind"] == "KubeSchedulerConfiguration"
    else:
        assert content == KUBEADM


def nothing(_host: Host) -> None:
    pass


def applied(host: Host) -> None:
    host.apply()


def test_apply_finishes_a_crashed_apply(tmp_path: Path) -> None:
    for host in crashes(tmp_path, nothing, lambda host, disk: host.apply(disk=disk)):
        host.apply()
        assert host.state() is HostState.INSTALLED
        assert host.plan() == ""
        assert host.restore() == "restored"
        assert host.files() == ORIGINAL
        assert host.places() == {"manifests", "manifests/kube-scheduler.yaml"}


def test_restore_undoes_a_crashed_apply(tmp_path: Path) -> None:
    for host in crashes(tmp_path, nothing, lambda host, disk: host.apply(disk=disk)):
        host.restore()
        assert host.state() is HostState.NOT_INSTALLED
        assert host.files() == ORIGINAL
        assert host.places() == {"manifests", "manifests/kube-scheduler.yaml"}


def test_a_crashed_apply_finished_with_another_wish(tmp_path: Path) -> None:
    for host in crashes(tmp_path, nothing, lambda host, disk: host.apply(disk=disk)):
        host.apply(SECOND)
        assert host.state() is HostState.INSTALLED
        assert host.plan(SECOND) == ""
        host.restore()
        assert host.places() == {"manifests", "manifests/kube-scheduler.yaml"}


def test_a_crashed_apply_that_is_then_unhealthy_rolls_back_to_the_original(tmp_path: Path) -> None:
    """Not to what the crash left."""
    for host in crashes(tmp_path, nothing, lambda host, disk: host.apply(disk=disk)):
        if host.state() is HostState.INSTALLED:  # the very last steps only clear up
            continue
        host.kubelet.breaks = lambda content: CHECKSUM.encode() in content
        with pytest.raises(RolledBack):
            host.apply()
        assert host.files() == ORIGINAL
        assert host.places() == {"manifests", "manifests/kube-scheduler.yaml"}


def test_restore_finishes_a_crashed_restore(tmp_path: Path) -> None:
    for host in crashes(tmp_path, applied, lambda host, disk: host.restore(disk=disk)):
        host.restore()
        assert host.places() == {"manifests", "manifests/kube-scheduler.yaml"}
        assert host.files() == ORIGINAL


def test_apply_after_a_crashed_restore(tmp_path: Path) -> None:
    for host in crashes(tmp_path, applied, lambda host, disk: host.restore(disk=disk)):
        host.apply()
        assert host.state() is HostState.INSTALLED
        host.restore()
        assert host.places() == {"manifests", "manifests/kube-scheduler.yaml"}


def test_an_unhealthy_apply_after_a_crashed_restore_goes_back_to_the_original(tmp_path: Path) -> None:
    for host in crashes(tmp_path, applied, lambda host, disk: host.restore(disk=disk)):
        host.kubelet.breaks = lambda content: CHECKSUM.encode() in content
        if host.state() is HostState.INSTALLED:
            continue  # it had not begun yet
        with pytest.raises(RolledBack):
            host.apply()
        assert host.files() == ORIGINAL
        assert host.places() == {"manifests", "manifests/kube-scheduler.yaml"}


def test_a_crashed_second_apply(tmp_path: Path) -> None:
    for host in crashes(tmp_path, applied, lambda host, disk: host.apply(SECOND, disk=disk)):
        host.apply(SECOND)
        assert host.state() is HostState.INSTALLED
        assert host.plan(SECOND) == ""
        host.restore()
        assert host.files() == ORIGINAL


def test_a_crashed_second_apply_that_is_then_unhealthy_rolls_back_to_the_first(tmp_path: Path) -> None:
    for host in crashes(tmp_path, applied, lambda host, disk: host.apply(SECOND, disk=disk)):
        if host.plan(SECOND) == "" and host.state() is HostState.INSTALLED:
            continue
        host.kubelet.breaks = lambda content, host=host: "second" in host.config.read_text() and CHECKSUM.encode() in content  # type: ignore[misc]
        with pytest.raises(RolledBack):
            host.apply(SECOND)
        host.kubelet.breaks = lambda _content: False
        assert host.state() is HostState.INSTALLED
        assert host.plan() == ""
        host.restore()
        assert host.places() == {"manifests", "manifests/kube-scheduler.yaml"}


def test_a_crashed_roll_back(tmp_path: Path) -> None:
    def breaking(host: Host) -> None:
        host.kubelet.breaks = lambda content: CHECKSUM.encode() in content

    def act(host: Host, disk: Disk) -> None:
        with pytest.raises(RolledBack):
            host.apply(disk=disk)

    for number, host in enumerate(crashes(tmp_path, breaking, act)):
        if number % 2:
            host.restore()
        else:
            with pytest.raises(RolledBack):
                host.apply()
        assert host.files() == ORIGINAL
        assert host.places() == {"manifests", "manifests/kube-scheduler.yaml"}


def test_status_says_so_in_the_middle(tmp_path: Path) -> None:
    seen = {host.state() for host in crashes(tmp_path, nothing, lambda host, disk: host.apply(disk=disk))}
    assert seen == {HostState.NOT_INSTALLED, HostState.UNFINISHED, HostState.INSTALLED}


def test_kubeadm_upgrade_in_the_middle_of_a_crash(tmp_path: Path) -> None:
    upgraded = KUBEADM.replace(b"v1.36.4", b"v1.36.9")
    for host in crashes(tmp_path, nothing, lambda host, disk: host.apply(disk=disk)):
        host.manifest.write_bytes(upgraded)
        host.apply()
        assert host.state() is HostState.INSTALLED
        host.restore()
        assert host.files() == {"manifests/kube-scheduler.yaml": upgraded}
