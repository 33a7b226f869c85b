"""The first list of pods, if it breaks off."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec

from accelshare.agent.metrics import AgentMetrics
from accelshare.agent.pinned_records import PinnedRecords
from accelshare.agent.pod_feed import PodFeed
from accelshare.agent.pod_store import PodStore
from accelshare.kube.client import Client, Page, WatchEvent
from accelshare.kube.errors import Unreachable
from accelshare.kube.events import Events
from accelshare.vendors.catalog import load

CATALOG = load()


def raw(name: str) -> msgspec.Raw:
    containers = [{"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": "2"}}}]
    content = {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"nodeName": "n1", "containers": containers},
    }
    return msgspec.Raw(msgspec.json.encode(content))


class Server:
    """Its first list breaks off after a page, and the pod of that page is gone in the next list."""

    def __init__(self) -> None:
        self._lists = 0

    async def pages(self, _path: str, **_: Any) -> AsyncGenerator[Page, None]:
        self._lists += 1
        if self._lists == 1:
            yield Page([raw("gone")], "1")
            raise Unreachable("the list broke")
        yield Page([raw("there")], "2")

    async def watch(self, _path: str, **_: Any) -> AsyncGenerator[WatchEvent, None]:
        await asyncio.Event().wait()
        yield WatchEvent("BOOKMARK", raw("never"))


async def test_a_pod_that_ended_before_the_first_list_was_complete_does_not_wait() -> None:
    pods = PodStore()
    client, metrics = cast("Client", Server()), AgentMetrics()
    pins = PinnedRecords(client, "n1", CATALOG, cast("Events", None), metrics)
    feed = PodFeed(client, "n1", CATALOG, pods=pods, pins=pins, metrics=metrics)
    running = asyncio.create_task(feed.run())
    await asyncio.wait_for(feed.listed.wait(), 60)
    running.cancel()
    assert list(pods) == ["there"]
