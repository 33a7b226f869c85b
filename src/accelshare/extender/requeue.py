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
from accelshare.kube.errors import Conflict, KubeError, NotFound
from accelshare.kube.records import touch_pod
from accelshare.ledger.ledger import Ledger, LedgerPod
from accelshare.ledger.nouns import Assignment, Request

log = logging.getLogger(__name__)
LOOK_EVERY_S: Final = 1.0
PATIENCE_S: Final = 2.0  # for kube-scheduler to come by itself, as it nearly always does
REST_S: Final = 30.0  # between two touches of one pod: other rules than ours may keep it off that node
MOST_OFFERS: Final = 2_000  # asked of the ledger in one look, some 10 ms; the rest waits for the next look
MOST_WOKEN: Final = 16  # touched in one look: the room may be for one of them only, and each touch is a write
MOST_REFUSED: Final = 50_000  # remembered; beyond that the one that was asked for longest ago is forgotten
FORGET_EVERY_S: Final = 30.0  # pods that are gone
WOKEN: Final = "accelshare.io/woken"


@dataclass(slots=True)
class _Refused:
    at: float
    rests_until: float = float("-inf")
    failures: int = 0  # touches in a row that the API server did not take


@dataclass(slots=True)
class _Room:
    """Something was given back on a node: when we saw it, and when to look who fits there."""

    since: float
    look_at: float


class Requeue:
    def __init__(self, client: Client, ledger: Ledger, metrics: Metrics, *, clock: Callable[[], float]) -> None:
        self._client = client
        self._ledger = ledger
        self._metrics = metrics
        self._clock = clock
        self._refused: dict[str, _Refused] = {}  # the one asked for longest ago comes first
        self._forgotten_at = clock()
        self._room: dict[str, _Room] = {}  # by node

    def answered(self, uid: str, *, refused: bool) -> None:
        """kube-scheduler has asked for this pod and got its answer."""
        known = self._refused.pop(uid, None)
        if not refused:
            return
        known = known or _Refused(0.0)
        known.at = self._clock()
        self._refused[uid] = known
        if len(self._refused) > MOST_REFUSED:
            del self._refused[next(iter(self._refused))]

    def room(self, node: str) -> None:
        """There may be more room on this node than before."""
        if self._refused:
            now = self._clock()
            self._room[node] = _Room(now, now + PATIENCE_S)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for pod, node in self.forgotten():
                await self.wake(pod, node)

    def forgotten(self) -> list[tuple[LedgerPod, str]]:
        """Pods that fit on a node since room appeared there, and that nobody has asked for since; each with that node."""
        now = self._clock()
        self._forget_the_gone(now)
        found: list[tuple[LedgerPod, str]] = []
        offers = 0
        for node, room in [(node, room) for node, room in self._room.items() if room.look_at <= now]:
            if offers >= MOST_OFFERS or len(found) >= MOST_WOKEN:
                break
            fitting: list[tuple[LedgerPod, _Refused]] = []
            resting: list[float] = []
            fits: dict[Request, bool] = {}  # there are few shapes and thousands of pods
            for uid, refused in list(self._refused.items()):
                if refused.at >= room.since:
                    continue
                if refused.rests_until > now:
                    resting.append(refused.rests_until)
                    continue
                pod = self._ledger.pod(uid)
                if pod is None or pod.place is not None or pod.seen.refusal is not None:
                    del self._refused[uid]
                    continue
                offers += 1
                request = pod.seen.request
                if request not in fits:
                    fits[request] = isinstance(self._ledger.offer(node, request), Assignment)
                if fits[request]:
                    fitting.append((pod, refused))
            # In kube-scheduler's own order. The others come at the next look, if there is still room for them.
            fitting.sort(key=lambda entry: (-entry[0].seen.priority, entry[1].at))
            woken = fitting[: MOST_WOKEN - len(found)]
            for pod, refused in woken:
                refused.rests_until = now + REST_S
                found.append((pod, node))
            if len(woken) < len(fitting):
                continue
            if resting:
                room.look_at = min(resting)  # the room is for those, too
            else:
                del self._room[node]
        return found

    def _forget_the_gone(self, now: float) -> None:
        if now - self._forgotten_at >= FORGET_EVERY_S:
            self._forgotten_at = now
            self._refused = {uid: refused for uid, refused in self._refused.items() if self._ledger.pod(uid) is not None}

    async def wake(self, pod: LedgerPod, node: str) -> None:
        seen = pod.seen
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            await touch_pod(self._client, namespace=seen.namespace, name=seen.name, uid=seen.uid, annotations={WOKEN: when})
        except (NotFound, Conflict):
            self._refused.pop(seen.uid, None)
        except KubeError as error:
            log.warning("wake pod=%s/%s node=%s outcome=failed error=%r", seen.namespace, seen.name, node, str(error))
            self._try_again(seen.uid, node)
        else:
            if (refused := self._refused.get(seen.uid)) is not None:
                refused.failures = 0
            self._metrics.woken.inc()
            log.info("wake pod=%s/%s node=%s outcome=touched", seen.namespace, seen.name, node)

    def _try_again(self, uid: str, node: str) -> None:
        refused = self._refused.get(uid)
        if refused is None:
            return
        refused.failures += 1
        now = self._clock()
        refused.rests_until = now + min(REST_S, 2.0 ** min(refused.failures, 16))
        room = self._room.setdefault(node, _Room(now, refused.rests_until))
        room.look_at = min(room.look_at, refused.rests_until)
