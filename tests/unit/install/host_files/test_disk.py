"""One file is replaced completely or not at all, and can be restored."""

import os
from pathlib import Path

import pytest

from accelshare.install.host_files.disk import Disk, HostFile
from tests.unit.install.host_files.ending import ended_at_each_step

ME = (os.geteuid(), os.getegid())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"old content")
    path.chmod(0o640)
    return path


def names(file: Path) -> list[str]:
    return sorted(place.name for place in file.parent.iterdir())


def test_ended_at_any_step_the_file_is_the_old_one_or_the_new_one(file: Path) -> None:
    def old() -> None:
        file.write_bytes(b"old content")

    def put(_: None, disk: Disk) -> None:
        disk.put(file, b"new content", mode=0o640)

    for _ in ended_at_each_step(old, put, least=3):
        assert file.read_bytes() in {b"old content", b"new content"}
        assert [name for name in names(file) if not name.startswith(".")] == ["file"]  # whatever is left over is hidden
        Disk().remove_temporary(file)
        assert names(file) == ["file"]
    assert file.read_bytes() == b"new content"


def test_a_disk_that_refuses_leaves_the_old_file_and_nothing_beside_it(file: Path) -> None:
    def full(step: str) -> None:
        if step.startswith("write the rest of"):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        Disk(full).put(file, b"new content", mode=0o600)
    assert (names(file), file.read_bytes()) == (["file"], b"old content")


def test_what_was_found_is_put_back_with_its_mode(file: Path) -> None:
    disk = Disk()
    found = disk.find(file)
    assert found == HostFile(b"old content", 0o640, *ME)
    disk.put(file, b"new content", mode=0o600)
    disk.put_back(file, found)
    assert disk.find(file) == found


def test_what_was_not_there_is_removed_again(file: Path) -> None:
    disk = Disk()
    new = file.with_name("new")
    found = disk.find(new)
    assert found is None
    disk.put(new, b"new content", mode=0o600)
    disk.put_back(new, found)
    assert names(file) == ["file"]


def test_a_new_file_is_guarded_as_the_one_it_is_made_from(file: Path) -> None:
    disk = Disk()
    alike, open_to_all = file.with_name("alike"), file.with_name("open")
    disk.put_like(alike, b"new content", disk.find(file))
    disk.put_like(open_to_all, b"new content", None)
    assert disk.find(alike) == HostFile(b"new content", 0o640, *ME)
    assert disk.find(open_to_all) == HostFile(b"new content", 0o644, *ME)


def test_a_link_planted_where_we_write_is_not_followed(file: Path) -> None:
    """Whoever may write in the directory cannot lead us to a file elsewhere."""
    (file.parent / ".new.accelshare").symlink_to(file)
    with pytest.raises(OSError, match="symbolic links"):
        Disk().put(file.with_name("new"), b"new content", mode=0o600)
    assert (names(file), file.read_bytes()) == (["file"], b"old content")


def test_a_directory_that_others_use_stays(file: Path) -> None:
    Disk().remove_directory(file.parent)
    assert file.exists()
