"""The programs that build an image from a Dockerfile, as a table of how each is called."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cluster.errors import ClusterError
from cluster.image.recipe import Recipe

Words = list[str]


@dataclass(frozen=True, slots=True)
class Engine:
    """One of them: whether it works here, how it builds, and how it writes an image as an archive that all others can load."""

    name: str
    works: Sequence[str]
    build: Callable[[Recipe], Words]
    save: Callable[[str, Path], Words]
    environment: Mapping[str, str] = field(default_factory=dict)


ENGINES: Final[Mapping[str, Engine]] = {
    # A docker without its daemon is only half of one.
    "docker": Engine(
        "docker",
        works=["docker", "info"],
        build=lambda recipe: ["docker", "build"],
        save=lambda reference, archive: ["docker", "save", "--output", str(archive), reference],
        # A docker before 23 builds without BuildKit by default, and then has no secrets.
        environment={"DOCKER_BUILDKIT": "1"},
    ),
    "podman": Engine(
        "podman",
        works=["podman", "--version"],
        build=lambda recipe: ["podman", "build", "--timestamp", str(recipe.time_s)],
        # Not `podman save`, which names it localhost/…: a node that imports it would not find accelshare:….
        save=lambda reference, archive: ["podman", "push", reference, f"docker-archive:{archive}:{reference}"],
    ),
    "buildah": Engine(
        "buildah",
        works=["buildah", "--version"],
        build=lambda recipe: ["buildah", "build", "--timestamp", str(recipe.time_s)],
        save=lambda reference, archive: ["buildah", "push", reference, f"docker-archive:{archive}:{reference}"],
    ),
}


def find_engine(name: str | None = None) -> Engine:
    """The named one, or the first that works here; an error if there is none."""
    if name is not None and name not in ENGINES:
        raise ClusterError(f"no such engine: {name}; there are {', '.join(ENGINES)}")
    for engine in [ENGINES[name]] if name else ENGINES.values():
        if _works(engine):
            return engine
    missing = f"{name} does not work" if name else f"none of {', '.join(ENGINES)} works"
    raise ClusterError(
        f"{missing} here; install one that does, or build on a base made of Debian's packages "
        "with `python -m cluster image --from-debian`, which needs root on a Debian or Ubuntu but no registry"
    )


def _works(engine: Engine) -> bool:
    if shutil.which(engine.works[0]) is None:
        return False
    return subprocess.run(engine.works, capture_output=True, check=False).returncode == 0
