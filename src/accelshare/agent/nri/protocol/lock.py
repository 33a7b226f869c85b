"""A file lock that lets one plugin instance of a node run: two would claim the same devices, and the runtime would refuse pods.

Belongs here: taking the lock, waiting for it and releasing it. The kernel frees it when its holder dies.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)
POLL_S: Final = 0.2


@contextlib.asynccontextmanager
async def exclusive_lock(path: Path) -> AsyncIterator[None]:
    """Hold the lock on this file; wait while another process holds it or its directory does not exist. Logs each cause once."""
    logged = ""
    while isinstance(lock := _take(path), str):
        if lock != logged:
            logged = lock
            log.warning("waiting what=lock path=%s error=%r", path, lock)
        await asyncio.sleep(POLL_S)
    if logged:
        log.info("lock outcome=held path=%s", path)
    try:
        yield
    finally:
        _release(path, lock)


def is_held(path: Path) -> bool:
    """Whether an instance holds the lock on this file now, this one or another."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _take(path: Path) -> int | str:
    """The locked file's descriptor, or why it could not be locked."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return f"{path} cannot be opened: {error.strerror}"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # If the file was removed meanwhile, the next instance would lock a different file.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
        why = "the file was replaced"
    except BlockingIOError:
        why = "another instance of this plugin holds it; it must end first"
    except OSError as error:
        why = f"{path} cannot be locked: {error.strerror}"
    os.close(descriptor)
    return why


def _release(path: Path, descriptor: int) -> None:
    # Remove the file while the lock is held: an instance that has it open then sees that it is gone, and creates a new one.
    with contextlib.suppress(OSError):
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            path.unlink()
    os.close(descriptor)
