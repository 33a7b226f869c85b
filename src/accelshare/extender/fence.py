"""Makes the API server refuse late Bindings: a Binding names its pod's version, so any later change of the pod invalidates it.

Belongs here: changing pending pods for that, at the extender's start and when a bind is in doubt; the fallback for API servers
that ignore a Binding's version. Never: sending a Binding (kube/binding.py), releasing cards (binder.py).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Final

from accelshare.kube import binding
from accelshare.kube.client import Client
from accelshare.kube.errors import BadAnswer, KubeError, NotFound
from accelshare.kube.patches import set_condition
from accelshare.kube.server_version import server_version
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Request
from accelshare.wire.objects import pod_decoder
from accelshare.wire.pods import PodReader

log = logging.getLogger(__name__)
CONDITION: Final = "accelshare.io/BindFence"
AT_ONCE: Final = 64  # a new holder decides nothing before all are changed; the API server has seats for more
RETRY_S: Final = 1.0
REQUEST_S: Final = 5.0
PROGRESS_S: Final = 5.0
# The API server may carry out a request up to a minute after its sender has stopped waiting. Where it ignores a Binding's
# version, "not bound" is final only after this time.
SETTLED_S: Final = 75.0


class Fence:
    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        reader: PodReader,
        *,
        on_free_capacity: Callable[[str], None],
        resizes: bool = False,
    ) -> None:
        """`on_free_capacity` is called with each node on which something may have become free. `resizes`: slices are resized."""
        self._resizes = resizes
        self._client = client
        self._ledger = ledger
        self._reader = reader
        self._on_free_capacity = on_free_capacity
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._problem = ""  # why the last pod could not be changed
        self._honoured: bool | None = None  # None: the API server's version is not known yet
        self.unfenced: int | None = None  # pods that fence_pending has left to do; None before it has counted them

    def skip_pending(self) -> None:
        """No Binding of an earlier extender is on its way."""
        self.unfenced = 0

    async def fence_pending(self, uids: Collection[str] | None = None) -> None:
        """Refuse every Binding of an earlier extender: afterwards only ours can bind the pods that are pending now.

        Without it a pod whose Binding arrives late would be on a card that another pod got meanwhile. A pod for which no
        card has free capacity is left out: no other pod can get its card. The same for grants of a resize on bound pods.
        `uids`: the only pods whose Binding can be in flight; None: it is not known which. None of these is left out: the watch
        of nodes, which nobody waited for, may not have shown the card yet to which it is being bound.
        """
        started = asyncio.get_running_loop().time()
        free = _LargestFree(self._ledger)
        waiting = deque(
            pod.seen
            for pod in self._ledger.pods()
            if (
                self._resizes and _may_be_granted(pod.seen)
                if pod.seen.node
                else (pod.seen.uid in uids if uids is not None else free.may_serve(pod.seen.request))
            )
        )
        count = self.unfenced = len(waiting)

        async def fence_next() -> None:
            while waiting:
                pod = waiting.popleft()
                while not await self.refuses(pod.namespace, pod.name, pod.uid, sent_at=started):  # noqa: ASYNC110 – a request, not a flag
                    await asyncio.sleep(RETRY_S)
                self.unfenced = (self.unfenced or 0) - 1

        workers = [asyncio.ensure_future(fence_next()) for _ in range(min(AT_ONCE, count))]
        try:
            pending = set(workers)
            while pending:
                done, pending = await asyncio.wait(pending, timeout=PROGRESS_S, return_when=asyncio.FIRST_EXCEPTION)
                for worker in done:
                    worker.result()
                if pending:
                    log.info("fencing pending_pods=%d left=%d problem=%r", count, self.unfenced, self._problem)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        if count:
            log.info("fenced pending_pods=%d took_s=%.1f", count, asyncio.get_running_loop().time() - started)

    async def refuses(self, namespace: str, name: str, uid: str, *, sent_at: float) -> bool:
        """Make the API server refuse every Binding of the pod that was sent until `sent_at`, and return whether it does.

        True also for a pod that has a node or is gone, which the ledger then knows. False: try again later.
        """
        async with self._turn:
            try:
                if await self._version_is_honoured():
                    return await self._change(namespace, name, uid)
            except NotFound:
                return True
            except KubeError as error:
                self._problem = str(error)
            return await self._time_has_passed(namespace, name, uid, sent_at)

    async def _change(self, namespace: str, name: str, uid: str) -> bool:
        # The API server does not write a change that changes nothing, so the message is another one each time.
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        condition = {
            "type": CONDITION,
            "status": "True",
            "reason": "LateBindingsRefused",
            "message": f"Bindings that accelshare sent before {now} are refused.",
        }
        pod = await set_condition(self._client, namespace=namespace, name=name, uid=uid, condition=condition, timeout_s=REQUEST_S)
        if not self._apply(pod):
            raise BadAnswer(f"PATCH pod {namespace}/{name}: not a pod")  # it may have a node that the ledger does not know
        return True

    async def _time_has_passed(self, namespace: str, name: str, uid: str, sent_at: float) -> bool:
        looked_at = asyncio.get_running_loop().time()
        try:
            state = await binding.bound_state(self._client, namespace, name, uid, timeout_s=REQUEST_S)
        except KubeError:
            return False
        if isinstance(state, binding.Missing):
            return True
        self._apply(state.pod)
        return isinstance(state, binding.BoundTo) or looked_at >= sent_at + SETTLED_S

    async def _version_is_honoured(self) -> bool:
        """Since Kubernetes 1.23. An API server whose version is unreadable counts as an older one."""
        if self._honoured is None:
            try:
                self._honoured = await server_version(self._client, timeout_s=REQUEST_S) >= (1, 23)
            except ValueError as error:
                log.warning("fence outcome=version-unreadable waiting_s=%.0f error=%r", SETTLED_S, str(error))
                self._honoured = False
        return self._honoured

    def _apply(self, pod: bytes) -> bool:
        """The watch may show this late, and until then a card would count as free or a version be outdated.

        False: it cannot be read.
        """
        try:
            fact = self._reader.fact(pod_decoder.decode(pod))
        except ValueError:  # the watch reports it
            return False
        if fact is not None and (freed := self._ledger.apply(fact)):
            self._on_free_capacity(freed)
        return True


def _may_be_granted(pod: PodSeen) -> bool:
    """Whether an earlier extender may have sent a grant that has not arrived.

    The same amount as before can have been granted again, if the node could not set it: then another one is in force.
    """
    if pod.resize is None:
        return False
    wanted = pod.resize.units
    return pod.granted is None or pod.granted.units != wanted or any(ask.share != wanted for ask in pod.request)


class _LargestFree:
    """The most that any card has free, by kind. Cards that are unhealthy or paused count: they may come back meanwhile."""

    def __init__(self, ledger: Ledger) -> None:
        self._units: dict[str, int] = {}
        self._whole: set[str] = set()
        for card in (card for node in ledger.nodes() for cards in node.cards.values() for card in cards):
            kind = card.card.kind
            if card.empty:
                self._whole.add(kind)
            if not card.wholes:
                self._units[kind] = max(self._units.get(kind, 0), card.card.size - card.used)

    def may_serve(self, request: Request) -> bool:
        return all(
            ask.kind in self._whole if ask.whole else ask.kind in self._units and ask.share <= self._units[ask.kind]
            for ask in request
        )
