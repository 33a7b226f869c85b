"""A village for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.agent.village import Village, open_village


@pytest.fixture
async def village(tmp_path: Path) -> AsyncIterator[Village]:
    async with open_village(tmp_path) as opened:
        yield opened
