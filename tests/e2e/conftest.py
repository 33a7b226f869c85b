"""Each test gets a house of its own in the run's control plane."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.control_plane import ControlPlane
from tests.e2e.house import House, open_house


@pytest.fixture
async def house(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[House]:
    """An empty cluster: no extender, no scheduler, no node yet."""
    async with open_house(control_plane, tmp_path) as opened:
        yield opened


@pytest.fixture
async def served(house: House) -> House:
    """A cluster whose kube-scheduler asks our extender."""
    await house.start_extender()
    house.start_scheduler()
    return house
