"""Pods that come and go at a fixed rate: each is created, filtered, bound, started, and another one is deleted for it.

Belongs here: the load, seeded, and the waits of its calls. Never: reading the extender's memory, judging.

The benchmark plays kube-scheduler and kubelet. A life makes four changes that the extender's watch shows: the pod's creation, its
Binding, its start, and the end of another pod, which may be one of those that were listed at the start.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

import msgspec

from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError, NotFound
from bench import workload
from bench.answers import BindAnswer, FilterAnswer, Pod
from bench.scene import PODS

CHANGES: Final = 4  # of a life
SHARES: Final = (1, 2, 2, 4, 8)  # units that pods request: several sizes, as several teams would
MERGE: Final = "application/merge-patch+json"
MOST_UNDER_WAY: Final = 200  # lives
MOST_FAILURES: Final = 20  # that are kept
STARTED: Final = msgspec.json.encode({"status": {"phase": "Running", "startTime": "2026-11-17T00:00:00Z"}})


class Churn:
    def __init__(self, api: Client, extender: Client, names: bytes, pods: list[str], *, seed: int) -> None:
        """`names` are the nodes in kube-scheduler's calls, `pods` those that exist."""
        self._api = api
        self._extender = extender
        self._names = names
        self._pods = pods
        self._dice = random.Random(seed)
        self._seed = seed
        self._scheduling = asyncio.Lock()  # kube-scheduler looks for a node for one pod at a time, and binds beside it
        self._number = 0
        self.changes = 0
        self.bound = 0
        self.retries = 0  # another pod got the card between filter and bind
        self.under_way = 0
        self.filter_ms: list[float] = []
        self.bind_ms: list[float] = []
        self.failures: list[str] = []

    async def run(self, changes_per_s: float, duration_s: float) -> None:
        """Begin a life at a fixed rate. If too many are under way, the machine is too slow, and the rate falls."""
        begun_lives = 0
        begun, every_s = time.monotonic(), CHANGES / changes_per_s
        async with asyncio.TaskGroup() as lives:
            while (elapsed := time.monotonic() - begun) < duration_s:
                while begun_lives < elapsed / every_s:
                    begun_lives += 1
                    if self.under_way >= MOST_UNDER_WAY:
                        continue
                    self._number += 1
                    lives.create_task(self._life(self._number, self._dice.choice(SHARES), self._dice.randrange(2**32)))
                await asyncio.sleep(every_s / 2)

    async def _life(self, number: int, units: int, choice: int) -> None:
        self.under_way += 1
        try:
            await self._live(f"load-{self._seed}-{number:06d}", units, choice)
        except KubeError as error:
            self._fail(str(error))
        finally:
            self.under_way -= 1

    async def _live(self, name: str, units: int, choice: int) -> None:
        created = await self._api.request("POST", PODS, body=msgspec.json.encode(workload.pod(name, units=units)))
        self.changes += 1
        pod = msgspec.json.decode(created, type=Pod).metadata
        problem = await self._place(name, pod.uid, created)
        while problem and self._is_taken(problem):
            self.retries += 1
            problem = await self._place(name, pod.uid, created)
        if problem:
            self._fail(f"{name}: {problem}")
            return
        self.changes += 1
        self.bound += 1
        await self._api.request("PATCH", f"{PODS}/{name}/status", body=STARTED, content_type=MERGE)
        self.changes += 1
        self._pods.append(name)
        await self._end(choice % len(self._pods))

    async def _place(self, name: str, uid: str, pod: bytes) -> str:
        """One attempt of kube-scheduler; returns the problem, or nothing."""
        async with self._scheduling:
            answer = await self._timed("filter", workload.call_with_names(pod, self._names), self.filter_ms.append)
        filtered = msgspec.json.decode(answer, type=FilterAnswer)
        if filtered.error or not filtered.node_names:
            return f"filter found no node: {filtered.error or 'every node refused'}"
        answer = await self._timed("bind", workload.bind_call(name, uid, filtered.node_names[0]), self.bind_ms.append)
        return msgspec.json.decode(answer, type=BindAnswer).error

    @staticmethod
    def _is_taken(problem: str) -> bool:
        """Whether another pod got the card between filter and bind. kube-scheduler then tries again, and so do we."""
        return "nsufficient" in problem or "no GPU" in problem

    async def _end(self, place: int) -> None:
        self._pods[place], self._pods[-1] = self._pods[-1], self._pods[place]
        name = self._pods.pop()
        try:
            await self._api.request("DELETE", f"{PODS}/{name}", params={"gracePeriodSeconds": "0"})
            self.changes += 1
        except NotFound:
            self._fail(f"pod {name} is gone before it was deleted")

    async def _timed(self, verb: str, body: bytes, note: Callable[[float], None]) -> bytes:
        begun = time.perf_counter()
        answer = await self._extender.request("POST", f"/accelshare/{verb}", body=body, timeout_s=30)
        note(1000 * (time.perf_counter() - begun))
        return answer

    def _fail(self, problem: str) -> None:
        if len(self.failures) < MOST_FAILURES:
            self.failures.append(problem[:200])
