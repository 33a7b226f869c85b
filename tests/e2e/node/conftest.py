"""Fixtures: agent and extender for each test, on the machine's one local cluster. All tests share the port of the extender.

After each test: no record had to be corrected, so no pod got another card than its record says.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cluster.https import free_port
from cluster.local import LocalCluster
from tests.e2e.node.real_node import RESOURCES, RealNode, forget_device_plugins, open_real_node


@pytest.fixture(scope="session")
def extender_port(root: None, cluster_was_up: bool) -> Iterator[int]:
    """Where kube-scheduler looks for the extender. Changing its static pod takes a quarter of a minute, so it is done once, and
    put back only on a cluster that stays."""
    local = LocalCluster.up(fake_cards=True)
    port = free_port()
    local.scheduler_config(f"http://127.0.0.1:{port}/accelshare", RESOURCES, wanted={"percentageOfNodesToScore": 100})
    yield port
    if cluster_was_up:
        local.restore_scheduler()


@pytest.fixture
async def real_node(extender_port: int, local: LocalCluster, tmp_path: Path) -> AsyncIterator[RealNode]:
    """Cards reach containers by kubelet's device plugins."""
    async with open_real_node(local, tmp_path, extender_port, "--delivery=device-plugin") as opened, nothing_moves(opened):
        yield opened


@pytest.fixture
async def by_runtime(extender_port: int, local: LocalCluster, tmp_path: Path) -> AsyncIterator[RealNode]:
    """Cards reach containers by the container runtime, which the agent finds by itself."""
    await asyncio.to_thread(forget_device_plugins, local)
    async with open_real_node(local, tmp_path, extender_port) as opened, nothing_moves(opened):
        yield opened


@contextlib.asynccontextmanager
async def nothing_moves(real_node: RealNode) -> AsyncIterator[None]:
    before = await real_node.moved()
    yield
    assert await real_node.moved() == before
