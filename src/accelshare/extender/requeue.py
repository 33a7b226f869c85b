"""Requeues refused pods in kube-scheduler when capacity becomes free that kube-scheduler does not retry them for.

kube-scheduler retries a pod when it sees a change, such as a deleted pod. If it sees the change before we do, we refuse the pod
from an older state, and kube-scheduler would not retry for five minutes. So refused pods are remembered: when capacity becomes
free on a node and kube-scheduler does not retry a pod that now fits there, we touch the pod, which requeues it.

What an extender remembers ends with it. So a new one takes every pending pod as refused: once kube-scheduler asks for nothing any
more, those that fit are touched.

Belongs here: remembering refused pods and freed capacity, touching pods. Never: deciding, counting capacity (ledger/).
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from accelshare.extender.metrics import Metrics
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, KubeError, NotFound
from accelshare.kube.patches import touch_pod
from accelshare.ledger.ledger import Ledger, LedgerPod
from accelshare.ledger.nouns import Assignment, Request

log = logging.getLogger(__name__)
CHECK_EVERY_S: Final = 1.0
PATIENCE_S: Final = 2.0  # for kube-scheduler to retry by itself, as it nearly always does
REST_S: Final = 30.0  # between two touches of one pod: other rules than ours may keep it off that node
MAX_LOOKS: Final = 2_000  # at pods in one check, some 10 ms if each has an offer; the nodes that are left wait for the next check
MAX_TOUCHED: Final = 16  # in one check: the free capacity may be enough for one pod only, and each touch is a write
MAX_RANKINGS: Final = 2  # computed in one check, 70 ms each at 5,000 nodes
MAX_REFUSED: Final = 50_000  # remembered; beyond that the pod whose last request is oldest is forgotten
FORGET_EVERY_S: Final = 30.0  # pods that are gone
REQUEUED: Final = "accelshare.io/requeued"


@dataclass(slots=True)
class _Refused:
    at: float
    touched_at: float = float("-inf")  # unless the API server refused it
    rests_until: float = float("-inf")
    failures: int = 0  # touches in a row that the API server refused


@dataclass(slots=True)
class _FreeCapacity:
    """Capacity became free on a node: when we saw it, and when to check which pods fit there."""

    since: float
    check_at: float


class Requeue:
    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._may_write = may_write
        self._ledger = ledger
        self._metrics = metrics
        self._clock = clock
        self._refused: dict[str, _Refused] = {}  # the pod whose last request is oldest comes first
        self._unknown: dict[str, None] = {}  # uids of pods that an earlier extender may have refused
        self._asked_at = clock()
        self._forgotten_at = clock()
        self._free: dict[str, _FreeCapacity] = {}  # by node

    def take_over(self) -> None:
        """This extender decides from now on. Whom an earlier one has refused, and what became free then, is not known."""
        self._asked_at = self._clock()
        pods = (pod.seen for pod in self._ledger.pods() if pod.place is None and pod.seen.refusal is None)
        for pod in islice(pods, MAX_REFUSED - len(self._refused)):
            self._refused.setdefault(pod.uid, _Refused(self._asked_at))
            self._unknown[pod.uid] = None

    def filtered(self, uid: str, *, refused: bool) -> None:
        """Filter responded for this pod."""
        self._asked_at = self._clock()
        self._unknown.pop(uid, None)
        known = self._refused.pop(uid, None)
        if not refused:
            return
        known = known or _Refused(0.0)
        known.at = self._clock()
        self._refused[uid] = known
        if len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]

    def capacity_freed(self, node: str) -> None:
        """This node may have more free capacity than before."""
        if self._refused:
            now = self._clock()
            self._free[node] = _FreeCapacity(now, now + PATIENCE_S)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            for pod, node in self.due() if self._may_write() else ():
                await self.touch(pod, node)

    def due(self) -> list[tuple[LedgerPod, str]]:
        """Pods that fit on a node since capacity became free there, and that kube-scheduler has not retried; with that node."""
        now = self._clock()
        self._forget_deleted(now)
        due = self._due_of_unknown(now)
        looks = 0
        for node, free in [(node, free) for node, free in self._free.items() if free.check_at <= now]:
            if looks >= MAX_LOOKS or len(due) >= MAX_TOUCHED:
                break
            fitting: list[tuple[LedgerPod, _Refused]] = []
            resting: list[float] = []
            fits: dict[Request, bool] = {}  # there are few different requests and thousands of pods
            settled: list[str] = []
            for uid, refused in self._refused.items():
                if refused.at >= free.since:
                    break  # so are all others: the pod whose last request is oldest comes first
                looks += 1
                if refused.touched_at >= free.since:
                    continue
                if refused.rests_until > now:
                    resting.append(refused.rests_until)
                    continue
                pod = self._ledger.pod(uid)
                if pod is None or pod.place is not None or pod.seen.refusal is not None:
                    settled.append(uid)
                    continue
                request = pod.seen.request
                if request not in fits:
                    fits[request] = isinstance(self._ledger.offer(node, request), Assignment)
                if fits[request]:
                    fitting.append((pod, refused))
            for uid in settled:
                del self._refused[uid]
            # In kube-scheduler's own order. The others come at the next check, if they still fit.
            fitting.sort(key=lambda entry: (-entry[0].seen.priority, entry[1].at))
            touched = fitting[: MAX_TOUCHED - len(due)]
            for pod, refused in touched:
                refused.touched_at, refused.rests_until = now, now + REST_S
                due.append((pod, node))
            if len(touched) < len(fitting):
                continue
            if resting:
                free.check_at = min(resting)  # the capacity is for those, too
            else:
                del self._free[node]
        return due

    def _due_of_unknown(self, now: float) -> list[tuple[LedgerPod, str]]:
        """Pods that an earlier extender may have refused and that fit now, while kube-scheduler asks for no pod."""
        if not self._unknown or now - self._asked_at < PATIENCE_S:
            return []
        due: list[tuple[LedgerPod, str]] = []
        nodes: dict[Request, str] = {}  # the best for each request, or nothing
        for uid in list(self._unknown):
            pod, refused = self._ledger.pod(uid), self._refused.get(uid)
            if pod is None or refused is None or pod.place is not None or pod.seen.refusal is not None:
                del self._unknown[uid]
                continue
            request = pod.seen.request
            if request not in nodes and len(nodes) < MAX_RANKINGS:
                nodes[request] = next(iter(self._ledger.ranking(request).best(self._ledger.known_nodes, 1)), "")
            node = nodes.get(request)
            if node == "":
                del self._unknown[uid]  # it stays among the refused: capacity that becomes free requeues it
            elif node is not None and len(due) < MAX_TOUCHED:
                del self._unknown[uid]
                refused.touched_at, refused.rests_until = now, now + REST_S
                due.append((pod, node))
        return due

    def _forget_deleted(self, now: float) -> None:
        if now - self._forgotten_at >= FORGET_EVERY_S:
            self._forgotten_at = now
            self._refused = {uid: refused for uid, refused in self._refused.items() if self._ledger.pod(uid) is not None}

    async def touch(self, pod: LedgerPod, node: str) -> None:
        seen = pod.seen
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            await touch_pod(self._client, namespace=seen.namespace, name=seen.name, uid=seen.uid, annotations={REQUEUED: when})
        except (NotFound, Conflict):
            self._refused.pop(seen.uid, None)
        except KubeError as error:
            log.warning("requeue pod=%s/%s node=%s outcome=failed error=%r", seen.namespace, seen.name, node, str(error))
            self._retry_later(seen.uid, node)
        else:
            if (refused := self._refused.get(seen.uid)) is not None:
                refused.failures = 0
            self._metrics.requeued.inc()
            log.info("requeue pod=%s/%s node=%s outcome=touched", seen.namespace, seen.name, node)

    def _retry_later(self, uid: str, node: str) -> None:
        refused = self._refused.get(uid)
        if refused is None:
            return
        refused.failures += 1
        refused.touched_at = float("-inf")
        now = self._clock()
        refused.rests_until = now + min(REST_S, 2.0 ** min(refused.failures, 16))
        free = self._free.setdefault(node, _FreeCapacity(now, refused.rests_until))
        free.check_at = min(free.check_at, refused.rests_until)
