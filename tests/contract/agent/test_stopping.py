"""The agent is stopped while it starts, and without an API server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from accelshare.agent import lifecycle
from accelshare.agent.cdi_files import CdiFiles
from accelshare.agent.delivery import DeliveryState
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.discovery.inventory_publisher import InventoryPublisher
from accelshare.agent.metrics import AgentMetrics
from accelshare.agent.pinned_records import PinnedRecords
from accelshare.agent.pod_feed import PodFeed
from accelshare.agent.pod_store import PodStore
from accelshare.agent.serving import Agent
from accelshare.agent.settings import AgentSettings
from accelshare.kube.client import Client
from accelshare.kube.config import Cluster
from accelshare.kube.events import Events
from accelshare.vendors.catalog import load
from cluster.https import free_port

LIMIT_S = 60.0


async def test_an_agent_that_waits_for_the_api_server_stops_on_sigterm(tmp_path: Path) -> None:
    """kubelet would wait 30 s for it, and then kill it."""
    catalog = load()
    stop = asyncio.Event()
    async with Client(Cluster(f"http://127.0.0.1:{free_port()}"), user_agent="tests") as client:
        running = asyncio.create_task(Agent(AgentSettings(kubelet=tmp_path, cdi=tmp_path), catalog, client, "n1").run(stop))
        await asyncio.sleep(0)
        stop.set()
        await asyncio.wait_for(running, LIMIT_S)


async def test_the_shutdown_takes_no_longer_without_the_api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole shutdown must fit into the time that kubelet gives a pod to end."""
    clock = _Clock()
    monkeypatch.setattr("accelshare.agent.lifecycle.time", SimpleNamespace(monotonic=lambda: clock.now_s))
    monkeypatch.setattr("accelshare.agent.lifecycle.asyncio", SimpleNamespace(sleep=clock.sleep, timeout=clock.timeout))
    devices = DeviceInventory()
    async with Client(Cluster("http://127.0.0.1:1"), user_agent="tests") as client:
        events = Events(client, component="tests", clock=time.time)
        metrics, pods = AgentMetrics(), PodStore()
        pins = PinnedRecords(client, "n1", load(), events, metrics)
        publisher = InventoryPublisher(client, "n1", devices, pins)
        cdi = CdiFiles(tmp_path, devices, exists=lambda _: True)
        feed = PodFeed(client, "n1", load(), pods=pods, pins=pins, metrics=metrics)
        last = lifecycle.Shutdown(DeliveryState(devices, feed), publisher, cdi, pods)
        await last.drain(lambda: 1, by_nri=False)
    assert clock.now_s <= lifecycle.DRAIN_S + 2 * lifecycle.POLL_S


class _Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    @asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncIterator[None]:
        """The whole time passes at once."""
        self.now_s += seconds
        async with asyncio.timeout(0):
            yield
