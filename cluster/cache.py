"""The cache directory of built programs: its lock, so that one process builds at a time, and its trash."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cluster.errors import ClusterError

_WORD_EVERY_S = 5.0
_LOOK_EVERY_S = 0.2


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """$ACCELSHARE_CACHE, else accelshare below $XDG_CACHE_HOME, else below ~/.cache."""
    if own := environment.get("ACCELSHARE_CACHE"):
        return Path(own).expanduser().absolute()
    # By the XDG specification a relative path is ignored.
    if (xdg := environment.get("XDG_CACHE_HOME")) and Path(xdg).is_absolute():
        return Path(xdg) / "accelshare"
    return Path.home() / ".cache" / "accelshare"


@contextmanager
def only_builder(cache: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the cache's lock; while another process holds it, wait and print which one."""
    lock = cache / "lock"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        file = lock.open("a+")
    except OSError as error:
        raise ClusterError(
            f"the cache {cache} cannot be written ({error}); set ACCELSHARE_CACHE to a directory that can"
        ) from error
    with file:
        begun = time.monotonic()
        next_word = begun
        while not _locked(file.fileno()):
            if time.monotonic() >= next_word:
                holder = lock.read_text().strip() or "unknown"
                say(f"waiting for process {holder}, which is building into {cache} … {time.monotonic() - begun:.0f} s")
                next_word = time.monotonic() + _WORD_EVERY_S
            time.sleep(_LOOK_EVERY_S)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield  # the kernel lets go of the lock when the file is closed, even if we are killed


@contextmanager
def build_directory(cache: Path, name: str) -> Iterator[Path]:
    """An empty directory for one build; it is thrown away afterwards, and so is what a killed build left.

    The caller holds the cache's lock, so that no other build of this name is running.
    """
    for leftover in cache.glob(f"{name}-build-*"):
        throw_away(cache, leftover)
    directory = Path(tempfile.mkdtemp(prefix=f"{name}-build-", dir=cache))
    try:
        yield directory
    finally:
        throw_away(cache, directory)
        empty_trash(cache)


def throw_away(cache: Path, directory: Path) -> None:
    """Out of the way at once; `empty_trash` then takes its time."""
    trash = cache / "trash"
    trash.mkdir(exist_ok=True)
    directory.rename(Path(tempfile.mkdtemp(dir=trash)) / directory.name)


def empty_trash(cache: Path) -> threading.Thread:
    """Remove what was thrown away, behind the caller's back: 80,000 files take some disks two minutes.

    What an early exit leaves is found by the next call, and two at once do no harm.
    """
    thread = threading.Thread(target=shutil.rmtree, args=(cache / "trash", True), name="empty-trash", daemon=True)
    thread.start()
    return thread


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
