"""Killed at every single step: the next apply finishes, the next restore undoes, and containerd never reads half a file."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accelshare.runtime_config.disk import Disk
from accelshare.runtimes.containerd import layers
from accelshare.runtimes.insistence import Standing
from accelshare.runtimes.tree import Tree
from tests.unit.runtime_config.builders import MAIN, Host

Prepare = Callable[[Host], object]
CLEAN = {"etc", "etc/config.toml"}


class Killed(BaseException):
    """Not an Exception: nothing in the product may catch it, as nothing catches a SIGKILL."""


class Executioner:
    """Lets so many steps pass."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, step: str) -> None:
        if self.left == 0:
            raise Killed(step)
        self.left -= 1


def crashes(tmp_path: Path, main: str | None, prepare: Prepare, act: Callable[[Host, Disk], object]) -> Iterator[Host]:
    """A host for each step at which `act` can be ended, ended there."""
    for step in range(1000):
        root = tmp_path / "host"
        shutil.rmtree(root, ignore_errors=True)
        host = Host(root, main)
        prepare(host)
        try:
            act(host, Disk(Executioner(step)))
        except Killed:
            layers(host.config, Tree())  # whatever is there can be read
            named = host.config.exists() and b"accelshare" in host.config.read_bytes()
            assert host.drop_in.exists() or not named
            yield host
        else:
            assert step > 5
            return
    raise AssertionError("it never ends")


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
        assert host.standing() is Standing.NOT_RESTARTED
        assert host.plan() == ""
        assert not host.site().unfinished
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
        assert host.standing() is Standing.NOT_RESTARTED
        host.restore()
        assert is_clean(host, main), host.places()


def test_what_ended_in_the_middle_is_told(tmp_path: Path) -> None:
    said = {host.site().says()[0] for host in crashes(tmp_path, MAIN, nothing, lambda host, disk: host.apply(disk))}
    assert any("an apply ended in the middle" in line for line in said)
    said = {host.site().says()[0] for host in crashes(tmp_path, MAIN, applied, lambda host, disk: host.restore(disk))}
    assert any("a restore ended in the middle" in line for line in said)
