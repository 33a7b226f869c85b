"""A town for each test that wants one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.fake_cluster import FakeCluster, open_town


@pytest.fixture
async def fake_cluster(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    """The in-memory API server, and no extender yet."""
    async with open_town(tmp_path) as opened:
        yield opened
