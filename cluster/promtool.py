"""Prometheus' own checker of rules, from Debian's package: unpacked into the cache, never installed, so nobody has to be root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cluster.cache import cache_directory, only_builder
from cluster.errors import ClusterError

PACKAGE: Final = "prometheus"  # promtool is in it
LIMIT_S: Final = 300.0


def ensure(say: Callable[[str], None]) -> Path:
    """Where promtool is: on the PATH, or in the cache. Raises ClusterError in words where it cannot be had."""
    if (installed := shutil.which("promtool")) is not None:
        return Path(installed)
    cache = cache_directory()
    place = cache / "bin" / "promtool-debian"
    with only_builder(cache, say):
        if not (place / "promtool").exists():
            _unpack(place, say)
    return place / "promtool"


def _unpack(place: Path, say: Callable[[str], None]) -> None:
    by_hand = f"install what Debian calls {PACKAGE}, or put promtool on the PATH"
    apt_get = shutil.which("apt-get")
    if apt_get is None or shutil.which("dpkg-deb") is None:
        raise ClusterError(f"promtool is missing, and this is not a Debian to take it from; {by_hand}")
    say(f"promtool is missing: unpacking it from Debian's package {PACKAGE}")
    with tempfile.TemporaryDirectory(prefix="promtool-") as directory:
        # apt's downloader gives up its rights, and then must still be able to write here.
        Path(directory).chmod(0o777)
        complaint = _download(apt_get, directory)
        if complaint and os.geteuid() == 0:  # the lists of packages may be old, or not there yet
            _run([apt_get, "update", "--quiet"], directory)
            complaint = _download(apt_get, directory)
        if complaint:
            raise ClusterError(f"promtool is missing, and apt-get cannot download {PACKAGE} ({complaint}); {by_hand}")
        package = next(Path(directory).glob(f"{PACKAGE}_*.deb"))
        if trouble := _run(["dpkg-deb", "--extract", str(package), f"{directory}/tree"], directory):
            raise ClusterError(f"{package.name} cannot be unpacked: {trouble}; {by_hand}")
        place.mkdir(parents=True, exist_ok=True)
        fresh = place / "promtool.fresh"
        shutil.copy2(f"{directory}/tree/usr/bin/promtool", fresh)
        fresh.rename(place / "promtool")


def _download(apt_get: str, directory: str) -> str:
    return _run([apt_get, "download", "--quiet", PACKAGE], directory)


def _run(command: list[str], directory: str) -> str:
    """Nothing if it worked, else the last line it said."""
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"not done within {LIMIT_S:.0f} s"
    said = (done.stderr or done.stdout).strip().splitlines() or [f"it ended with {done.returncode}"]
    return said[-1] if done.returncode else ""
