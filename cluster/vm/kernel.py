"""Builds the guest's kernel, with the device memory controller, and the module of fake cards; keeps them in the cache.

The source is the newest that Debian offers for its stable release. A new one is built only when the cache is emptied.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.cache import build_directory, only_builder
from cluster.errors import BuildError
from cluster.image.running import run
from cluster.vm import debian

_HERE: Final = Path(__file__).parent
CONFIG: Final = _HERE / "kernel.config"
MODULE: Final = _HERE / "fakevram"

_COMPILER: Final = (
    "gcc",
    "make",
    "bc",
    "flex",
    "bison",
    "libelf-dev",
    "libssl-dev",
    "xz-utils",
    "cpio",
    "kmod",
    "python3-minimal",
    "perl-base",
)
# From the backports: the stable release's own source is older than the controller.
_PACKAGES: Final = (*_COMPILER, f"linux-source/{debian.BACKPORTS}")
_BASES: Final = ("x86_64_defconfig", "kvm_guest.config")
_FRAGMENT: Final = "accelshare.config"
_SOURCE: Final = "/usr/src/linux"
_MODULE_INSIDE: Final = "/usr/src/fakevram"
# objtool reads /proc. The mount is in a namespace that ends with the command.
_WITH_PROC: Final = 'mount -t proc proc "$1/proc" && exec chroot "$@"'


@dataclass(frozen=True, slots=True)
class Kernel:
    """The files of a built kernel."""

    image: Path
    module: Path
    release: str  # as `uname -r` prints it in the guest


def kernel(cache: Path, say: Callable[[str], None]) -> Kernel:
    """The kernel and its module, built if they are not in the cache."""
    home = cache / f"kernel-{identity()}"
    if not home.exists():
        with only_builder(cache, say):
            if not home.exists():  # else the process we waited for has built it
                _build(home, cache, say)
    return Kernel(home / "bzImage", home / "fakevram.ko", (home / "release").read_text().strip())


def identity() -> str:
    """A short hash of all that decides the kernel's content, but the day."""
    recipe = hashlib.sha256(repr((debian.RELEASE, _PACKAGES, _BASES)).encode())
    for file in (CONFIG, *sorted(MODULE.iterdir())):
        recipe.update(hashlib.sha256(file.read_bytes()).digest())
    return recipe.hexdigest()[:12]


def _build(home: Path, cache: Path, say: Callable[[str], None]) -> None:
    begun = time.monotonic()
    say(f"building a kernel with the device memory controller into {cache}; some 20 minutes of processor time, once")
    with build_directory(cache, "kernel") as directory:
        tree = directory / "tree"
        debian.make_tree(
            tree,
            _PACKAGES,
            (debian.RELEASE, debian.BACKPORTS),
            log=cache / "logs" / "kernel-tree.log",
            say=say,
            name="mmdebstrap (compiler and kernel source)",
        )
        build = _Build(tree, cache / "logs", say)
        build.unpack()
        build.configure()
        build.compile()
        finished = directory / "finished"
        build.collect(finished)
        finished.rename(home)
    say(f"built kernel {(home / 'release').read_text().strip()}: {time.monotonic() - begun:.0f} s")


class _Build:
    """The steps of one build in a tree that has a compiler and Debian's archive of the source."""

    def __init__(self, tree: Path, logs: Path, say: Callable[[str], None]) -> None:
        self._tree = tree
        self._logs = logs
        self._say = say
        self._source = tree / _SOURCE.removeprefix("/")

    def unpack(self) -> None:
        """Debian's archive has one directory, named by the version."""
        archives = sorted((self._tree / "usr/src").glob("linux-source-*.tar.xz"))
        if len(archives) != 1:
            raise BuildError(f"Debian's kernel source is not one archive but {[archive.name for archive in archives]}")
        self._source.mkdir()
        inside = f"/usr/src/{archives[0].name}"
        self._run("unpacking the kernel source", ["tar", "-xf", inside, "-C", _SOURCE, "--strip-components=1"])
        archives[0].unlink()

    def configure(self) -> None:
        """Raises if an option that we set was dropped, for example because what it depends on is missing."""
        shutil.copyfile(CONFIG, self._source / "kernel/configs" / _FRAGMENT)
        self._run("configuring the kernel", ["make", "-C", _SOURCE, *_BASES, _FRAGMENT])
        if dropped := missing_options(CONFIG.read_text(), (self._source / ".config").read_text()):
            raise BuildError(f"{CONFIG}: the kernel's configuration does not accept {', '.join(dropped)}")

    def compile(self) -> None:
        """The kernel, then the module. Without other modules there is no Module.symvers but the kernel's own."""
        jobs = f"-j{os.cpu_count() or 1}"
        self._run("building the kernel", ["make", "-C", _SOURCE, jobs, "bzImage", "modules_prepare"], self._objects)
        shutil.copyfile(self._source / "vmlinux.symvers", self._source / "Module.symvers")
        shutil.copytree(MODULE, self._tree / _MODULE_INSIDE.removeprefix("/"))
        self._run("building the module", ["make", "-C", _SOURCE, jobs, f"M={_MODULE_INSIDE}", "modules"])

    def collect(self, directory: Path) -> None:
        """What the guest needs of it."""
        directory.mkdir()
        shutil.copyfile(self._source / "arch/x86/boot/bzImage", directory / "bzImage")
        shutil.copyfile(self._tree / _MODULE_INSIDE.removeprefix("/") / "fakevram.ko", directory / "fakevram.ko")
        shutil.copyfile(self._source / "include/config/kernel.release", directory / "release")
        shutil.copyfile(self._source / ".config", directory / "config")

    def _run(self, name: str, command: Sequence[str], how_far: Callable[[Path], str] = lambda _log: "") -> None:
        log = self._logs / f"{name.replace(' ', '-')}.log"
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "KBUILD_BUILD_USER": "accelshare"}
        inside = ["unshare", "--mount", "sh", "-c", _WITH_PROC, "sh", str(self._tree), *command]
        run(name, inside, log, self._say, environment=environment, how_far=lambda: how_far(log))

    @staticmethod
    def _objects(log: Path) -> str:
        """Kbuild prints a line for each object."""
        return f", {len(re.findall(r'^  (?:CC|AS) ', log.read_text(errors='replace'), re.MULTILINE))} objects of some 2,000"


def missing_options(wanted: str, config: str) -> list[str]:
    """The lines of the fragment that set an option and are not in the finished configuration."""
    there = set(config.splitlines())
    return [line for line in wanted.splitlines() if line.startswith("CONFIG_") and line not in there]
