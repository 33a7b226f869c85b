"""Watches the pods of this node and keeps the pod store current.

Belongs here: the watch with kubelet's own selector, so that pods arrive in kubelet's order, and whether that watch is current.
Never: what follows from a pod.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from accelshare.agent.changes import Changes
from accelshare.agent.metrics import AgentMetrics
from accelshare.agent.pinned_records import PinnedRecords
from accelshare.agent.pod_store import PodStore
from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError
from accelshare.kube.watch import Change, Gone, Interrupted, Reflector, Seen, Synced
from accelshare.vendors.catalog import Catalog
from accelshare.wire.node_pods import NodePod, NodePodReader

log = logging.getLogger(__name__)
PODS: Final = "/api/v1/pods"
ASK_S: Final = 5.0
CHECK_S: Final = 0.2
GRACE_S: Final = 2.0  # a watch that ends and is opened again within this was never interrupted
STALL_S: Final = 90.0  # API servers send a bookmark a minute; after so long without one the watch is opened again


class PodFeed:
    def __init__(
        self, client: Client, node: str, catalog: Catalog, *, pods: PodStore, pins: PinnedRecords, metrics: AgentMetrics
    ) -> None:
        self._client = client
        self._pods = pods
        self._pins = pins
        self._metrics = metrics
        self._first: list[NodePod] | None = []  # the pods of the first list, until it is complete
        self._reader = NodePodReader(catalog)
        self._selector = {"fieldSelector": f"spec.nodeName={node}"}
        self._reflector: Reflector[NodePod] = Reflector(
            client, PODS, decode=self._reader.decode, identity=lambda pod: pod.uid, params=self._selector
        )
        self._reopen = asyncio.Event()
        self.listed = asyncio.Event()  # the first list is complete, and its pods are in the store
        self.current = True  # the watch is open, or was a moment ago
        self.current_changed = Changes()

    async def run(self) -> None:
        """Store every change, and check whether the watch is current, until cancelled."""
        checking = asyncio.create_task(self._check_watch())
        try:
            async for change in self._changes():
                self._apply(change)
        finally:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)

    async def is_behind(self) -> bool:
        """Whether the API server has a pod of this node that the watch has not shown yet. Yes, if it cannot be asked.

        If so, the watch is opened again: it is late, or its connection is dead and that was not noticed.
        """
        try:
            async with contextlib.aclosing(self._client.pages(PODS, params=self._selector, timeout_s=ASK_S)) as pages:
                unknown = [name async for page in pages for raw in page.items if (name := self._unknown(raw))]
        except KubeError as error:
            log.warning("pods outcome=behind error=%r", str(error))
            return True
        if unknown or not self.current:
            log.warning("pods outcome=behind unseen=%s", ",".join(unknown[:10]))
            self._reopen.set()
        return bool(unknown)

    def _unknown(self, raw: msgspec.Raw) -> str:
        try:
            pod = self._reader.decode(raw)
        except (ValueError, RecursionError):
            return ""
        return pod.name if pod.uid not in self._pods else ""

    async def _changes(self) -> AsyncGenerator[Change[NodePod], None]:
        """The reflector's changes. A watch that is opened again continues where it was."""
        while True:
            self._reopen.clear()
            async with contextlib.aclosing(self._reflector.changes()) as changes:
                while (change := await self._next(changes)) is not None:
                    yield change

    async def _next(self, changes: AsyncGenerator[Change[NodePod], None]) -> Change[NodePod] | None:
        """The next change, or None if the watch has to be opened again first."""
        coming, reopen = asyncio.ensure_future(anext(changes)), asyncio.ensure_future(self._reopen.wait())
        try:
            await asyncio.wait([coming, reopen], return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else None
        finally:
            coming.cancel()
            reopen.cancel()
            await asyncio.gather(coming, reopen, return_exceptions=True)

    async def _check_watch(self) -> None:
        """Keep `current` true to the watch's state, and open a watch again that has been silent for too long."""
        clock = asyncio.get_running_loop().time
        opened_at = good_at = clock()
        was_open = False
        while True:
            await asyncio.sleep(CHECK_S)
            now, is_open = clock(), self._reflector.watching
            if is_open and not was_open:
                opened_at = now
            was_open = is_open
            if is_open and min(self._reflector.silent_s, now - opened_at) > STALL_S:
                log.warning("interrupted what=pods problem=%r", f"no event or bookmark for {STALL_S:g} s")
                self._reopen.set()
                was_open = False
            elif is_open or not self.listed.is_set():
                good_at = now
            self._set_current(now - good_at <= GRACE_S)

    def _set_current(self, current: bool) -> None:
        if current != self.current:
            log.warning("watch what=pods current=%s", current)
            self.current = current
            self.current_changed.announce()
        self._metrics.watch_current.set(current)

    def _apply(self, change: Change[NodePod]) -> None:
        match change:
            case Seen(pod) if self._first is not None:
                self._first.append(self._pins.see(pod))
            case Seen(pod):
                self._pod_seen(self._pins.see(pod))
            case Gone(uid, _):
                if self._first is not None:  # it was in a list that broke off
                    self._first = [pod for pod in self._first if pod.uid != uid]
                self._pods.remove(uid)
                self._pins.forget(uid)
                self._metrics.waits.forget(uid)
            case Synced():
                # kubelet admits the pods that it finds at its own start by age.
                for pod in sorted(self._first or (), key=lambda pod: pod.seen.created):
                    self._pods.put(pod)
                self._first = None
                self._pins.forget_others()
                self.listed.set()
            case Interrupted(problem, retry_in_s):
                log.warning("interrupted what=pods retry_in_s=%.1f problem=%r", retry_in_s, problem)

    def _pod_seen(self, pod: NodePod) -> None:
        if pod.uid not in self._pods and pod.parts:
            self._metrics.waits.begin(pod.uid)
        self._pods.put(pod)
        if pod.terminating:
            self._metrics.waits.forget(pod.uid)
