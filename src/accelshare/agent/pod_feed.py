"""The pods of this node as they come, change and go, told to the waiting room.

Belongs here: the watch with kubelet's own selector, so that pods arrive here in kubelet's order. Never: what follows from a pod.
"""

import asyncio
import logging

from accelshare.agent.metrics import Metrics
from accelshare.agent.pinned_records import PinnedRecords
from accelshare.agent.reconcile import Reconcile
from accelshare.agent.waiting_room import WaitingRoom
from accelshare.kube.client import Client
from accelshare.kube.watch import Gone, Interrupted, Reflector, Seen, Synced
from accelshare.vendors.catalog import Catalog
from accelshare.wire.node_pods import NodePod, NodePodReader

log = logging.getLogger(__name__)


class PodFeed:
    def __init__(
        self,
        client: Client,
        node: str,
        catalog: Catalog,
        *,
        room: WaitingRoom,
        reconcile: Reconcile,
        metrics: Metrics,
        pins: PinnedRecords,
    ) -> None:
        self._client = client
        self._node = node
        self._catalog = catalog
        self._room = room
        self._reconcile = reconcile
        self._metrics = metrics
        self._pins = pins
        self._first: list[NodePod] | None = []  # what the first list brings, until it is whole
        self.listed = asyncio.Event()  # every pod that was here when we came is in the waiting room

    async def run(self) -> None:
        reflector: Reflector[NodePod] = Reflector(
            self._client,
            "/api/v1/pods",
            decode=NodePodReader(self._catalog).decode,
            identity=lambda pod: pod.uid,
            params={"fieldSelector": f"spec.nodeName={self._node}"},
        )
        async for change in reflector.changes():
            match change:
                case Seen(pod) if self._first is not None:
                    self._first.append(self._pins.see(pod))
                case Seen(pod):
                    self._seen(self._pins.see(pod))
                case Gone(uid, _):
                    if self._first is not None:  # a list that broke had it
                        self._first = [pod for pod in self._first if pod.uid != uid]
                    self._room.pod_gone(uid)
                    self._pins.forget(uid)
                    self._left(uid)
                case Synced():
                    # After its own start kubelet takes what it finds by age.
                    for pod in sorted(self._first or (), key=lambda pod: pod.seen.created):
                        self._room.pod_seen(pod)
                    self._first = None
                    self._pins.forget_others()
                    self.listed.set()
                case Interrupted(problem, retry_in_s):
                    log.warning("interrupted what=pods retry_in_s=%.1f problem=%r", retry_in_s, problem)
            self._metrics.waiting.set(self._room.waiting)

    def _seen(self, pod: NodePod) -> None:
        if pod.uid not in self._room.pods:
            self._metrics.waits.came(pod.uid)
        self._room.pod_seen(pod)
        if pod.terminating:
            self._left(pod.uid)

    def _left(self, uid: str) -> None:
        self._metrics.waits.left(uid)
        self._reconcile.soon()
