"""The journal and the backups: what is kept comes back to the byte, and nothing is left in the end."""

from collections.abc import Callable
from pathlib import Path

import pytest

from accelshare.install.host_files.archive import Archive
from accelshare.install.host_files.disk import Disk, Found
from accelshare.install.host_files.journal import Before, Journal, Touched
from tests.unit.install.host_files.ending import ended_at_each_step


class Tracked(Touched, frozen=True):
    note: str = ""


class Record(Journal[Tracked], frozen=True):
    about: str


class RefusedError(Exception):
    """What the room of this test raises."""


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
    return Archive(root / "archive", disk or Disk(), Record, RefusedError)


def record_of(*files: Tracked, made: tuple[Path, ...] = ()) -> Record:
    return Record("this test", state="applying", files=list(files), made=[str(place) for place in made], accelshare="1.2.3")


def backups(archive: Archive[Record]) -> list[Path]:
    return list(archive.directory.glob("*.backup"))


def test_a_record_comes_back_with_what_the_room_added(archive: Archive[Record]) -> None:
    assert archive.load() is None
    record = record_of(Tracked("/etc/a", Before("1234", 0o640, 1, 2), note="ours"))
    archive.save(record)
    assert archive.load() == record
    assert record.file(Path("/etc/a")) == record.files[0]
    assert record.file("/etc/b") is None


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"{", "cannot be read"),
        (b'{"about": "x", "state": "applied", "files": [{"path": 1}]}', "files\\[0\\].path"),
        (b'{"about": "x", "state": "applied", "files": [], "format": 2, "accelshare": "9.0"}', r"another accelshare \(9.0\)"),
    ],
)
def test_a_record_that_is_not_understood_is_refused_in_the_rooms_own_words(
    archive: Archive[Record], raw: bytes, why: str
) -> None:
    (archive.directory / "record.json").write_bytes(raw)
    with pytest.raises(RefusedError, match=why):
        archive.load()


def test_what_is_kept_comes_back_to_the_byte_and_only_once(archive: Archive[Record], file: Path) -> None:
    disk = Disk()
    found = disk.find(file)
    before = archive.keep(found)
    assert archive.keep(found) == before
    assert len(backups(archive)) == 1
    disk.put(file, b"ours", mode=0o600)
    assert not archive.is_back(str(file), before)
    assert archive.put_back(str(file), before)
    assert disk.find(file) == found
    assert not archive.put_back(str(file), before)


def test_what_was_not_there_goes_again(archive: Archive[Record], tmp_path: Path) -> None:
    new = tmp_path / "new"
    before = archive.keep(Disk().find(new))
    assert (backups(archive), archive.content(before)) == ([], None)
    new.write_bytes(b"ours")
    assert archive.put_back(str(new), before)
    assert not new.exists()


@pytest.mark.parametrize("damage", [Path.unlink, lambda place: place.write_bytes(b"damaged")], ids=["missing", "damaged"])
def test_a_backup_that_is_not_whole_is_never_put_back(
    archive: Archive[Record], file: Path, damage: Callable[[Path], object]
) -> None:
    before = archive.keep(Disk().find(file))
    file.write_bytes(b"ours")
    damage(backups(archive)[0])
    with pytest.raises(RefusedError, match="missing or damaged"):
        archive.put_back(str(file), before)
    assert file.read_bytes() == b"ours"


def test_a_backup_that_a_crash_damaged_is_written_anew(archive: Archive[Record], file: Path) -> None:
    before = archive.keep(Disk().find(file))
    backups(archive)[0].write_bytes(b"damaged")
    archive.keep(Disk().find(file))
    assert archive.content(before) == b"the operator's"


def test_only_backups_that_nobody_needs_are_forgotten(archive: Archive[Record]) -> None:
    first, second = (archive.keep(Found(content, 0o600, 0, 0)) for content in (b"1", b"2"))
    archive.forget_all_but({second.sha256, None})
    assert archive.content(second) == b"2"
    assert len(backups(archive)) == 1
    with pytest.raises(RefusedError):
        archive.content(first)


def test_ended_at_any_step_of_leaving_the_next_one_leaves_nothing(tmp_path: Path) -> None:
    """The record goes last, so that there is always one to finish with."""
    directory, file = tmp_path / "made", tmp_path / "made" / "file"
    record = record_of(Tracked(str(file), Before()), made=(directory,))

    def installed() -> None:
        directory.mkdir(exist_ok=True)
        (directory / ".file.accelshare").write_bytes(b"half")
        archive = archive_of(tmp_path)
        archive.directory.mkdir(exist_ok=True)
        (archive.directory / ".1234.backup.accelshare").write_bytes(b"half")
        archive.keep(Found(b"1", 0o600, 0, 0))
        archive.save(record)

    for _ in ended_at_each_step(installed, lambda _, disk: archive_of(tmp_path, disk).leave_nothing(record), least=5):
        archive = archive_of(tmp_path)
        assert not backups(archive) or archive.load() == record
        archive.leave_nothing(record)
        assert list(tmp_path.iterdir()) == []


def test_one_of_us_at_a_time(archive: Archive[Record]) -> None:
    with (
        archive.alone(RefusedError),
        pytest.raises(RefusedError, match="another accelshare is at work"),
        archive.alone(RefusedError),
    ):
        pytest.fail("two at work")


def test_the_disks_own_errors_leave_in_words(archive: Archive[Record]) -> None:
    with pytest.raises(RefusedError, match="/etc/a: No space left on device"), archive.alone(RefusedError):
        raise OSError(28, "whatever", "/etc/a")


def test_a_directory_that_was_made_for_nothing_is_removed_again(tmp_path: Path) -> None:
    archive = archive_of(tmp_path)
    with archive.alone(RefusedError, make=True):
        assert archive.directory.stat().st_mode & 0o777 == 0o700
    assert not archive.directory.exists()
    with archive.alone(RefusedError, make=True):
        archive.save(record_of())
    assert archive.load() == record_of()


def test_what_ended_in_the_middle_is_told() -> None:
    assert "an apply ended in the middle" in (Record("this test", state="applying", files=[]).unfinished or "")
    assert "a restore ended in the middle" in (Record("this test", state="restoring", files=[]).unfinished or "")
    assert Record("this test", state="applied", files=[]).unfinished is None
