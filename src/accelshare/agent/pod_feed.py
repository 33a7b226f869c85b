"""The pods of this node as they come, change and go, told to the waiting room.

Belongs here: the watch with kubelet's own selector, so that pods arrive here in kubelet's order, and whether that watch is
current. Never: what follows from a pod.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Final

import msgspec

from accelshare.agent.device_plugin.pod_queue import PodQueue
from accelshare.agent.device_plugin.reconcile import Reconcile
from accelshare.agent.metrics import Metrics
from accelshare.agent.pinned_records import PinnedRecords
from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError
from accelshare.kube.watch import Change, Gone, Interrupted, Reflector, Seen, Synced
from accelshare.vendors.catalog import Catalog
from accelshare.wire.node_pods import NodePod, NodePodReader

log = logging.getLogger(__name__)
PODS: Final = "/api/v1/pods"
ASK_S: Final = 5.0
LOOK_S: Final = 0.2
GRACE_S: Final = 2.0  # a watch that ends and is opened again within this was never interrupted
STALL_S: Final = 90.0  # API servers send a bookmark a minute; after so long without one the watch is opened anew


class PodFeed:
    def __init__(
        self,
        client: Client,
        node: str,
        catalog: Catalog,
        *,
        pod_queue: PodQueue,
        reconcile: Reconcile,
        metrics: Metrics,
        pins: PinnedRecords,
    ) -> None:
        self._client = client
        self._node = node
        self._catalog = catalog
        self._pod_queue = pod_queue
        self._reconcile = reconcile
        self._metrics = metrics
        self._pins = pins
        self._first: list[NodePod] | None = []  # what the first list brings, until it is whole
        self._reader = NodePodReader(catalog)
        self._selector = {"fieldSelector": f"spec.nodeName={node}"}
        self._reflector: Reflector[NodePod] = Reflector(
            client, PODS, decode=self._reader.decode, identity=lambda pod: pod.uid, params=self._selector
        )
        self._reopen = asyncio.Event()
        self.listed = asyncio.Event()  # every pod that was here when we came is in the waiting room
        self.current = True  # the watch is open, or was a moment ago
        self.on_current: Callable[[bool], None] = lambda _current: None

    async def run(self) -> None:
        """For ever: every change, and whether the watch is current."""
        judging = asyncio.create_task(self._judge())
        try:
            async for change in self._changes():
                self._take_in(change)
        finally:
            judging.cancel()
            await asyncio.gather(judging, return_exceptions=True)

    async def is_behind(self) -> bool:
        """Whether the API server has a pod for this node that has not come here yet, as far as it can be asked.

        Then the watch is opened anew: it is late, or its connection is dead and nobody has noticed.
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
        return pod.name if pod.uid not in self._pod_queue.pods else ""

    async def _changes(self) -> AsyncGenerator[Change[NodePod], None]:
        """The reflector's changes. A watch that has to be opened anew goes on where it was."""
        while True:
            self._reopen.clear()
            async with contextlib.aclosing(self._reflector.changes()) as changes:
                while (change := await self._next(changes)) is not None:
                    yield change

    async def _next(self, changes: AsyncGenerator[Change[NodePod], None]) -> Change[NodePod] | None:
        """The next change, or None when the watch has to be opened anew before there is one."""
        coming, reopen = asyncio.ensure_future(anext(changes)), asyncio.ensure_future(self._reopen.wait())
        try:
            await asyncio.wait([coming, reopen], return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else None
        finally:
            coming.cancel()
            reopen.cancel()
            await asyncio.gather(coming, reopen, return_exceptions=True)

    async def _judge(self) -> None:
        """Say whether the watch is current, and open one anew that has been silent for too long."""
        clock = asyncio.get_running_loop().time
        opened_at = good_at = clock()
        was_open = False
        while True:
            await asyncio.sleep(LOOK_S)
            now, is_open = clock(), self._reflector.watching
            if is_open and not was_open:
                opened_at = now
            was_open = is_open
            if is_open and min(self._reflector.silent_s, now - opened_at) > STALL_S:
                log.warning("interrupted what=pods problem=%r", f"nothing came for {STALL_S:g} s, not even a bookmark")
                self._reopen.set()
                was_open = False
            elif is_open or not self.listed.is_set():
                good_at = now
            self._judged(now - good_at <= GRACE_S)

    def _judged(self, current: bool) -> None:
        if current != self.current:
            log.warning("watch what=pods current=%s", current)
            self.current = current
            self.on_current(current)
        self._metrics.watch_current.set(current)

    def _take_in(self, change: Change[NodePod]) -> None:
        match change:
            case Seen(pod) if self._first is not None:
                self._first.append(self._pins.see(pod))
            case Seen(pod):
                self._seen(self._pins.see(pod))
            case Gone(uid, _):
                if self._first is not None:  # a list that broke had it
                    self._first = [pod for pod in self._first if pod.uid != uid]
                self._pod_queue.pod_gone(uid)
                self._pins.forget(uid)
                self._left(uid)
            case Synced():
                # After its own start kubelet takes what it finds by age.
                for pod in sorted(self._first or (), key=lambda pod: pod.seen.created):
                    self._pod_queue.pod_seen(pod)
                self._first = None
                self._pins.forget_others()
                self.listed.set()
            case Interrupted(problem, retry_in_s):
                log.warning("interrupted what=pods retry_in_s=%.1f problem=%r", retry_in_s, problem)

    def _seen(self, pod: NodePod) -> None:
        if pod.uid not in self._pod_queue.pods and pod.parts:
            self._metrics.waits.came(pod.uid)
        self._pod_queue.pod_seen(pod)
        if pod.terminating:
            self._left(pod.uid)

    def _left(self, uid: str) -> None:
        self._metrics.waits.left(uid)
        self._reconcile.soon()
