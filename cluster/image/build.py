"""Builds an image with an engine and its registry, or with buildah and a base of our own, and keeps it in the cache."""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.cache import cache_directory, only_builder
from cluster.errors import BuildError
from cluster.image import debian_base, one_layer, pip_settings
from cluster.image.engines import find_engine
from cluster.image.recipe import Recipe, recipe
from cluster.image.running import run

Say = Callable[[str], None]

_BASE: Final = "localhost/accelshare-base:latest"
_BUILDER: Final = "localhost/accelshare-builder"
_KEPT: Final = 3  # archives of older sources: 230 MB each


@dataclass(frozen=True, slots=True)
class Built:
    """An image's name, and the archive that `docker load`, `podman load` and `ctr images import` take; None without one."""

    reference: str
    archive: Path | None


def build_with_engine(say: Say, *, engine: str | None = None, base: str | None = None, archive: Path | None = None) -> Built:
    """Build with docker, podman or buildah as this machine has them set up."""
    made = recipe()
    tool = find_engine(engine)
    log = cache_directory() / "logs" / "image.log"
    with tempfile.TemporaryDirectory(prefix="accelshare-image-") as directory:
        choice = ["--build-arg", f"BASE={base}"] if base else []
        common = _common(made, pip_settings.secrets(Path(directory)))
        command = [*tool.build(made), *choice, *common, "--tag", made.reference, str(made.root)]
        run(f"{tool.name} build", command, log, say, environment=tool.environment)
    if archive is not None:
        archive.unlink(missing_ok=True)
        run(f"{tool.name} save", tool.save(made.reference, archive.absolute()), log, say)
    return Built(made.reference, archive)


def build_with_debian(say: Say, *, cache: Path | None = None, output: Path | None = None) -> Built:
    """Build on a base of this machine's own distribution; the same source is built once and found afterwards."""
    made = recipe()
    home = (cache or cache_directory()) / "images"
    archive = home / f"accelshare-{made.version}-{made.digest(debian_base.identity())}.tar"
    if not archive.exists():
        with only_builder(home, say):
            if not archive.exists():  # else the process we waited for has built it
                _build(made, archive, say)
                _forget_old(home)
    if output is not None:
        shutil.copyfile(archive, output)
    return Built(made.reference, output or archive)


def _build(made: Recipe, archive: Path, say: Say) -> None:
    home = archive.parent
    logs = home.parent / "logs"
    debian_base.provide_tools(logs / "apt-get.log", say)
    base = home / f"base-{debian_base.identity()}.tar"
    if not base.exists():
        debian_base.make(base, logs / "mmdebstrap.log", say)
    with tempfile.TemporaryDirectory(prefix="build-", dir=home) as name:
        directory = Path(name)
        buildah = _Buildah(directory, made.copied(directory / "source"), logs / "buildah.log", say)
        one_layer.write(directory / "base.tar", _BASE, base)
        buildah.run("pull", ["pull", "--quiet", *buildah.trust, f"docker-archive:{directory / 'base.tar'}"])
        # Debian's Python has no pip, and an image needs none: the one that runs here, which is Python only, builds it.
        buildah.build(_BUILDER, _home_of_pip(), f"FROM {_BASE}\nCOPY pip /usr/lib/python3/dist-packages/pip\n")
        choices = ["--build-arg", f"BASE={_BASE}", "--build-arg", f"BUILDER={_BUILDER}", *pip_settings.secrets(directory)]
        identifier = buildah.build_recipe(choices)
        unfinished = directory / "image.tar"
        buildah.run("push", ["push", "--quiet", *buildah.trust, identifier, f"docker-archive:{unfinished}:{made.reference}"])
        unfinished.rename(archive)


class _Buildah:
    """buildah with its own storage, below a directory that is removed after the build.

    Storage by plain copies and isolation by chroot need the least of a kernel, and no other service.
    """

    def __init__(self, directory: Path, made: Recipe, log: Path, say: Say) -> None:
        self._directory = directory
        self._made = made
        self._log = log
        self._say = say
        policy = directory / "policy.json"
        policy.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
        self.trust = ["--signature-policy", str(policy)]

    def build(self, tag: str, context: Path, dockerfile: str) -> None:
        """A small image of a few lines, without the repository."""
        file = self._directory / "Dockerfile"
        file.write_text(dockerfile)
        self.run("build", ["build", *self._how, "--tag", tag, "--file", str(file), str(context)])

    def build_recipe(self, choices: Sequence[str]) -> str:
        """The repository's own Dockerfile; the image has no name yet, only this identifier."""
        identifier = self._directory / "identifier"
        common = ["--timestamp", str(self._made.time_s), *_common(self._made, choices)]
        self.run("build", ["build", *self._how, *common, "--iidfile", str(identifier), str(self._made.root)])
        return identifier.read_text().strip().removeprefix("sha256:")

    @property
    def _how(self) -> list[str]:
        return ["--isolation=chroot", "--pull-never", *self.trust]

    def run(self, what: str, words: Sequence[str]) -> None:
        """One call of it; raises with the end of its log if it fails."""
        storage = ["--root", str(self._directory / "storage"), "--runroot", str(self._directory / "run")]
        run(f"buildah {what}", ["buildah", "--storage-driver=vfs", *storage, *words], self._log, self._say)


def _common(made: Recipe, secrets: Sequence[str]) -> list[str]:
    file = str(made.root / "Dockerfile")
    return ["--build-arg", f"SOURCE_DATE_EPOCH={made.time_s}", *secrets, "--file", file]


def _home_of_pip() -> Path:
    found = importlib.util.find_spec("pip")
    if found is None or found.origin is None:
        raise BuildError("the Python that runs this has no pip; an image is built with it")
    return Path(found.origin).parents[1]


def _forget_old(home: Path) -> None:
    archives = sorted(home.glob("accelshare-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in archives[_KEPT:]:
        old.unlink()
    for leftover in home.glob("build-*"):  # of a build that was killed; we hold the lock, so no other build uses it
        shutil.rmtree(leftover, ignore_errors=True)
