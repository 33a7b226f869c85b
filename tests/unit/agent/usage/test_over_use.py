"""What a pod that uses more than it holds gets: an Event, and an eviction only if that is switched on."""

import dataclasses
import json
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest
from msgspec.structs import replace

from accelshare.agent.usage.history import UsageHistory
from accelshare.agent.usage.over_use import REPORT_EVERY_S, OverUse
from accelshare.kube.client import Client
from accelshare.kube.config import Cluster
from accelshare.kube.events import Events
from accelshare.testing.api_server import FakeApiServer
from accelshare.wire.usage import PodUse
from tests.unit.agent.builders import pod_store
from tests.unit.agent.usage.builders import GIB, pod, use


class Scene:
    """One pod on a fake API server, sampled as the test says."""

    def __init__(self, api: FakeApiServer, client: Client, *, evict_after_s: float, not_evicted: Collection[str] = ()) -> None:
        self.api = api
        self.now = 1000.0
        self.evicted = 0
        content = {"metadata": {"name": "a"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}}
        api.store.create("namespaces", {"metadata": {"name": "ml"}})
        self.uid = api.store.create("pods", content, namespace="ml").object["metadata"]["uid"]
        known = pod("a", 4, 0)
        known = dataclasses.replace(known, seen=dataclasses.replace(known.seen, uid=self.uid))
        self.history = UsageHistory()
        self.over_use = OverUse(
            client,
            Events(client, component="test", clock=lambda: self.now),
            pod_store(known),
            self.history,
            evict_after_s=evict_after_s,
            not_evicted=not_evicted,
            on_evicted=self.count,
            clock=lambda: self.now,
        )

    def count(self) -> None:
        self.evicted += 1

    async def sample(self, used: int, *, after_s: float = 15.0) -> None:
        self.now += after_s
        sampled: PodUse = replace(use("a", used=used), uid=self.uid)
        await self.over_use.react(self.history.update([sampled], {self.uid}, self.now))

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(version.item) for version in self.api.store.list("events").versions]

    def reasons(self) -> list[str]:
        return sorted(event["reason"] for event in self.events())

    def is_terminating(self) -> bool:
        return "deletionTimestamp" in self.api.store.get("pods", "a", namespace="ml").object["metadata"]


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as api:
        yield api


@pytest.fixture
async def client(api: FakeApiServer) -> AsyncIterator[Client]:
    async with Client(Cluster(api.url), user_agent="tests") as client:
        yield client


async def test_over_use_is_an_event_with_the_numbers(api: FakeApiServer, client: Client) -> None:
    scene = Scene(api, client, evict_after_s=0)
    await scene.sample(6 * GIB)
    assert scene.reasons() == []
    await scene.sample(6 * GIB)
    (event,) = scene.events()
    assert (event["reason"], event["type"]) == ("AcceleratorOverused", "Warning")
    assert "6144 MiB" in event["message"]
    assert "4096 MiB" in event["message"]


async def test_one_event_in_ten_minutes_however_the_numbers_change(api: FakeApiServer, client: Client) -> None:
    scene = Scene(api, client, evict_after_s=0)
    for number in range(int(REPORT_EVERY_S // 15)):
        await scene.sample(5 * GIB + number * 2**20)
    assert len(scene.events()) == 1
    await scene.sample(6 * GIB)
    await scene.sample(6 * GIB)
    assert len(scene.events()) == 2


async def test_nobody_is_evicted_by_default(api: FakeApiServer, client: Client) -> None:
    scene = Scene(api, client, evict_after_s=0)
    for _ in range(100):
        await scene.sample(16 * GIB)
    assert (scene.is_terminating(), scene.evicted) == (False, 0)


async def test_a_pod_is_evicted_after_the_grace_and_not_before(api: FakeApiServer, client: Client) -> None:
    scene = Scene(api, client, evict_after_s=60)
    for _ in range(4):
        await scene.sample(6 * GIB)
    assert not scene.is_terminating()
    await scene.sample(6 * GIB)
    assert scene.is_terminating()
    assert scene.reasons() == ["AcceleratorOveruseEvicted", "AcceleratorOverused"]
    await scene.sample(6 * GIB)
    assert scene.evicted == 1


async def test_nobody_is_evicted_for_numbers_that_a_tool_printed(api: FakeApiServer, client: Client) -> None:
    """A process can write its own name, and so lines about others, into a tool's output."""
    scene = Scene(api, client, evict_after_s=60, not_evicted=[use("a", used=0).kind])
    for _ in range(20):
        await scene.sample(5 * GIB)
    assert scene.reasons() == ["AcceleratorOverused"]
    assert not scene.is_terminating()


async def test_a_pod_that_is_within_its_share_again_is_not_evicted(api: FakeApiServer, client: Client) -> None:
    scene = Scene(api, client, evict_after_s=60)
    for used in (6, 6, 6, 6, 4, 6, 6, 6, 6):
        await scene.sample(used * GIB)
    assert not scene.is_terminating()
    await scene.sample(4 * GIB, after_s=10_000)
    assert (scene.is_terminating(), scene.evicted) == (False, 0)


async def test_a_disruption_budget_is_respected(api: FakeApiServer, client: Client) -> None:
    scene = Scene(api, client, evict_after_s=30)
    api.faults.answer(429, path=r"/eviction\?dryRun=All$")
    for _ in range(3):
        await scene.sample(6 * GIB)
    assert (scene.is_terminating(), scene.evicted, scene.reasons()) == (False, 0, ["AcceleratorOverused"])
    await scene.sample(6 * GIB)
    assert (scene.is_terminating(), scene.evicted) == (True, 1)


async def test_another_pod_of_the_same_name_is_not_evicted(api: FakeApiServer, client: Client) -> None:
    scene = Scene(api, client, evict_after_s=30)
    scene.api.store.delete("pods", "a", namespace="ml", options={"gracePeriodSeconds": 0})
    content = {"metadata": {"name": "a"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}}
    scene.api.store.create("pods", content, namespace="ml")
    for _ in range(5):
        await scene.sample(6 * GIB)
    assert (scene.is_terminating(), scene.evicted) == (False, 0)
