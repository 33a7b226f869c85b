"""Provides Chromium for tests of the dashboard: the one on the PATH, or Debian's package, installed with all its libraries.

It needs some hundred libraries of other packages, so it is installed and not only unpacked as other Debian programs are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cluster.errors import ClusterError

NAMES: Final = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# The second has the characters of Chinese, without which a screenshot shows boxes.
PACKAGES: Final = ("chromium", "fonts-wqy-microhei")
LIMIT_S: Final = 1200.0


def ensure(say: Callable[[str], None]) -> Path:
    """Where the program is. Raises ClusterError if it is not available."""
    if (found := _installed()) is not None:
        return found
    _install(say)
    if (found := _installed()) is None:
        raise ClusterError("Debian's package chromium is installed, and has no program on the PATH")
    return found


def _installed() -> Path | None:
    return next((Path(found) for name in NAMES if (found := shutil.which(name)) is not None), None)


def _install(say: Callable[[str], None]) -> None:
    apt_get = shutil.which("apt-get")
    if apt_get is None or os.geteuid() != 0:
        raise ClusterError("Chromium is missing, and only root on a Debian can install it; put chromium on the PATH")
    say(f"chromium is missing: installing Debian's packages {' and '.join(PACKAGES)}, some 150 MB")
    # Another worker of the same test run may be at it; apt waits for its own lock.
    patient = ["-o", f"DPkg::Lock::Timeout={LIMIT_S:.0f}"]
    # The lists of packages may be old, or not there yet; a mirror that fails here fails below with its own words.
    _run([apt_get, *patient, "update", "--quiet"])
    if trouble := _run([apt_get, *patient, "install", "--yes", "--quiet", "--no-install-recommends", *PACKAGES]):
        raise ClusterError(f"Chromium is missing, and apt-get cannot install it: {trouble}")


def _run(command: list[str]) -> str:
    """Nothing if it worked, else the last line that it printed."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"not done within {LIMIT_S:.0f} s"
    lines = (done.stderr or done.stdout).strip().splitlines() or [f"it ended with {done.returncode}"]
    return lines[-1] if done.returncode else ""
