"""Makes the guest's root disk: Debian, the node's programs and images, and the agent's Python packages; keeps it in the cache.

The agent itself is not on it: its source comes with the second disk, so that a changed agent needs no new root disk.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from cluster.build import Binaries
from cluster.cache import build_directory, only_builder
from cluster.image.running import run
from cluster.local.images import Content, busybox_files, make_image
from cluster.local.layout import TEST_IMAGE
from cluster.vm import debian, guest_files
from cluster.vm.layout import IMAGES, PAUSE_IMAGE, PROGRAMS, PYTHON_PACKAGES, SECOND_DISK, SOURCE

NODE_PROGRAMS: Final = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "ptp", "loopback", "host-local")
REQUIREMENTS: Final = Path(__file__).parents[2] / "requirements/runtime.txt"

_PACKAGES: Final = (
    "systemd",
    "systemd-sysv",
    "udev",
    "dbus",
    "kmod",
    "mount",
    "procps",
    "iproute2",
    "nftables",
    "ca-certificates",
    "openssh-server",
    "python3",
    "libstdc++6",  # for wheels
)
_PYTHON: Final = "3.13"  # of this release of Debian
_WHEELS: Final = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux_2_12", "manylinux_2_5")
_SIZE: Final = "4G"  # sparse: it takes what is in it


def root_disk(cache: Path, programs: Binaries, say: Callable[[str], None]) -> Path:
    """The disk image, made if it is not in the cache. It must be used as a snapshot: it has no journal."""
    disk = cache / f"root-{identity(programs)}.ext4"
    if not disk.exists():
        with only_builder(cache, say):
            if not disk.exists():  # else the process we waited for has made it
                _make(disk, cache, programs, say)
    return disk


def identity(programs: Binaries) -> str:
    """A short hash of all that decides the disk's content, but the day. Programs are named by theirs."""
    built = [str(programs[name].relative_to(programs[name].parents[1])) for name in NODE_PROGRAMS]
    busybox = hashlib.sha256(_busybox().read_bytes()).hexdigest()
    wheels = (_PYTHON, _WHEELS, REQUIREMENTS.read_text())
    guest = (sorted(guest_files.files().items()), sorted(guest_files.links().items()))
    return hashlib.sha256(repr((debian.RELEASE, _PACKAGES, _SIZE, built, busybox, wheels, guest)).encode()).hexdigest()[:12]


def _make(disk: Path, cache: Path, programs: Binaries, say: Callable[[str], None]) -> None:
    begun = time.monotonic()
    logs = cache / "logs"
    say("making the root disk of the virtual node; some 4 minutes, once")
    with build_directory(cache, "root") as directory:
        tree = directory / "tree"
        tree.mkdir()
        base = _debian(cache, directory, say)
        run("unpacking Debian", ["tar", "-xf", str(base), "-C", str(tree), "--numeric-owner"], logs / "root-tar.log", say)
        _add_python_packages(tree, logs, say)
        _add_programs(tree, programs)
        _add_images(tree)
        _add_files(tree)
        unfinished = directory / "disk"
        make_file_system(unfinished, tree, _SIZE, logs / "root-mkfs.log", say)
        unfinished.rename(disk)
    _forget_old(disk)
    say(f"made {disk}: {time.monotonic() - begun:.0f} s, {disk.stat().st_blocks * 512 / 1e6:.0f} MB")


def _debian(cache: Path, directory: Path, say: Callable[[str], None]) -> Path:
    """An archive of Debian's packages alone, which change less often than what is added to them."""
    archive = cache / f"debian-{hashlib.sha256(repr((debian.RELEASE, _PACKAGES)).encode()).hexdigest()[:12]}.tar"
    if not archive.exists():
        fresh = directory / archive.name
        log = cache / "logs" / "root-tree.log"
        debian.make_tree(fresh, _PACKAGES, (debian.RELEASE,), log=log, say=say, name="mmdebstrap (the node's Debian)")
        for old in cache.glob("debian-*.tar"):
            old.unlink()
        fresh.rename(archive)
    return archive


def make_file_system(disk: Path, tree: Path, size: str, log: Path, say: Callable[[str], None]) -> None:
    """An image of a disk with what is in this directory; nothing is mounted."""
    command = ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", "-d", str(tree), str(disk), size]
    run("mkfs.ext4", command, log, say)


def _add_python_packages(tree: Path, logs: Path, say: Callable[[str], None]) -> None:
    """Wheels of the pinned versions for the guest's Python, compiled with it."""
    target = _inside(tree, PYTHON_PACKAGES)
    fetch = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--no-deps"]
    platform = [f"--platform={name}_x86_64" for name in _WHEELS]
    choice = ["--only-binary=:all:", f"--python-version={_PYTHON}", "--implementation=cp", *platform]
    command = [*fetch, *choice, "--require-hashes", "-r", str(REQUIREMENTS), "--target", str(target)]
    run(f"pip install (for Python {_PYTHON})", command, logs / "root-pip.log", say)
    compile_all = ["chroot", str(tree), "python3", "-m", "compileall", "-q", str(PYTHON_PACKAGES)]
    run("compiling Python packages", compile_all, logs / "root-compileall.log", say)


def _add_programs(tree: Path, programs: Binaries) -> None:
    directory = _inside(tree, PROGRAMS)
    directory.mkdir(parents=True)
    for program in NODE_PROGRAMS:
        shutil.copy2(programs[program], directory / program)


def _add_images(tree: Path) -> None:
    busybox = _busybox()
    work: Sequence[tuple[str, dict[str, Content], list[str]]] = (
        (PAUSE_IMAGE, {"bin/busybox": busybox}, ["/bin/busybox", "sleep", "infinity"]),
        (TEST_IMAGE, busybox_files(busybox), ["/bin/sh"]),
    )
    for number, (name, files, entrypoint) in enumerate(work):
        make_image(_inside(tree, IMAGES) / f"{number}.tar", name, files, entrypoint)


def _add_files(tree: Path) -> None:
    for path, content in guest_files.files().items():
        file = _inside(tree, Path(path))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)  # may be a link that leads out of the tree
        file.write_text(content)
    for path, target in guest_files.links().items():
        link = _inside(tree, Path(path))
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    for directory in (SECOND_DISK, SOURCE):
        _inside(tree, directory).mkdir(parents=True)


def _busybox() -> Path:
    return Path(shutil.which("busybox") or "busybox")


def _inside(tree: Path, path: Path) -> Path:
    return tree / path.relative_to(os.sep)


def _forget_old(disk: Path) -> None:
    for other in disk.parent.glob("root-*.ext4"):
        if other != disk:
            other.unlink()
