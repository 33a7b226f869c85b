"""Finds the system packages that the cluster needs, or installs them from the distribution."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.errors import ClusterError
from cluster.process import Process


@dataclass(frozen=True, slots=True)
class Need:
    """A thing, how to see that it is there, and Debian's package of it."""

    what: str
    package: str
    found: Callable[[], bool]


def _on_path(program: str) -> Callable[[], bool]:
    return lambda: shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin") is not None


def _static_busybox() -> bool:
    """Its other build needs libraries that an image of one file does not have."""
    return (path := shutil.which("busybox")) is not None and b"/ld-linux" not in Path(path).read_bytes()


def _library(name: str) -> Callable[[], bool]:
    def found() -> bool:
        return _on_path("pkg-config")() and subprocess.run(["pkg-config", "--exists", name], check=False).returncode == 0

    return found


TO_RUN: Final = (
    Need("the ip command", "iproute2", _on_path("ip")),
    Need("the nft command", "nftables", _on_path("nft")),
    Need("a busybox that is linked statically", "busybox-static", _static_busybox),
    Need("the unshare command", "util-linux", _on_path("unshare")),
    Need("the mount command", "mount", _on_path("mount")),
)
TO_BUILD_RUNC: Final = (
    Need("a C compiler", "gcc", _on_path("gcc")),
    Need("the C library's headers", "libc6-dev", lambda: Path("/usr/include/stdlib.h").exists()),
    Need("pkg-config", "pkg-config", _on_path("pkg-config")),
    Need("libseccomp with its headers", "libseccomp-dev", _library("libseccomp")),
)


def ensure(needs: Sequence[Need], log: Path, say: Callable[[str], None]) -> None:
    """All of them, installed if need be; raises with all that is missing if it cannot be."""
    missing = [need for need in needs if not need.found()]
    if not missing:
        return
    packages = [need.package for need in missing]
    in_words = f"missing on this machine: {', '.join(need.what for need in missing)}"
    by_hand = f"install what Debian calls {' '.join(packages)}, then try again"
    apt_get = shutil.which("apt-get")
    if apt_get is None or os.geteuid() != 0:
        raise ClusterError(f"{in_words}; {by_hand}")
    say(f"{in_words}; installing {' '.join(packages)} with apt-get")
    install = [apt_get, "install", "--yes", "--no-install-recommends", *packages]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    process = Process("apt-get install", install, log, environment=environment)
    if process.wait_ended(say, str) != 0:  # the lists of packages may be old, or not there yet
        Process("apt-get update", [apt_get, "update"], log.with_suffix(".update.log"), environment=environment).wait_ended(
            say, str
        )
        process = Process("apt-get install", install, log, environment=environment)
        process.wait_ended(say, str)
    if still := [need.what for need in needs if not need.found()]:
        raise ClusterError(f"still missing: {', '.join(still)}; {by_hand}; the end of {log}:\n{process.last_lines()}")
