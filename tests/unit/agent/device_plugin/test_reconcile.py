"""Records are made equal to what kubelet allocated."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from accelshare.agent.device_plugin.pod_queue import Holding, PodQueue
from accelshare.agent.device_plugin.pod_resources import PodResourcesReader
from accelshare.agent.device_plugin.reconcile import Reconcile
from accelshare.agent.discovery.device_inventory import DeviceInventory, InventoryCard, VendorCards
from accelshare.agent.metrics import AgentMetrics
from accelshare.agent.pinned_records import PinnedRecords
from accelshare.agent.pod_store import PodStore
from accelshare.kube.client import Client
from accelshare.kube.errors import ApiError, Forbidden
from accelshare.kube.events import Events
from accelshare.ledger.nouns import Slice
from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import HostCard
from accelshare.wire.node_pods import NodePod, NodePodReader
from tests.unit.agent.builders import mode

CATALOG = load()
MEMORY = "aliyun.com/gpu-mem"
CARD_1: Holding = {"main": {("nvidia", False): {"1-0", "1-1"}}}


def pod(name: str, limits: dict[str, int], **record: Any) -> NodePod:
    annotations = {"accelshare.io/assignment": json.dumps(record)} if record else {}
    content = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": annotations},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }
    read = NodePodReader(CATALOG).decode(msgspec.Raw(msgspec.json.encode(content)))
    assert read is not None
    return read


def queue(devices: DeviceInventory, pods: Iterable[NodePod], holding: Holding) -> PodQueue:
    """These pods, which all hold the same."""
    pod_queue = PodQueue(devices, PodStore())
    for each in pods:
        pod_queue.pods.put(each)
    pod_queue.set_holdings({each.name: holding for each in pods})
    return pod_queue


class Writes:
    """A fake API server that stores what was written, and a PodResources reader."""

    unsupported = False

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    async def request(self, _method: str, _path: str, *, body: bytes, **_: object) -> bytes:
        self.bodies.append(json.loads(body))
        return b"{}"

    async def record(self, *_: object, **__: object) -> bool:
        return True

    async def read(self) -> object:
        return {}


def reconciler(
    server: Writes, pod_queue: PodQueue, devices: DeviceInventory, clock: Callable[[], float] = time.monotonic
) -> Reconcile:
    client, events, metrics = cast("Client", server), cast("Events", server), AgentMetrics()
    return Reconcile(
        client,
        pod_queue,
        devices,
        CATALOG,
        events,
        metrics,
        pod_resources=cast("PodResourcesReader", server),
        pins=PinnedRecords(client, "n1", CATALOG, events, metrics),
        mode=mode(),
        now_ns=lambda: 0,
        clock=clock,
    )


@pytest.fixture
def devices() -> DeviceInventory:
    devices = DeviceInventory()
    cards = {index: InventoryCard(HostCard(index, f"GPU-{index}", 16384), 16) for index in range(2)}
    devices.put(VendorCards(CATALOG["nvidia"], "GiB", 1024, cards))
    return devices


async def test_a_pod_of_two_kinds_is_corrected_when_both_are_there(devices: DeviceInventory) -> None:
    """While the driver of one kind finds no card, nothing is written."""
    writes = Writes()
    recorded = {"nvidia": [{"index": 0, "id": "GPU-0", "units": 2}], "kunlun": [{"index": 0, "id": "x", "units": 2}]}
    both = pod("both", {MEMORY: 2, "baidu.com/xpu-mem": 2}, **recorded)
    holding: Holding = {"main": {("nvidia", False): {"1-0", "1-1"}, ("kunlun", False): {"0-0", "0-1"}}}
    reconcile = reconciler(writes, queue(devices, [both], holding), devices)
    await asyncio.wait_for(reconcile.once(), 60)
    assert writes.bodies == []

    devices.put(VendorCards(CATALOG["kunlun"], "GiB", 1024, {0: InventoryCard(HostCard(0, "x", 16384), 16)}))
    await asyncio.wait_for(reconcile.once(), 60)
    (written,) = writes.bodies
    record = json.loads(written["metadata"]["annotations"]["accelshare.io/assignment"])
    assert {kind: [entry["index"] for entry in entries] for kind, entries in record.items()} == {"kunlun": [0], "nvidia": [1]}


class Denies(Writes):
    """A policy of the cluster denies all writes on pods."""

    async def request(self, _method: str, _path: str, *, body: bytes, **_: object) -> bytes:
        self.bodies.append(json.loads(body))
        raise Forbidden(403, "Forbidden", "a policy does not allow it", request=f"{_method} {_path}")


async def test_denied_patches_are_tried_less_and_less_often(devices: DeviceInventory, caplog: pytest.LogCaptureFixture) -> None:
    """Forty pods that may not be written on: a write each at first, at most one a minute each later, one log line each."""
    server, now = Denies(), 0.0
    pod_queue = queue(devices, [pod(f"p{number}", {MEMORY: 2}) for number in range(40)], CARD_1)
    reconcile = reconciler(server, pod_queue, devices, clock=lambda: now)

    async def reconcile_for(seconds: int) -> int:
        """Reconcile five times a second."""
        nonlocal now
        before = len(server.bodies)
        for _ in range(seconds * 5):
            reconcile.request()
            await reconcile.once()
            now += 0.2
        return len(server.bodies) - before

    with caplog.at_level("WARNING"):
        await reconcile.once()
        assert len(server.bodies) == 40
        await reconcile_for(300)
        assert await reconcile_for(600) <= 40 * 600 / 30
    assert len([line for line in caplog.messages if "outcome=failed" in line]) == 40


async def test_the_record_follows_what_another_plugin_gave_whole(devices: DeviceInventory) -> None:
    """Its ids are hardware ids, as NVIDIA's own plugin has them; the record named another card."""
    whole = pod("w", {"nvidia.com/gpu": 1}, nvidia=[{"index": 0, "id": "GPU-0", "whole": True}])
    writes = Writes()
    reconcile = reconciler(writes, queue(devices, [whole], {"main": {("nvidia", True): {"GPU-1::3"}}}), devices)
    await asyncio.wait_for(reconcile.once(), 60)
    [body] = [body for body in writes.bodies if "accelshare.io/assignment" in body["metadata"]["annotations"]]
    assert json.loads(body["metadata"]["annotations"]["accelshare.io/assignment"])["nvidia"][0]["id"] == "GPU-1"


