"""Killed at every single step: the next apply finishes, the next restore undoes, and containerd never reads half a file."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accelshare.install.host_files.disk import Disk
from accelshare.runtimes.config_files import Tree
from accelshare.runtimes.containerd import layers
from accelshare.runtimes.validator_status import ValidatorState
from tests.unit.install.host_files.ending import ended_at_each_step
from tests.unit.install.runtime.builders import MAIN, Host

Prepare = Callable[[Host], object]
CLEAN = {"etc", "etc/config.toml"}


def crashes(tmp_path: Path, main: str | None, prepare: Prepare, act: Callable[[Host, Disk], object]) -> Iterator[Host]:
    """A host for each step at which `act` can be ended, ended there."""

    def fresh() -> Host:
        shutil.rmtree(tmp_path / "host", ignore_errors=True)
        host = Host(tmp_path / "host", main)
        prepare(host)
        return host

    for host in ended_at_each_step(fresh, act, least=5):
        layers(host.config, Tree())  # whatever is there can be read
        named = host.config.exists() and b"accelshare" in host.config.read_bytes()
        assert host.drop_in.exists() or not named
        yield host


def nothing(_host: Host) -> None:
    pass


def applied(host: Host) -> None:
    host.apply()


def applied_in_doubt(host: Host) -> None:
    """With another content of our file than a later apply would write."""
    host.version = None
    host.apply()
    host.version = "2.4.2"


def is_clean(host: Host, main: str | None) -> bool:
    return host.places() == (CLEAN if main is not None else {"etc"}) and (main is None or host.config.read_text() == main)


both = pytest.mark.parametrize("main", [MAIN, None], ids=["own file", "no file"])
begun = pytest.mark.parametrize(
    ("main", "prepare"),
    [(MAIN, nothing), (None, nothing), (MAIN, applied_in_doubt)],
    ids=["own file", "no file", "another of ours"],
)


@begun
def test_apply_finishes_a_crashed_apply(tmp_path: Path, main: str | None, prepare: Prepare) -> None:
    for host in crashes(tmp_path, main, prepare, lambda host, disk: host.apply(disk)):
        host.apply()
        assert host.state() is ValidatorState.NOT_RESTARTED
        assert host.plan() == ""
        assert not host.runtime_host().unfinished
        assert host.restore() == "restored"
        assert is_clean(host, main), host.places()


@begun
def test_restore_undoes_a_crashed_apply(tmp_path: Path, main: str | None, prepare: Prepare) -> None:
    for host in crashes(tmp_path, main, prepare, lambda host, disk: host.apply(disk)):
        host.restore()
        assert is_clean(host, main), host.places()


@both
def test_restore_finishes_a_crashed_restore(tmp_path: Path, main: str | None) -> None:
    for host in crashes(tmp_path, main, applied, lambda host, disk: host.restore(disk)):
        host.restore()
        assert is_clean(host, main), host.places()


@both
def test_apply_after_a_crashed_restore(tmp_path: Path, main: str | None) -> None:
    for host in crashes(tmp_path, main, applied, lambda host, disk: host.restore(disk)):
        host.apply()
        assert host.state() is ValidatorState.NOT_RESTARTED
        host.restore()
        assert is_clean(host, main), host.places()


def test_an_interrupted_change_is_reported(tmp_path: Path) -> None:
    lines = {host.runtime_host().remarks()[0] for host in crashes(tmp_path, MAIN, nothing, lambda host, disk: host.apply(disk))}
    assert any("an apply was interrupted" in line for line in lines)
    lines = {host.runtime_host().remarks()[0] for host in crashes(tmp_path, MAIN, applied, lambda host, disk: host.restore(disk))}
    assert any("a restore was interrupted" in line for line in lines)
