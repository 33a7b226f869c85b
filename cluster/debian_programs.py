"""Unpacks programs of Debian packages that tests call into the cache, without an installation and without root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.cache import cache_directory, only_builder
from cluster.errors import ClusterError

LIMIT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class DebianProgram:
    """What it is called, and Debian's package that has it in usr/bin."""

    name: str
    package: str

    @property
    def by_hand(self) -> str:
        return f"install what Debian calls {self.package}, or put {self.name} on the PATH"


PROMTOOL: Final = DebianProgram("promtool", "prometheus")  # Prometheus' own checker of rules
PROMETHEUS: Final = DebianProgram("prometheus", "prometheus")
SHELLCHECK: Final = DebianProgram("shellcheck", "shellcheck")


def ensure(program: DebianProgram, say: Callable[[str], None]) -> Path:
    """Where the program is: on the PATH, or in the cache. Raises ClusterError if it is not available."""
    if (installed := shutil.which(program.name)) is not None:
        return Path(installed)
    cache = cache_directory()
    place = cache / "bin" / f"{program.name}-debian" / program.name
    if place.exists():  # it appears complete or not at all, so there is no need to wait for whoever builds something else
        return place
    with only_builder(cache, say):
        if not place.exists():
            _unpack(program, place, say)
    return place


def _unpack(program: DebianProgram, place: Path, say: Callable[[str], None]) -> None:
    apt_get = shutil.which("apt-get")
    if apt_get is None or shutil.which("dpkg-deb") is None:
        raise ClusterError(f"{program.name} is missing, and this is not a Debian to take it from; {program.by_hand}")
    say(f"{program.name} is missing: unpacking it from Debian's package {program.package}")
    with tempfile.TemporaryDirectory(prefix=f"{program.name}-") as directory:
        # apt's downloader gives up its rights, and then must still be able to write here.
        Path(directory).chmod(0o777)
        download = [apt_get, "download", "--quiet", program.package]
        complaint = _run(download, directory)
        if complaint and os.geteuid() == 0:  # the lists of packages may be old, or not there yet
            _run([apt_get, "update", "--quiet"], directory)
            complaint = _run(download, directory)
        if complaint:
            raise ClusterError(
                f"{program.name} is missing, and apt-get cannot download {program.package} ({complaint}); {program.by_hand}"
            )
        package = next(Path(directory).glob(f"{program.package}_*.deb"))
        found = f"{directory}/tree/usr/bin/{program.name}"
        if trouble := _run(["dpkg-deb", "--extract", str(package), f"{directory}/tree"], directory) or _run(
            [found, "--version"],
            directory,  # a library of another package may be missing
        ):
            raise ClusterError(f"{program.name} of {package.name} does not work here: {trouble}; {program.by_hand}")
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_suffix(".fresh")
        shutil.copy2(found, fresh)
        fresh.rename(place)


def _run(command: list[str], directory: str) -> str:
    """Nothing if it worked, else the last line that it printed."""
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"not done within {LIMIT_S:.0f} s"
    lines = (done.stderr or done.stdout).strip().splitlines() or [f"it ended with {done.returncode}"]
    return lines[-1] if done.returncode else ""
