"""A base image made of the distribution's own packages, for machines that reach a package mirror but no image registry."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cluster.errors import ClusterError
from cluster.image.running import run
from cluster.local.packages import Need, ensure

_NEEDS: Final = (
    Need("the buildah command", "buildah", lambda: shutil.which("buildah") is not None),
    Need("the mmdebstrap command", "mmdebstrap", lambda: shutil.which("mmdebstrap") is not None),
)
# What `python:3.11-slim` has of Debian, and no documentation in the languages of the world.
_PACKAGES: Final = ("python3", "ca-certificates", "libstdc++6")
_LEFT_OUT: Final = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


def provide_tools(log: Path, say: Callable[[str], None]) -> None:
    """buildah and mmdebstrap, installed if need be."""
    if os.geteuid() != 0:
        raise ClusterError(
            "a base image of Debian's packages needs root; with docker, podman or buildah and a registry it does not"
        )
    ensure(_NEEDS, log, say)


def release() -> str:
    """The code name of the distribution that this machine runs, which the base will be too."""
    name = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    if not name:
        raise ClusterError("/etc/os-release names no VERSION_CODENAME; a base can be made on Debian and Ubuntu only")
    return name


def identity() -> str:
    """A short hash of all that decides the base's content, but the day: security updates come with an emptied cache."""
    return hashlib.sha256(repr((release(), platform.machine(), _PACKAGES, _LEFT_OUT)).encode()).hexdigest()[:12]


def make(archive: Path, log: Path, say: Callable[[str], None]) -> None:
    """Write the base's file system as a tar archive.

    Its files keep their times: Python uses compiled files only if their sources have the recorded times.
    """
    unfinished = archive.with_suffix(".part.tar")
    exclusions = [f"--dpkgopt=path-exclude={path}" for path in _LEFT_OUT]
    command = [
        "mmdebstrap",
        "--mode=root",
        "--variant=essential",
        f"--include={','.join(_PACKAGES)}",
        '--aptopt=APT::Install-Recommends "false"',
        *exclusions,
        release(),
        str(unfinished),
        _mirror(release()),
    ]
    run("mmdebstrap (a base image)", command, log, say)
    unfinished.rename(archive)


def _mirror(name: str) -> str:
    """The mirror that this machine's apt already uses for its own release."""
    ask = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Codename: {name}", "Component: main"]
    mirrors = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.split()
    if not mirrors:
        raise ClusterError(f"apt knows no mirror of {name}; /etc/apt/sources.list.d must name one, then try `apt-get update`")
    return mirrors[0]
