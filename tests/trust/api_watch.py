"""Watches pods and Nodes at the API server, where it stays up, and hands each version to a History.

Belongs here: the watches. Never: judging (history.py). Where the API server is killed, etcd_watch.py misses no version.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Final

from accelshare.kube.client import Client
from accelshare.kube.errors import Expired, KubeError
from tests.trust.history import History, Object

NODES: Final = "/api/v1/nodes"
DEFAULT_PODS: Final = "/api/v1/namespaces/default/pods"
ALL_PODS: Final = "/api/v1/pods"
RETRY_S: Final = 0.1


@contextlib.asynccontextmanager
async def watch_api(
    client: Client, history: History, clock: Callable[[], float], *, pods: str = DEFAULT_PODS
) -> AsyncIterator[None]:
    """Every version of Nodes and of these pods. `clock` gives the seconds of the run."""

    async def watch(path: str, see: Callable[[Object, int, bool], None]) -> None:
        version = "0"
        while True:
            with contextlib.suppress(KubeError):
                try:
                    async for event in client.watch(path, resource_version=version):
                        content = json.loads(bytes(event.object))
                        version = content["metadata"]["resourceVersion"]
                        if event.type != "BOOKMARK":
                            see(content, int(version), event.type == "DELETED")
                except Expired:
                    version = "0"
            await asyncio.sleep(RETRY_S)

    def see_pod(pod: Object, version: int, deleted: bool) -> None:
        history.see_pod(pod, revision=version, at_s=clock(), deleted=deleted)

    def see_node(node: Object, _version: int, deleted: bool) -> None:
        history.see_node(node, at_s=clock(), deleted=deleted)

    # A bind is judged by the inventory of its Node, and the Nodes' own watch may show it after the first pods.
    for node in json.loads(await client.request("GET", NODES))["items"]:
        history.see_node(node, at_s=clock())
    tasks = [asyncio.create_task(watch(NODES, see_node)), asyncio.create_task(watch(pods, see_pod))]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
