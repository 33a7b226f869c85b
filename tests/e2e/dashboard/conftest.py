"""Fixtures: a real browser, and fake clusters. All tests of a file share one event loop, so that they can share a browser."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from cluster import chromium
from cluster.errors import ClusterError
from tests.contract.fake_cluster import FakeCluster, open_fake_cluster
from tests.e2e.dashboard.browser import Browser, open_browser, start_chromium


@pytest.fixture(scope="session")
def chromium_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One Chromium for all tests, installed if it is missing."""
    try:
        program = chromium.ensure(print)
    except ClusterError as error:
        pytest.skip(str(error))
    with start_chromium(program, tmp_path_factory.mktemp("chromium")) as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(chromium_address: str) -> AsyncIterator[Browser]:
    """Each of its tabs has storage of its own."""
    async with open_browser(chromium_address) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def fake_cluster(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    """An empty cluster for one test."""
    async with open_fake_cluster(tmp_path) as opened:
        yield opened
