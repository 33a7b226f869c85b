"""Fixture: a fake cluster for a test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.fake_cluster import FakeCluster, open_fake_cluster


@pytest.fixture
async def fake_cluster(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    """The fake API server; the test starts the extender."""
    async with open_fake_cluster(tmp_path) as opened:
        yield opened
