"""The directory of a build is gone after it, however it ended."""

from pathlib import Path

import pytest

from cluster import cache
from cluster.waiting import wait_until


def test_what_was_renamed_out_of_it_stays_and_the_rest_goes(tmp_path: Path) -> None:
    with cache.build_directory(tmp_path, "kernel") as directory:
        (directory / "finished").write_text("a")
        (directory / "rest").write_text("b")
        (directory / "finished").rename(tmp_path / "kernel-1")
    wait_until(lambda: [path.name for path in tmp_path.iterdir()] == ["kernel-1"], "the rest is removed")


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), cache.build_directory(tmp_path, "kernel"):
        raise KeyboardInterrupt
    assert not list(tmp_path.glob("kernel-build-*"))


def test_what_a_killed_build_left_goes_with_the_next(tmp_path: Path) -> None:
    (tmp_path / "kernel-build-old").mkdir()
    (tmp_path / "root-build-other").mkdir()
    with cache.build_directory(tmp_path, "kernel") as directory:
        assert list(tmp_path.glob("kernel-build-*")) == [directory]
        assert (tmp_path / "root-build-other").exists()
