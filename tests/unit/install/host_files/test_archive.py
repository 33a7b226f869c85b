"""The archive restores backed-up files to the byte, and removes itself completely."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from accelshare.install.errors import InstallError
from accelshare.install.host_files.archive import Archive, SavedFile, TrackedFile
from accelshare.install.host_files.archive import Record as BaseRecord
from accelshare.install.host_files.disk import Disk, HostFile
from tests.unit.install.host_files.ending import ended_at_each_step


class Record(BaseRecord, frozen=True):
    about: str


class OneHashRecord(Record, frozen=True):
    one_hash: ClassVar[bool] = True


@pytest.fixture
def archive(tmp_path: Path) -> Archive[Record]:
    (tmp_path / "archive").mkdir()
    return archive_of(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"the operator's")
    path.chmod(0o640)
    return path


def archive_of(root: Path, disk: Disk | None = None) -> Archive[Record]:
    return Archive(root / "archive", disk or Disk(), Record)


def record_of(*files: TrackedFile, made: tuple[Path, ...] = ()) -> Record:
    return Record("this test", state="applying", files=list(files), made=[str(place) for place in made], accelshare="1.2.3")


def backups(archive: Archive[Record]) -> list[Path]:
    return list(archive.directory.glob("*.backup"))


def test_a_record_is_loaded_with_its_own_fields(archive: Archive[Record]) -> None:
    assert archive.load() is None
    record = record_of(TrackedFile("/etc/a", SavedFile("1234", 0o640, 1, 2), ["5678"]))
    archive.save(record)
    assert archive.load() == record
    assert record.file(Path("/etc/a")) == record.files[0]
    assert record.file("/etc/b") is None


@pytest.mark.parametrize(
    ("fields", "written"),
    [
        ('"written": "1111", "after": "2222"', ["1111", "2222"]),  # kube-scheduler's, interrupted
        ('"written": "1111", "after": null', ["1111"]),
        ('"written": null, "after": "2222"', ["2222"]),
        ('"written": ["1111", "2222"]', ["1111", "2222"]),  # the runtime's
    ],
)
def test_a_record_of_format_1_is_read(archive: Archive[Record], fields: str, written: list[str]) -> None:
    file = f'{{"path": "/etc/a", "original": {{"sha256": "0000", "mode": 416, "uid": 1, "gid": 2}}, {fields}}}'
    content = f'{{"state": "applied", "files": [{file}], "made": [], "accelshare": "0.1.0", "format": 1, "about": "x"}}'
    (archive.directory / "record.json").write_text(content)
    record = archive.load()
    assert record is not None
    assert record.files == [TrackedFile("/etc/a", SavedFile("0000", 0o640, 1, 2), written)]


@pytest.mark.parametrize("state", ["applying", "applied", "restoring"])
@pytest.mark.parametrize("written", [[], ["1111"], ["1111", "2222"], ["1111", "2222", "3333"]])
def test_a_record_is_loaded_as_it_was_saved_in_a_format_that_0_1_reads(
    tmp_path: Path, state: Literal["applying", "applied", "restoring"], written: list[str]
) -> None:
    """Of kube-scheduler's files format 1 has two hashes at most; what has more is no business of 0.1."""
    archive = Archive(tmp_path, Disk(), OneHashRecord)
    record = OneHashRecord("this test", state=state, files=[TrackedFile("/etc/a", SavedFile("0000"), written)])
    archive.save(record)
    assert archive.load() == record
    saved = json.loads((tmp_path / "record.json").read_bytes())
    assert saved["format"] == (1 if len(written) < 3 else 2)
    if state == "applying" and written == ["1111"]:
        assert saved["files"][0] | {"written": None, "after": "1111"} == saved["files"][0]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"{", "cannot be read"),
        (b'{"about": "x", "state": "applied", "files": [{"path": 1}]}', "files\\[0\\].path"),
        (b'{"about": "x", "state": "applied", "files": [], "format": 9, "accelshare": "9.0"}', "accelshare 9.0"),
    ],
)
def test_an_unreadable_record_is_refused(archive: Archive[Record], raw: bytes, why: str) -> None:
    (archive.directory / "record.json").write_bytes(raw)
    with pytest.raises(InstallError, match=why):
        archive.load()


