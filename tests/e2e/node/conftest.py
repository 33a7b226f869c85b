"""Fixtures: agent and extender for each test, on the machine's one local cluster. All tests share the port of the extender.

After each test: no record had to be corrected, so no pod got another card than its record says.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cluster.https import free_port
from cluster.local import LocalCluster
from tests.e2e.node.real_node import RESOURCES, RealNode, open_real_node


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests by the runtime come first: kubelet remembers a device plugin for minutes, and rejects pods by any other way."""
    places = [place for place, item in enumerate(items) if item.path.parent == Path(__file__).parent]
    ours = sorted((items[place] for place in places), key=lambda item: "by_runtime" not in getattr(item, "fixturenames", ()))
    for place, item in zip(places, ours, strict=True):
        items[place] = item


@pytest.fixture(scope="session")
def extender_port(root: None) -> Iterator[int]:
    """Where kube-scheduler looks for the extender. Changing its static pod takes a quarter of a minute, so it is done once."""
    local = LocalCluster.up(fake_cards=True)
    port = free_port()
    local.scheduler_config(f"http://127.0.0.1:{port}/accelshare", RESOURCES, wanted={"percentageOfNodesToScore": 100})
    yield port
    local.restore_scheduler()


@pytest.fixture
async def real_node(extender_port: int, local: LocalCluster, tmp_path: Path) -> AsyncIterator[RealNode]:
    """Cards reach containers by kubelet's device plugins."""
    async with open_real_node(local, tmp_path, extender_port, "--delivery=device-plugin") as opened, nothing_moves(opened):
        yield opened


@pytest.fixture
async def by_runtime(extender_port: int, local: LocalCluster, tmp_path: Path) -> AsyncIterator[RealNode]:
    """Cards reach containers by the container runtime, which the agent finds by itself."""
    async with open_real_node(local, tmp_path, extender_port) as opened, nothing_moves(opened):
        yield opened


@contextlib.asynccontextmanager
async def nothing_moves(real_node: RealNode) -> AsyncIterator[None]:
    before = await real_node.moved()
    yield
    assert await real_node.moved() == before
