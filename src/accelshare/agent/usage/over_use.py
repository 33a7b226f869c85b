"""What is done about a pod that uses more of a card than it holds: an Event, and an eviction if that is switched on.

Belongs here: these writes, how often, and when an eviction is due. Never: finding out who uses how much.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from accelshare.agent.pod_store import PodStore
from accelshare.agent.retries import Retries
from accelshare.agent.usage.history import UsageHistory
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, KubeError, NotFound
from accelshare.kube.events import Events, PodRef
from accelshare.kube.patches import check_eviction, delete_pod
from accelshare.wire.usage import PodUse

log = logging.getLogger(__name__)
REPORT_EVERY_S: Final = 600.0  # of one pod; its numbers change, so each Event is another one
MIB: Final = 2**20


class OverUse:
    def __init__(
        self,
        client: Client,
        events: Events,
        pods: PodStore,
        history: UsageHistory,
        *,
        evict_after_s: float,
        not_evicted: Collection[str] = (),
        on_evicted: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """`evict_after_s`: 0: nobody is evicted. `on_evicted` is called for each pod that was.

        `not_evicted`: kinds whose numbers are text of a tool. A process can write its own name into such a text.
        """
        self._client = client
        self._events = events
        self._pods = pods
        self._history = history
        self._evict_after_s = evict_after_s
        self._not_evicted = frozenset(not_evicted)
        self._on_evicted = on_evicted
        self._clock = clock
        self._reported: dict[str, float] = {}
        self._evicted: set[str] = set()  # a static pod is still there after its eviction
        self._retries = Retries(clock)

    async def react(self, uses: Iterable[PodUse]) -> None:
        """Act on this sample. A pod within its share is not touched."""
        over = {use.uid: use for use in sorted(uses, key=_excess) if use.over_use}  # of several cards the worst
        living = self._pods.snapshot()
        self._reported = {uid: at for uid, at in self._reported.items() if uid in living}
        self._evicted.intersection_update(living)
        self._retries.keep_only(over)
        await asyncio.gather(*(self._react(use) for uid, use in over.items() if uid in living))

    async def _react(self, use: PodUse) -> None:
        now = self._clock()
        numbers = _numbers(use)
        if now - self._reported.get(use.uid, -REPORT_EVERY_S) >= REPORT_EVERY_S:
            self._reported[use.uid] = now
            log.warning("over-use pod=%s/%s kind=%s card=%d what=%r", use.namespace, use.name, use.kind, use.card, numbers)
            await self._events.record(_ref(use), kind="Warning", reason="AcceleratorOverused", message=numbers)
        if self._is_due(use, now):
            await self._evict(use, numbers)

    def _is_due(self, use: PodUse, now: float) -> bool:
        pod = self._pods.get(use.uid)
        if not self._evict_after_s or use.kind in self._not_evicted or pod is None or pod.terminating or use.uid in self._evicted:
            return False
        return self._history.over_s(use, now) >= self._evict_after_s and self._retries.due(use.uid)

    async def _evict(self, use: PodUse, numbers: str) -> None:
        pod = f"{use.namespace}/{use.name}"
        try:
            await check_eviction(self._client, namespace=use.namespace, name=use.name, uid=use.uid)
            await delete_pod(self._client, namespace=use.namespace, name=use.name, uid=use.uid)
        except (NotFound, Conflict):  # it is gone, or another pod has its name
            return
        except KubeError as error:  # a disruption budget, for example
            if self._retries.failed(use.uid, error):
                log.warning("over-use pod=%s outcome=not-evicted error=%r", pod, str(error))
            return
        self._evicted.add(use.uid)
        self._on_evicted()
        log.warning("over-use pod=%s outcome=evicted what=%r", pod, numbers)
        message = f"{numbers} for more than {self._evict_after_s:g} s; it is evicted"
        await self._events.record(_ref(use), kind="Warning", reason="AcceleratorOveruseEvicted", message=message)


def _excess(use: PodUse) -> int:
    return (use.used_bytes or 0) - use.held_bytes


def _numbers(use: PodUse) -> str:
    used = -(-(use.used_bytes or 0) // MIB)
    return f"it uses {used} MiB of {use.kind} card {use.card}, of which it holds {use.held_bytes // MIB} MiB"


def _ref(use: PodUse) -> PodRef:
    return PodRef(namespace=use.namespace, name=use.name, uid=use.uid)
