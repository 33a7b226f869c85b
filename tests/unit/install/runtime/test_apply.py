"""`runtime-config apply` can be repeated, `restore` restores to the byte, and neither loses the edits of others."""

from pathlib import Path

import pytest

from accelshare.install.errors import ChangedByOthers, InstallError, NotUnderstood
from accelshare.install.host_files.disk import Disk
from accelshare.install.runtime import apply as applying
from accelshare.runtimes.validator_status import ValidatorState
from tests.unit.install.runtime.builders import MAIN, NRI, Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_apply_and_restore(host: Host) -> None:
    host.config.chmod(0o600)
    before = host.files()
    assert host.state() is ValidatorState.OFF
    assert host.apply() == "applied"
    assert host.state() is ValidatorState.NOT_RESTARTED
    assert host.config.stat().st_mode & 0o777 == 0o600
    host.start()
    assert host.state() is ValidatorState.ENABLED
    (host.root / "nri.sock").unlink()
    assert host.restore() == "restored"
    assert host.files() == before
    assert host.config.stat().st_mode & 0o777 == 0o600
    assert host.places() == {"etc", "etc/config.toml"}


@pytest.mark.parametrize("main", [MAIN, None])
def test_twice_is_once(tmp_path: Path, main: str | None) -> None:
    host = Host(tmp_path, main)
    host.apply()
    host.start()
    before = host.files()
    assert host.plan() == ""
    assert host.apply() == "unchanged"
    assert host.files() == before
    assert host.state() is ValidatorState.ENABLED  # no file was touched since the start


def test_restore_without_apply_does_nothing(host: Host) -> None:
    assert host.restore() == "nothing to restore"
    host.backup.mkdir()
    assert host.restore() == "nothing to restore"
    assert host.places() == {"etc", "etc/config.toml"}


def test_a_main_file_that_was_not_there_goes_again(tmp_path: Path) -> None:
    host = Host(tmp_path, None)
    host.apply()
    assert host.config.exists()
    host.restore()
    assert host.places() == {"etc"}


def test_a_directory_with_files_of_others_stays(host: Host) -> None:
    host.apply()
    (host.drop_in.parent / "theirs.toml").write_text("")
    host.restore()
    assert host.places() == {"etc", "etc/config.toml", "etc/conf.d", "etc/conf.d/theirs.toml"}


@pytest.mark.parametrize("name", ["config.toml", "conf.d/zz-accelshare.toml"])
def test_restore_does_not_lose_what_somebody_else_wrote_since(host: Host, name: str) -> None:
    host.apply()
    path = host.config.parent / name
    path.write_text(path.read_text() + "# theirs\n")
    before = host.files()
    with pytest.raises(ChangedByOthers, match=r"(?s)was changed by somebody else since.*-# theirs"):
        host.restore()
    assert host.files() == before
    assert any("was changed by somebody else" in line for line in host.runtime_host().remarks())
    assert host.restore(force=True) == "restored"
    assert host.files() == {"etc/config.toml": MAIN.encode()}
    assert any("-# theirs" in line for line in host.messages)


def test_apply_does_not_lose_what_somebody_else_wrote_in_our_file(host: Host) -> None:
    host.drop_in.parent.mkdir()
    host.drop_in.write_text("# theirs\n")
    with pytest.raises(ChangedByOthers, match=r"(?s)was changed by somebody else.*-# theirs"):
        host.apply()
    assert host.apply(force=True) == "applied"
    host.restore()
    assert host.drop_in.read_text() == "# theirs\n"


def test_our_file_that_somebody_else_changed_after_an_apply(host: Host) -> None:
    host.apply()
    host.drop_in.write_text(f"version = 3\n[{NRI}.default_validator]\nenable = false\n")
    with pytest.raises(ChangedByOthers):
        host.apply()
    assert host.apply(force=True) == "applied"
    assert host.state() is ValidatorState.NOT_RESTARTED
    host.restore()
    assert host.files() == {"etc/config.toml": MAIN.encode()}


