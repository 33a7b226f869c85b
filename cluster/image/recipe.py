"""What an image is made from: the files that the Dockerfile copies, their hash, their time and the image's name."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cluster.errors import ClusterError

ROOT: Final = Path(__file__).parents[2]
_FILES: Final = (
    "Dockerfile",
    ".dockerignore",
    "requirements/build.txt",
    "requirements/runtime.txt",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "cluster/image/sbom.py",
)
_FOLDER: Final = "src"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One source tree, ready to become an image."""

    root: Path
    version: str
    time_s: int  # of every file in the image, and of the image

    @property
    def reference(self) -> str:
        """The image's name and tag; no registry, so that it is the same everywhere."""
        return f"accelshare:{self.version}"

    def digest(self, *more: str) -> str:
        """A short hash of all that decides the content, and of what else the caller names."""
        total = hashlib.sha256(repr((self.time_s, more)).encode())
        for path in _inputs(self.root):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{path.relative_to(self.root)} {path.stat().st_mode & 0o111:o} {content}\n".encode())
        return total.hexdigest()[:12]

    def copied(self, directory: Path) -> Recipe:
        """The same recipe on a copy of its files, so that an edit during the build does not end up in the image."""
        before = self.digest()
        for path in _inputs(self.root):
            place = directory / path.relative_to(self.root)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place)
        copy = replace(self, root=directory)
        if copy.digest() != before:
            raise ClusterError(f"the sources in {self.root} were changed while they were copied; try again")
        return copy


def recipe(root: Path = ROOT, environment: Mapping[str, str] = os.environ) -> Recipe:
    """The recipe of this checkout. $SOURCE_DATE_EPOCH is its time, else the last commit that touched it, else 1970."""
    found = re.search(r'^__version__ = "(.+)"$', (root / "src/accelshare/__init__.py").read_text(), re.MULTILINE)
    if found is None:
        raise ClusterError(f"{root}/src/accelshare/__init__.py names no __version__; an image needs one as its tag")
    return Recipe(root, found.group(1), _time_s(root, environment))


def _inputs(root: Path) -> Iterator[Path]:
    yield from (root / name for name in _FILES)
    yield from sorted(file for file in (root / _FOLDER).rglob("*") if file.is_file() and "__pycache__" not in file.parts)


def _time_s(root: Path, environment: Mapping[str, str]) -> int:
    if epoch := environment.get("SOURCE_DATE_EPOCH"):
        if not epoch.isdecimal():
            raise ClusterError(f"SOURCE_DATE_EPOCH is {epoch!r}; it must be a number of seconds since 1970")
        return int(epoch)
    ask = ["git", "log", "-1", "--format=%ct", "--", *_FILES, _FOLDER]
    try:
        done = subprocess.run(ask, cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # a source archive on a machine without git
        return 0
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else 0
