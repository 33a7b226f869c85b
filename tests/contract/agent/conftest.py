"""Fixture: a fake node for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.agent.fake_node import FakeNode, open_fake_node


@pytest.fixture
async def fake_node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with open_fake_node(tmp_path) as opened:
        yield opened
