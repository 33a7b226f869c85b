"""Makes trees of Debian 13's packages, for the guest and for the build of its kernel, from this machine's mirror."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from cluster.errors import ClusterError
from cluster.image.running import run
from cluster.local.packages import Need, ensure

RELEASE: Final = "trixie"
BACKPORTS: Final = f"{RELEASE}-backports"

_KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SETTINGS_FILE: Final = "/etc/apt/apt.conf.d/99mmdebstrap"  # where mmdebstrap leaves what --aptopt says
# How this machine reaches its mirror. A mirror may be a copy of an older day.
_SETTINGS: Final = ("Acquire::http", "Acquire::https", "Acquire::Retries", "Acquire::Check-Valid-Until")


def _command(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


_TOOLS: Final = (
    Need("the qemu-system-x86_64 command", "qemu-system-x86", _command("qemu-system-x86_64")),
    Need("the qemu-img command", "qemu-utils", _command("qemu-img")),
    Need("the mkfs.ext4 command", "e2fsprogs", _command("mkfs.ext4")),
    Need("the mmdebstrap command", "mmdebstrap", _command("mmdebstrap")),
    Need("Debian's archive keys", "debian-archive-keyring", lambda: Path(_KEYRING).exists()),
    Need("the ip command", "iproute2", _command("ip")),
    Need("the ssh command", "openssh-client", _command("ssh")),
    Need("the unshare command", "util-linux", _command("unshare")),
)


def provide_tools(log: Path, say: Callable[[str], None]) -> None:
    """QEMU and what makes its disks, installed if need be."""
    if os.geteuid() != 0:
        raise ClusterError("a virtual node needs root: for its file system, its network namespace and its tap device")
    ensure(_TOOLS, log, say)


def make_tree(
    target: Path, packages: Sequence[str], suites: Sequence[str], *, log: Path, say: Callable[[str], None], name: str
) -> None:
    """A directory, or an archive if its name ends in .tar, of these packages and what they depend on.

    The machine's apt settings do not stay in it.
    """
    mirror = _mirror()
    command = [
        "mmdebstrap",
        "--mode=root",
        "--variant=essential",
        f"--include={','.join(packages)}",
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--aptopt={line}" for line in _apt_settings()),
        *(f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale", "info")),
        f'--customize-hook=rm -f "$1{_SETTINGS_FILE}"',
        suites[0],
        str(target),
        *(f"deb [signed-by={_KEYRING}] {mirror} {suite} main" for suite in suites),
    ]
    run(name, command, log, say)


def _mirror() -> str:
    """The Debian mirror that this machine's apt already uses; it has every release."""
    ask = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian", "Component: main"]
    mirrors = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.split()
    if not mirrors:
        raise ClusterError("apt knows no mirror of Debian; /etc/apt/sources.list.d must name one, then try `apt-get update`")
    return mirrors[0]


def _apt_settings() -> list[str]:
    """This machine's, each as a line of apt's configuration."""
    ask = ["apt-config", "dump", "--no-empty", *_SETTINGS]
    return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.splitlines()
