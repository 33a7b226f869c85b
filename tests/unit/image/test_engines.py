"""An engine that works here is found; one that does not is refused with the reason."""

import os
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.image import build_with_engine
from cluster.image.engines import ENGINES, find_engine
from cluster.image.recipe import Recipe


def program(directory: Path, name: str, exit_code: int) -> None:
    file = directory / name
    file.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    file.chmod(0o755)


def test_a_docker_without_its_daemon_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "docker", 1)
    program(tmp_path, "buildah", 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert find_engine().name == "buildah"
    with pytest.raises(ClusterError, match="docker does not work here; install one that does"):
        find_engine("docker")


def test_no_engine_is_said_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match=r"none of docker, podman, buildah works here.*--from-debian"):
        find_engine()
    with pytest.raises(ClusterError, match="no such engine: kaniko; there are docker, podman, buildah"):
        find_engine("kaniko")


def test_an_old_docker_is_told_to_build_as_the_new_ones_do() -> None:
    """Debian 12's docker is one that knows no secrets otherwise."""
    assert ENGINES["docker"].environment == {"DOCKER_BUILDKIT": "1"}


def test_an_engines_settings_reach_its_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docker").write_text('#!/bin/sh\n[ "$1" = build ] && [ "$DOCKER_BUILDKIT" != 1 ] && exit 1\nexit 0\n')
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("ACCELSHARE_CACHE", str(tmp_path / "cache"))
    assert build_with_engine(print, engine="docker").archive is None


@pytest.mark.parametrize("name", ENGINES)
def test_an_archive_carries_the_images_own_name(name: str, tmp_path: Path) -> None:
    words = ENGINES[name].save("accelshare:1", tmp_path / "x.tar")
    assert words[0] == ENGINES[name].build(Recipe(tmp_path, "1", 0))[0] == name
    assert any("accelshare:1" in word for word in words)
    assert any(str(tmp_path / "x.tar") in word for word in words)