def test_a_main_file_that_was_written_anew_is_the_new_original(host: Host) -> None:
    """A package or a tool has put its own file there, without our line."""
    host.apply()
    anew = MAIN + "# another release\n"
    host.config.write_text(anew)
    assert host.apply() == "applied"
    assert host.restore() == "restored"
    assert host.files() == {"etc/config.toml": anew.encode()}


def test_a_main_file_that_was_edited_keeps_working(host: Host) -> None:
    """Our line is still in it, so there is nothing to do; but the original is not what a restore may bring back unasked."""
    host.apply()
    host.config.write_text(host.config.read_text() + "# theirs\n")
    assert host.apply() == "unchanged"
    assert host.state() is ValidatorState.NOT_RESTARTED


def test_a_removed_drop_in_is_written_again(host: Host) -> None:
    host.apply()
    host.drop_in.unlink()
    assert host.state() is ValidatorState.OFF
    assert host.apply() == "applied"
    host.restore()
    assert host.files() == {"etc/config.toml": MAIN.encode()}


def test_another_content_of_ours_replaces_the_former(host: Host) -> None:
    host.version = None  # then more keys are carried
    host.apply()
    before = host.drop_in.read_bytes()
    host.version = "2.4.2"
    assert host.apply() == "applied"
    assert host.drop_in.read_bytes() != before
    host.restore()
    assert host.files() == {"etc/config.toml": MAIN.encode()}


def test_planned_files_without_a_record_are_left_and_reported(host: Host) -> None:
    host.apply()
    for path in host.backup.iterdir():
        path.unlink()
    assert host.apply() == "unchanged"
    assert any(str(host.backup) in line for line in host.messages)


def test_a_record_of_another_file_is_not_used(host: Host) -> None:
    host.apply()
    other = host.config.with_name("other.toml")
    host.config.rename(other)
    host.config = other
    with pytest.raises(NotUnderstood, match=r"is about .*config\.toml, not about .*other\.toml"):
        host.restore()


@pytest.mark.parametrize("raw", [b"garbage", b'{"state":"applied","config":"x","files":[],"format":99}'])
def test_a_record_that_cannot_be_used_is_named(host: Host, raw: bytes) -> None:
    host.apply()
    (host.backup / "record.json").write_bytes(raw)
    with pytest.raises(NotUnderstood, match=r"record\.json"):
        host.restore()


def test_a_damaged_backup_changes_nothing(host: Host) -> None:
    host.apply()
    (backup,) = host.backup.glob("*.backup")
    backup.write_bytes(b"damaged")
    before = host.files()
    with pytest.raises(NotUnderstood, match="missing or damaged"):
        host.restore()
    assert host.files() == before


def test_one_at_a_time(host: Host) -> None:
    host.apply()
    with Disk().locked(host.backup), pytest.raises(InstallError, match="another accelshare process"):
        host.restore()


def test_a_disk_that_refuses_leaves_the_former_files(host: Host) -> None:
    before = host.files()

    def full(step: str) -> None:
        if step == f"rename to {host.config}":
            raise OSError(28, "No space left on device", str(host.config))

    with pytest.raises(InstallError, match="No space left on device"):
        host.apply(Disk(full))
    assert host.files() == before
    assert host.places() == {"etc", "etc/config.toml"}


def test_an_apply_that_fails_after_an_earlier_one_leaves_that_one(host: Host) -> None:
    host.version = None
    host.apply()
    before = host.files()
    host.version = "2.4.2"

    def full(step: str) -> None:
        if step == f"rename to {host.drop_in}":
            raise OSError(28, "No space left on device", str(host.drop_in))

    runtime_host = host.runtime_host(Disk(full))
    with pytest.raises(InstallError, match="the former files are restored"):
        applying.apply(runtime_host)
    assert host.files() == before
    host.restore()
    assert host.files() == {"etc/config.toml": MAIN.encode()}
