"""One plugin on a node: a second one of the same name would claim the same devices, and the runtime would refuse every pod.

Belongs here: waiting for the lock. The kernel frees it when its holder dies, however that happens.
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
LOOK_S: Final = 0.2


@contextlib.asynccontextmanager
async def only_one(path: Path) -> AsyncIterator[None]:
    """Hold the lock on this file; wait, and say so once, while another process has it or its directory is not there."""
    said = ""
    while isinstance(held := _take(path), str):
        if held != said:
            said = held
            log.warning("waiting what=lock path=%s error=%r", path, held)
        await asyncio.sleep(LOOK_S)
    if said:
        log.info("lock outcome=held path=%s", path)
    try:
        yield
    finally:
        _give_back(path, held)


def _take(path: Path) -> int | str:
    """The locked file's descriptor, or why there is none."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return f"{path} cannot be opened: {error.strerror}"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Somebody may have removed the file meanwhile; who comes next would lock another one.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
        why = "the file was replaced"
    except BlockingIOError:
        why = "another instance of this plugin has it; it must end first"
    except OSError as error:
        why = f"{path} cannot be locked: {error.strerror}"
    os.close(descriptor)
    return why


def _give_back(path: Path, descriptor: int) -> None:
    # Removed while it is still held: whoever opened this very file sees that it is gone, and makes a new one.
    with contextlib.suppress(OSError):
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            path.unlink()
    os.close(descriptor)
