"""Locks and empties the directory of one control plane."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path
from typing import IO, Final

from cluster.errors import ClusterError

_MARKER: Final = ".control-plane"  # marks that everything beside it is ours to remove


def claim(directory: Path) -> IO[str]:
    """Make the directory ours and empty until the answer is closed; refuse one that holds anybody else's files."""
    directory.mkdir(parents=True, exist_ok=True)
    marker = directory / _MARKER
    if not marker.exists() and any(directory.iterdir()):
        raise ClusterError(f"{directory} holds other files; a control plane needs an empty directory or one it used before")
    held = marker.open("a")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        held.close()
        raise ClusterError(f"another control plane runs in {directory}; stop it or choose another directory") from error
    directory.chmod(0o700)
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry != marker:
            entry.unlink()
    return held