class FailsOnce(Writes):
    """The first write fails; `reads` counts the readings of PodResources."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.silent = False

    async def request(self, _method: str, _path: str, *, body: bytes, **_: object) -> bytes:
        self.bodies.append(json.loads(body))
        if len(self.bodies) == 1:
            raise ApiError(500, "InternalError", "etcdserver: request timed out")
        return b"{}"

    async def read(self) -> object:
        self.reads += 1
        return None if self.silent else {}


@pytest.mark.parametrize("became", ["written", "terminating", "unheld", "unread"])
async def test_a_failed_write_that_is_not_needed_any_more_causes_no_busy_loop(devices: DeviceInventory, became: str) -> None:
    """It was carried out though its answer was an error, or the pod ends: PodResources is not read without a pause."""
    server, served, now = FailsOnce(), pod("served", {MEMORY: 2}), 0.0
    pod_queue = queue(devices, [served], CARD_1)
    reconcile = reconciler(server, pod_queue, devices, clock=lambda: now)
    await reconcile.once()
    assert len(server.bodies) == 1
    if became == "written":
        slices = (Slice("nvidia", 1, 2, id="GPU-1"),)
        annotations = server.bodies[0]["metadata"]["annotations"]
        pod_queue.pods.put(replace(served, seen=replace(served.seen, slices=slices), annotations=annotations))
    elif became == "terminating":
        pod_queue.pods.put(replace(served, terminating=True))
    elif became == "unheld":
        pod_queue.set_holdings({})
    else:
        server.silent = True
    now += 100.0
    reads = server.reads
    task = asyncio.create_task(reconcile.run())
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert server.reads - reads == 1
