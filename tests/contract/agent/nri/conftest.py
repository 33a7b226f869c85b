"""Fixtures: a short directory for sockets, and plugins that end with their test."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.contract.agent.nri.plugins import Plugins


@pytest.fixture
def socket() -> Iterator[Path]:
    """Where a runtime may be; the kernel allows no long path."""
    with tempfile.TemporaryDirectory(prefix="nri-", dir="/tmp") as directory:
        yield Path(directory) / "nri.sock"


@pytest.fixture
async def plugins(socket: Path) -> AsyncIterator[Plugins]:
    started = Plugins(socket)
    yield started
    for task in started.tasks:
        task.cancel()
    await asyncio.gather(*started.tasks, return_exceptions=True)
