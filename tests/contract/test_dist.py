"""`make dist`: the wheel has everything that the README promises, and works where it is installed."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from accelshare import __version__

ROOT = Path(__file__).parents[2]
PROGRAMS = (
    "accelshare",
    *(f"kubectl{middle}inspect-{word}" for middle in ("-", "_complete-") for word in ("gpushare", "xpushare")),
)


def build(source: Path, out: Path, *targets: str) -> None:
    words = [sys.executable, "-m", "hatchling", "build", "--directory", str(out), *(f"--target={each}" for each in targets)]
    done = subprocess.run(words, cwd=source, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` builds."""
    out = tmp_path_factory.mktemp("dist")
    build(ROOT, out, "wheel", "sdist")
    return out


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh virtual environment with the wheel, and nothing else."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    (wheel,) = dist.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, timeout=600)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--disable-pip-version-check", str(wheel)], check=True, timeout=600)
    return place / "bin"


def run(program: Path, *words: str, directory: Path) -> subprocess.CompletedProcess[str]:
    # The pinned libraries are those of this environment, which is without a network; accelshare is the installed one.
    environ = {"PATH": os.environ["PATH"], "HOME": str(directory), "PYTHONPATH": sysconfig.get_paths()["purelib"]}
    return subprocess.run([program, *words], cwd=directory, env=environ, capture_output=True, text=True, check=False, timeout=600)


def test_the_version_is_in_one_place(dist: Path) -> None:
    assert sorted(file.name for file in dist.iterdir()) == [
        f"accelshare-{__version__}-py3-none-any.whl",
        f"accelshare-{__version__}.tar.gz",
    ]
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"appVersion: {__version__}\n" in (ROOT / "deploy/chart/accelshare/Chart.yaml").read_text()


def test_an_installed_wheel_has_the_commands_and_the_plugins(installed: Path, tmp_path: Path) -> None:
    assert [name for name in PROGRAMS if not (installed / name).is_file()] == []
    done = run(installed / "accelshare", "--version", directory=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"accelshare {__version__}\n", "")
    done = run(installed / "accelshare", "profile", "show", "nvidia", directory=tmp_path)
    assert done.stdout.startswith('name = "nvidia"\n')


def test_the_demo_runs_from_an_installed_wheel(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "accelshare", "demo", directory=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "13 pods bound, 4 waiting with a reason, no card oversold" in done.stdout
    assert str(installed.parent) in done.stdout  # where the manifests are


def test_a_wheel_is_the_same_from_the_sdist(dist: Path, tmp_path: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    build(source, tmp_path / "out", "wheel")
    (first,), (second,) = dist.glob("*.whl"), (tmp_path / "out").glob("*.whl")
    assert sorted(zipfile.ZipFile(first).namelist()) == sorted(zipfile.ZipFile(second).namelist())


def test_the_images_wheel_has_no_demo(tmp_path: Path) -> None:
    """The Dockerfile copies only src/ and three files: the demo's fakes do not belong to a cluster."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    build(source, tmp_path / "out", "wheel")
    (wheel,) = (tmp_path / "out").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "accelshare/cli.py" in names
    assert not [name for name in names if "_tree" in name]
