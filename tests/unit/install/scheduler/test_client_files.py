"""kube-scheduler's client certificate on the host: always one whole pair, readable by kube-scheduler alone."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accelshare.install.host_files.disk import Disk
from accelshare.install.scheduler import static_pod
from accelshare.install.scheduler.manager.client_files import ClientCertificate, ClientFiles
from tests.unit.install.host_files.ending import ended_at_each_step
from tests.unit.install.scheduler.builders import KUBEADM

ROOT = (os.geteuid(), os.getegid())
OLD = ClientCertificate("ca 1", "certificate 1", "key 1")
NEW = ClientCertificate("ca 1", "certificate 2", "key 2")
NEW_CA = ClientCertificate("ca 2", "certificate 2", "key 2")


def read_pair(directory: Path) -> tuple[str, str]:
    return (directory / "client" / "tls.crt").read_text(), (directory / "client" / "tls.key").read_text()


def everything(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def test_they_are_named_as_they_lie(tmp_path: Path) -> None:
    files = ClientFiles(tmp_path / "ours", Disk())
    files.put(OLD, ROOT)
    tls = files.paths(OLD, "extender")
    assert tls.server_name == "extender"
    assert [Path(file).read_text() for file in tls.files] == ["ca 1", "certificate 1", "key 1"]
    assert files.contain(OLD)
    assert not files.contain(NEW)


def test_nobody_else_can_read_them(tmp_path: Path) -> None:
    directory = tmp_path / "ours"
    ClientFiles(directory, Disk()).put(OLD, ROOT)
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.rglob("*") if path.is_file()}
    assert set(modes.values()) == {0o600}
    assert (directory / "client").stat().st_mode & 0o777 == 0o700


def test_a_renewed_pair_keeps_its_path_and_a_renewed_ca_does_not(tmp_path: Path) -> None:
    """Another path is another configuration: that is what restarts kube-scheduler, which reads a CA at its start only."""
    files = ClientFiles(tmp_path, Disk())
    assert files.paths(OLD, "x") == files.paths(NEW, "x")
    assert files.paths(NEW, "x") != files.paths(NEW_CA, "x")


def test_what_is_not_used_any_more_is_forgotten_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "scheduler-config.yaml").write_text("not ours")
    files = ClientFiles(tmp_path, Disk())
    files.put(OLD, ROOT)
    files.put(NEW_CA, ROOT)
    assert (tmp_path / OLD.ca_name).exists()  # the configuration in force still names it
    files.remove_unused(NEW_CA)
    assert files.contain(NEW_CA)
    pair = NEW_CA.pair_name
    assert everything(tmp_path) == {
        "scheduler-config.yaml", "client", NEW_CA.ca_name, pair, f"{pair}/tls.crt", f"{pair}/tls.key",
    }  # fmt: skip
    files.remove()
    assert everything(tmp_path) == {"scheduler-config.yaml"}
    (tmp_path / "scheduler-config.yaml").unlink()
    files.remove()
    assert not tmp_path.exists()


def killed_at_each_step(directory: Path, act: Callable[[ClientFiles], object], *, least: int) -> Iterator[ClientFiles]:
    """The directory with the old pair in it, after an act that was ended at one step."""

    def old() -> None:
        ClientFiles(directory, Disk()).put(OLD, ROOT)

    for _ in ended_at_each_step(old, lambda _, disk: act(ClientFiles(directory, disk)), least=least):
        yield ClientFiles(directory, Disk())


def test_killed_at_every_step_there_is_the_old_pair_or_the_new_one(tmp_path: Path) -> None:
    directory = tmp_path / "ours"

    def renew(files: ClientFiles) -> None:
        files.put(NEW_CA, ROOT)
        files.remove_unused(NEW_CA)

    for files in killed_at_each_step(directory, renew, least=20):
        assert read_pair(directory) in {("certificate 1", "key 1"), ("certificate 2", "key 2")}
        renew(files)
        assert files.contain(NEW_CA)
        assert len(everything(directory)) == 5
        files.remove()
        assert not directory.exists()


def test_killed_at_every_step_of_removing_the_next_one_removes_all(tmp_path: Path) -> None:
    directory = tmp_path / "ours"
    for files in killed_at_each_step(directory, ClientFiles.remove, least=5):
        files.remove()
        assert not directory.exists()


@pytest.mark.parametrize(
    ("manifest", "owner"),
    [
        (KUBEADM, (0, 0)),
        (
            KUBEADM.replace(b"  hostNetwork: true\n", b"  hostNetwork: true\n  securityContext: {runAsUser: 7, runAsGroup: 8}\n"),
            (7, 8),
        ),
    ],
)
def test_they_belong_to_whoever_kube_scheduler_runs_as(manifest: bytes, owner: tuple[int, int]) -> None:
    """kubeadm can run its control plane without root."""
    if owner != (0, 0):
        manifest = manifest.replace(b"  securityContext:\n    seccompProfile:\n      type: RuntimeDefault\n", b"")
    assert static_pod.runs_as(manifest, "manifest") == owner
