"""The lock is the kernel's: it is free when its holder is dead."""

import asyncio
import contextlib
import fcntl
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from accelshare.agent.nri.protocol import lock
from accelshare.agent.nri.protocol.lock import exclusive_lock

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(lock, "POLL_S", 0.01)
    caplog.set_level(logging.INFO, "accelshare.agent.nri.protocol")


async def until(words: str, caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(WAIT_S):
        while words not in caplog.text:
            await asyncio.sleep(0.01)


async def take(path: Path, held: asyncio.Event) -> None:
    async with exclusive_lock(path):
        held.set()
        await asyncio.Event().wait()


async def test_a_dead_holder_frees_the_lock(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "accelshare.lock"
    hold = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", hold, path], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    held = asyncio.Event()
    task = asyncio.create_task(take(path, held))
    await until("another instance", caplog)
    for _ in range(20):
        await asyncio.sleep(0.01)
        assert not held.is_set()
    assert caplog.text.count("another instance") == 1

    holder.kill()
    holder.wait()
    holder.stdout.close()
    await asyncio.wait_for(held.wait(), WAIT_S)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_the_lock_waits_for_a_directory_that_does_not_exist_yet(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A runtime that never ran has created no directory."""
    path = tmp_path / "nri" / "accelshare.lock"
    held = asyncio.Event()
    task = asyncio.create_task(take(path, held))
    await until("cannot be opened: No such file or directory", caplog)
    path.parent.mkdir()
    await asyncio.wait_for(held.wait(), WAIT_S)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_holder_that_ends_frees_the_lock_and_removes_its_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "accelshare.lock"
    for _ in range(3):
        held = asyncio.Event()
        async with exclusive_lock(path):
            assert isinstance(lock._take(path), str)
            task = asyncio.create_task(take(path, held))
            await until("another instance", caplog)
            caplog.clear()
        await asyncio.wait_for(held.wait(), WAIT_S)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert not path.exists()


async def test_a_file_that_replaced_the_lock_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "accelshare.lock"
    async with exclusive_lock(path):
        path.unlink()
        path.touch()
    assert path.exists()


async def test_a_lock_on_a_replaced_file_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its holder and the next instance would both run."""
    path = tmp_path / "accelshare.lock"
    flock = fcntl.flock

    def replaced_meanwhile(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        path.unlink()
        path.touch()

    monkeypatch.setattr(fcntl, "flock", replaced_meanwhile)
    assert lock._take(path) == "the file was replaced"
