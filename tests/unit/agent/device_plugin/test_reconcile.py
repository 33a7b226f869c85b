"""Records are made equal to what kubelet allocated."""

import asyncio
import json
import time
from collections.abc import Callable
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
HOLDS: Holding = {"main": {("nvidia", False): {"1-0", "1-1"}, ("kunlun", False): {"0-0", "0-1"}}}


def pod(**record: Any) -> NodePod:
    limits = {"aliyun.com/gpu-mem": "2", "baidu.com/xpu-mem": "2"}
    notes = {"accelshare.io/assignment": json.dumps(record)}
    content = {
        "metadata": {"name": "both", "namespace": "default", "uid": "u", "annotations": notes},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }
    read = NodePodReader(CATALOG).decode(msgspec.Raw(msgspec.json.encode(content)))
    assert read is not None
    return read


class Writes:
    """A fake API server that stores what was written, and a PodResources reader."""

    unsupported = False

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    async def request(self, _method: str, _path: str, *, body: bytes, **_: object) -> bytes:
        self.bodies.append(json.loads(body))
        return b"{}"

    async def say(self, *_: object, **__: object) -> bool:
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
    pod_queue = PodQueue(devices, PodStore())
    pod_queue.pods.put(pod(nvidia=[{"index": 0, "id": "GPU-0", "units": 2}], kunlun=[{"index": 0, "id": "x", "units": 2}]))
    pod_queue.set_holdings({"default/both": HOLDS})
    reconcile = reconciler(writes, pod_queue, devices)
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
    server, pod_queue, now = Denies(), PodQueue(devices, PodStore()), 0.0
    reconcile = reconciler(server, pod_queue, devices, clock=lambda: now)
    pods = [one(number) for number in range(40)]
    for each in pods:
        pod_queue.pods.put(each)
    pod_queue.set_holdings({each.name: {"main": {("nvidia", False): {"1-0", "1-1"}}} for each in pods})

    async def look_for(seconds: int) -> int:
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
        await look_for(300)
        assert await look_for(600) <= 40 * 600 / 30
    assert len([line for line in caplog.messages if "outcome=failed" in line]) == 40


def one(number: int) -> NodePod:
    content = {
        "metadata": {"name": f"p{number}", "namespace": "default", "uid": f"u{number}"},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": "2"}}}]},
        "status": {"phase": "Running"},
    }
    read = NodePodReader(CATALOG).decode(msgspec.Raw(msgspec.json.encode(content)))
    assert read is not None
    return read


async def test_the_record_follows_what_another_plugin_gave_whole(devices: DeviceInventory) -> None:
    """Its ids are hardware ids, as NVIDIA's own plugin has them; the record named another card."""
    content = {
        "metadata": {
            "name": "w",
            "namespace": "default",
            "uid": "w",
            "annotations": {"accelshare.io/assignment": '{"nvidia":[{"index":0,"id":"GPU-0","whole":true}]}'},
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        "status": {"phase": "Running"},
    }
    whole = NodePodReader(CATALOG).decode(msgspec.Raw(msgspec.json.encode(content)))
    assert whole is not None
    writes, pod_queue = Writes(), PodQueue(devices, PodStore())
    pod_queue.pods.put(whole)
    pod_queue.set_holdings({"default/w": {"main": {("nvidia", True): {"GPU-1::3"}}}})
    reconcile = reconciler(writes, pod_queue, devices)
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
    server, pod_queue, now = FailsOnce(), PodQueue(devices, PodStore()), 0.0
    reconcile = reconciler(server, pod_queue, devices, clock=lambda: now)
    pod = one(0)
    pod_queue.pods.put(pod)
    pod_queue.set_holdings({pod.name: {"main": {("nvidia", False): {"1-0", "1-1"}}}})
    await reconcile.once()
    assert len(server.bodies) == 1
    if became == "written":
        slices = (Slice("nvidia", 1, 2, id="GPU-1"),)
        notes = server.bodies[0]["metadata"]["annotations"]
        pod_queue.pods.put(replace(pod, seen=replace(pod.seen, slices=slices), annotations=notes))
    elif became == "terminating":
        pod_queue.pods.put(replace(pod, terminating=True))
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
