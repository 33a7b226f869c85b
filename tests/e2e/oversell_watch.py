"""Watches the API server and sums independently of the ledger, to find any moment at which a card is oversold.

Belongs here: an account that shares no code with the ledger, so that it can disagree with it.
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from accelshare.kube.client import Client
from accelshare.kube.errors import Expired, KubeError

PODS = "/api/v1/pods"


class OversellWatch:
    def __init__(self, size: int) -> None:
        self.size = size
        self.pods: dict[str, tuple[str, list[tuple[int, int]]]] = {}  # uid → node, [(card, units)]
        self.held: Counter[tuple[str, int]] = Counter()
        self.wrong: list[str] = []
        self.events = 0
        self.most_bound = 0

    def see(self, kind: str, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        self.events += 1
        before = self.pods.pop(uid, None)
        for card, units in before[1] if before else ():
            self.held[before[0] if before else "", card] -= units
        node = pod["spec"].get("nodeName")
        ended = kind == "DELETED" or pod["status"].get("phase") in ("Succeeded", "Failed")
        if not node or ended:
            return
        record = json.loads(pod["metadata"]["annotations"]["accelshare.io/assignment"])
        slices = [(entry["index"], entry["units"]) for entries in record.values() for entry in entries]
        if before and before != (node, slices):
            self.wrong.append(f"{pod['metadata']['name']} moved from {before} to {(node, slices)}")
        self.pods[uid] = (node, slices)
        self.most_bound = max(self.most_bound, len(self.pods))
        for card, units in slices:
            self.held[node, card] += units
            if self.held[node, card] > self.size:
                self.wrong.append(f"{node} card {card} held {self.held[node, card]} of {self.size}")

    def free(self) -> dict[tuple[str, int], int]:
        return {place: self.size - units for place, units in self.held.items()}


@contextlib.asynccontextmanager
async def watch_for_oversell(client: Client, *, size: int) -> AsyncIterator[OversellWatch]:
    """Watch every pod of the cluster from now on."""
    listed = json.loads(await client.request("GET", PODS))
    oversell_watch = OversellWatch(size)

    async def watch() -> None:
        version = listed["metadata"]["resourceVersion"]
        while True:
            try:
                async for event in client.watch(PODS, resource_version=version):
                    pod = json.loads(bytes(event.object))
                    version = pod["metadata"]["resourceVersion"]
                    if event.type != "BOOKMARK":
                        oversell_watch.see(event.type, pod)
            except Expired:
                raise  # something may have been missed
            except KubeError:  # a busy API server may end a watch; the next one goes on where this one was
                await asyncio.sleep(0.1)

    task = asyncio.create_task(watch())
    try:
        yield oversell_watch
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
