"""A farm for each test, on the machine's one local cluster."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.local import LocalCluster
from tests.e2e.node.farm import Farm, open_farm


@pytest.fixture
async def farm(local: LocalCluster, tmp_path: Path) -> AsyncIterator[Farm]:
    async with open_farm(local, tmp_path) as opened:
        yield opened
