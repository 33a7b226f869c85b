"""Pods with a card and pods without come and go in pairs on an installed cluster; what became of each, and when it was bound.

Belongs here: creating, comparing and deleting pods, and times. Never: the rules of records (tests/trust/history.py), assertions.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any, Final

from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, KubeError, NotFound
from cluster.waiting import wait_until_async
from tests.e2e.install.installed_cluster import LIMIT_S, InstalledCluster, Object, at_work, cards
from tests.e2e.workloads import CONTAINER
from tests.trust.api_watch import ALL_PODS, watch_api
from tests.trust.history import MEMORY, History

PODS: Final = "/api/v1/namespaces/default/pods"
GROUP: Final = "traffic"
EVERY_S: Final = 1.5  # a pair
MOST_PAIRS: Final = 24  # at once: so few that each always fits
LOOK_EVERY_S: Final = 0.3
REQUEST_S: Final = 30.0


class PodTraffic:
    def __init__(self, installed_cluster: InstalledCluster, client: Client, history: History) -> None:
        self.history = history
        self.created = 0  # pairs
        self.done = 0  # pairs that ran, were compared and left
        self.failed: dict[str, str] = {}  # name → why
        self.wrong: dict[str, str] = {}  # name → the cards that its container sees, and those of its record
        self._installed_cluster = installed_cluster
        self._client = client
        self._began = time.monotonic()
        self._pods: dict[str, Object] = {}
        self._agent_away: list[tuple[float, float]] = []  # the looks that found no agent ready: from the look before, until then
        self._ending = False

    def clock(self) -> float:
        return time.monotonic() - self._began

    # What happens.

    async def come_and_go(self) -> None:
        living: set[asyncio.Task[None]] = set()
        try:
            while not self._ending:
                living = {task for task in living if not _finished(task)}
                if len(living) < MOST_PAIRS:
                    living.add(asyncio.create_task(self._live(f"{GROUP}-{self.created}")))
                    self.created += 1
                await asyncio.sleep(EVERY_S)
            await asyncio.gather(*living)
        finally:
            for task in living:
                task.cancel()
            await asyncio.gather(*living, return_exceptions=True)

    async def look(self) -> None:
        """Keep the pods and the moments without an agent that is ready."""
        before = self.clock()
        while True:
            with contextlib.suppress(KubeError):
                self._pods = {pod["metadata"]["name"]: pod for pod in await self._list(PODS, f"group={GROUP}")}
                ready = any(_ready(pod) for pod in await self._list(ALL_PODS, "accelshare.io/agent=true"))
                now = self.clock()
                if not ready:
                    self._agent_away.append((before, now))
                before = now
            await asyncio.sleep(LOOK_EVERY_S)

    async def end(self) -> None:
        """No pair comes any more; those that came are still compared and deleted."""
        self._ending = True

    async def _live(self, name: str) -> None:
        plain = f"plain-{name}"
        await self._create(name, {MEMORY: 1})
        await self._create(plain, {})
        for each in (name, plain):
            await self._until_settled(each)
        pod = self._pods[name]
        if name not in self.failed:
            sees = await asyncio.to_thread(self._installed_cluster.sees, pod)
            if sees != cards(pod) or not sees:
                self.wrong[name] = f"sees {sees!r}, its record has {cards(pod)!r}"
        for each in (name, plain):
            self.history.release(each)
            await self._insist("DELETE", f"{PODS}/{each}")
        self.done += 1

    async def _until_settled(self, name: str) -> None:
        def settled() -> bool:
            pod = self._pods.get(name)
            if pod is not None and pod["status"].get("phase") in ("Failed", "Succeeded"):
                self.failed[name] = f"{pod['status'].get('reason')}: {pod['status'].get('message')}"
            return name in self.failed or (pod is not None and at_work(pod))

        await wait_until_async(settled, f"{name} runs", LIMIT_S, LOOK_EVERY_S, evidence=self._installed_cluster.evidence)

    async def _create(self, name: str, limits: dict[str, int]) -> None:
        amounts = {key: str(value) for key, value in limits.items()}
        meta = {"name": name, "labels": {"group": GROUP}}
        spec = {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", **CONTAINER, "resources": {"limits": amounts}}],
        }
        await self._insist("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    async def _insist(self, method: str, path: str, content: Object | None = None) -> None:
        body = json.dumps(content).encode() if content is not None else b""

        async def answered() -> bool:
            with contextlib.suppress(NotFound, Conflict):  # an earlier try has done it
                await self._client.request(method, path, body=body)
            return True

        await wait_until_async(answered, f"{method} {path}", LIMIT_S, 0.5, retry_on=(KubeError,))

    async def _list(self, path: str, selector: str) -> list[Object]:
        listed: dict[str, Any] = json.loads(await self._client.request("GET", path, params={"labelSelector": selector}))
        items: list[Object] = listed["items"]
        return items

    # What came of it.

    def waits_s(self, *, with_card: bool) -> list[float]:
        """From the creation of each pod to its bind. A pod that was never bound waited until now."""
        return [until - since for since, until in self._waits(with_card=with_card)]

    def waits_beside_agents_s(self) -> list[float]:
        """The same for pods with a card, without the time in which the node had no agent that was ready."""
        return [
            until - since - sum(max(0.0, min(until, end) - max(since, start)) for start, end in self._agent_away)
            for since, until in self._waits(with_card=True)
        ]

    def agent_away_s(self) -> float:
        return sum(end - start for start, end in self._agent_away)

    def _waits(self, *, with_card: bool) -> Iterable[tuple[float, float]]:
        for pod in self.history.pods.values():
            if GROUP in pod.name and (pod.ask is not None) is with_card:
                yield pod.versions[0].at_s, pod.bound_at_s if pod.bound_at_s is not None else self.clock()


@contextlib.asynccontextmanager
async def pods_come_and_go(installed_cluster: InstalledCluster) -> AsyncIterator[PodTraffic]:
    """While the block runs. At its end no pair comes any more, and it waits until each pair has run and left."""
    # Pods that a test before has deleted would count as lost.
    gone = partial(installed_cluster.until, lambda: not installed_cluster.pods("group"), "the pods of tests before are gone")
    await asyncio.to_thread(gone)
    load = config.load(installed_cluster.local.kubeconfig)
    async with Client(load, user_agent="accelshare-tests", timeout_s=REQUEST_S) as client:
        traffic = PodTraffic(installed_cluster, client, History())
        async with watch_api(client, traffic.history, traffic.clock, pods=ALL_PODS):
            coming, looking = asyncio.create_task(traffic.come_and_go()), asyncio.create_task(traffic.look())
            try:
                yield traffic
                await traffic.end()
                await coming
                assert not looking.done(), looking.exception()
            finally:
                for task in (coming, looking):
                    task.cancel()
                await asyncio.gather(coming, looking, return_exceptions=True)
                installed_cluster.delete(f"group={GROUP}")


def _ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", [])
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def _finished(task: asyncio.Task[None]) -> bool:
    """Raises the task's error."""
    if task.done():
        task.result()
    return task.done()
