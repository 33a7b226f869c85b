"""Pods that were refused a moment too early are asked for again.

kube-scheduler asks again when it sees that something has changed, such as a pod that is gone. If it sees that before we do, we
refuse from the older book, and it would not ask again for five minutes. So we remember whom we refused: when room appears on a
node and kube-scheduler does not come back for a pod that now fits there, we touch the pod, which makes it come.

Belongs here: knowing who was refused before which room appeared, and touching pods. Never: deciding, books of our own.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from accelshare.extender.metrics import Metrics
from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError
from accelshare.kube.records import touch_pod
from accelshare.ledger.book import Ledger, Pod
from accelshare.ledger.nouns import Assignment

log = logging.getLogger(__name__)
LOOK_EVERY_S: Final = 1.0
PATIENCE_S: Final = 2.0  # for kube-scheduler to come by itself, as it nearly always does
REST_S: Final = 30.0  # between two touches of one pod: other rules than ours may keep it off that node
MOST_OFFERS: Final = 2_000  # asked of the ledger in one look, some 10 ms; the rest waits for the next look
MOST_WOKEN: Final = 16  # touched in one look: the room may be for one of them only, and each touch is a write
WOKEN: Final = "accelshare.io/woken"


@dataclass(slots=True)
class _Refused:
    at: float
    woken: float = float("-inf")


class Waking:
    def __init__(self, client: Client, ledger: Ledger, metrics: Metrics, *, clock: Callable[[], float]) -> None:
        self._client = client
        self._ledger = ledger
        self._metrics = metrics
        self._clock = clock
        self._refused: dict[str, _Refused] = {}
        self._room: dict[str, float] = {}  # nodes where something was given back, and when we saw it

    def answered(self, uid: str, *, refused: bool) -> None:
        """kube-scheduler has asked for this pod and got its answer."""
        if not refused:
            self._refused.pop(uid, None)
        elif uid in self._refused:
            self._refused[uid].at = self._clock()
        else:
            self._refused[uid] = _Refused(self._clock())

    def room(self, node: str) -> None:
        """There may be more room on this node than before."""
        if self._refused:
            self._room[node] = self._clock()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for pod, node in self.forgotten():
                await self._wake(pod, node)

    def forgotten(self) -> list[tuple[Pod, str]]:
        """Pods that fit on a node since room appeared there, and that nobody has asked for since; each with that node."""
        now = self._clock()
        ripe = {node: since for node, since in self._room.items() if now - since >= PATIENCE_S}
        found: list[tuple[Pod, str]] = []
        offers = 0
        for node, since in ripe.items():
            if offers >= MOST_OFFERS or len(found) >= MOST_WOKEN:
                break
            fitting: list[tuple[Pod, _Refused]] = []
            for uid, refused in list(self._refused.items()):
                if refused.at >= since or now - refused.woken < REST_S:
                    continue
                pod = self._ledger.pod(uid)
                if pod is None or pod.place is not None or pod.seen.refusal is not None:
                    del self._refused[uid]
                    continue
                offers += 1
                if isinstance(self._ledger.offer(node, pod.seen.request), Assignment):
                    fitting.append((pod, refused))
            # In kube-scheduler's own order. The others come at the next look, if there is still room for them.
            fitting.sort(key=lambda entry: (-entry[0].seen.priority, entry[1].at))
            woken = fitting[: MOST_WOKEN - len(found)]
            for pod, refused in woken:
                refused.woken = now
                found.append((pod, node))
            if len(woken) == len(fitting):
                del self._room[node]
        return found

    async def _wake(self, pod: Pod, node: str) -> None:
        seen = pod.seen
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            await touch_pod(self._client, namespace=seen.namespace, name=seen.name, uid=seen.uid, annotations={WOKEN: when})
        except KubeError as error:
            log.warning("wake pod=%s/%s node=%s outcome=failed error=%r", seen.namespace, seen.name, node, str(error))
            return
        self._metrics.woken.inc()
        log.info("wake pod=%s/%s node=%s outcome=touched", seen.namespace, seen.name, node)