def test_a_backed_up_file_is_restored_to_the_byte(archive: Archive[Record], file: Path) -> None:
    disk = Disk()
    found = disk.find(file)
    before = archive.back_up(found)
    assert archive.back_up(found) == before
    assert len(backups(archive)) == 1
    disk.put(file, b"ours", mode=0o600)
    assert not archive.is_restored(str(file), before)
    assert archive.restore(str(file), before)
    assert disk.find(file) == found
    assert not archive.restore(str(file), before)


def test_a_file_that_did_not_exist_is_removed(archive: Archive[Record], tmp_path: Path) -> None:
    new = tmp_path / "new"
    before = archive.back_up(Disk().find(new))
    assert (backups(archive), archive.content(before)) == ([], None)
    new.write_bytes(b"ours")
    assert archive.restore(str(new), before)
    assert not new.exists()


@pytest.mark.parametrize("damage", [Path.unlink, lambda place: place.write_bytes(b"damaged")], ids=["missing", "damaged"])
def test_a_damaged_backup_is_never_restored(archive: Archive[Record], file: Path, damage: Callable[[Path], object]) -> None:
    before = archive.back_up(Disk().find(file))
    file.write_bytes(b"ours")
    damage(backups(archive)[0])
    with pytest.raises(InstallError, match="missing or damaged"):
        archive.restore(str(file), before)
    assert file.read_bytes() == b"ours"


def test_a_damaged_backup_is_written_again(archive: Archive[Record], file: Path) -> None:
    before = archive.back_up(Disk().find(file))
    backups(archive)[0].write_bytes(b"damaged")
    archive.back_up(Disk().find(file))
    assert archive.content(before) == b"the operator's"


def test_only_unneeded_backups_are_removed(archive: Archive[Record]) -> None:
    first, second = (archive.back_up(HostFile(content, 0o600, 0, 0)) for content in (b"1", b"2"))
    archive.remove_unneeded({second.sha256, None})
    assert archive.content(second) == b"2"
    assert len(backups(archive)) == 1
    with pytest.raises(InstallError):
        archive.content(first)


def test_an_interrupted_removal_can_be_repeated(tmp_path: Path) -> None:
    """The record goes last, so that there is always one to finish with."""
    directory, file = tmp_path / "made", tmp_path / "made" / "file"
    record = record_of(TrackedFile(str(file), SavedFile()), made=(directory,))

    def installed() -> None:
        directory.mkdir(exist_ok=True)
        (directory / ".file.accelshare").write_bytes(b"half")
        archive = archive_of(tmp_path)
        archive.directory.mkdir(exist_ok=True)
        (archive.directory / ".1234.backup.accelshare").write_bytes(b"half")
        archive.back_up(HostFile(b"1", 0o600, 0, 0))
        archive.save(record)

    for _ in ended_at_each_step(installed, lambda _, disk: archive_of(tmp_path, disk).remove_all(record), least=5):
        archive = archive_of(tmp_path)
        assert not backups(archive) or archive.load() == record
        archive.remove_all(record)
        assert list(tmp_path.iterdir()) == []


def test_the_lock_is_exclusive(archive: Archive[Record]) -> None:
    with (
        archive.locked(),
        pytest.raises(InstallError, match="another accelshare process"),
        archive.locked(),
    ):
        pytest.fail("two hold the lock")


def test_errors_of_the_disk_are_translated(archive: Archive[Record]) -> None:
    with pytest.raises(InstallError, match="/etc/a: No space left on device"), archive.locked():
        raise OSError(28, "whatever", "/etc/a")


def test_an_empty_archive_directory_is_removed(tmp_path: Path) -> None:
    archive = archive_of(tmp_path)
    with archive.locked(create=True):
        assert archive.directory.stat().st_mode & 0o777 == 0o700
    assert not archive.directory.exists()
    with archive.locked(create=True):
        archive.save(record_of())
    assert archive.load() == record_of()


def test_an_interrupted_change_is_named() -> None:
    assert "an apply" in (Record("this test", state="applying", files=[]).unfinished or "")
    assert "a restore" in (Record("this test", state="restoring", files=[]).unfinished or "")
    assert Record("this test", state="applied", files=[]).unfinished is None
