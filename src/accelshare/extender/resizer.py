"""Answers pods that want another amount of their slice: grants the resize or refuses it, each once.

Belongs here: what a pod may be granted, the write of the grant, Events and metrics about it. Never: setting the limit, which the
agent of the node does when it sees the grant; counting (ledger/).

A pod has one resize at a time: the next is decided when its node has reported the amount in force after the last. A refusal holds
for the text that was written; one for a reason of the node, such as lack of room, is decided again when the node changes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Final, Literal

from accelshare.extender.metrics import Metrics
from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import ApiError, Conflict, KubeError, NotFound, TooManyRequests, Unreachable
from accelshare.kube.events import Events, PodRef
from accelshare.kube.patches import grant_resize
from accelshare.ledger.facts import PodSeen, WantedResize
from accelshare.ledger.ledger import Ledger, LedgerPod
from accelshare.ledger.nouns import Card, Resize
from accelshare.ledger.resizing import ResizeReason, ResizeRefusal, is_one_slice
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.profile import Profile
from accelshare.wire import resizing
from accelshare.wire.quotas import QuotaReader

log = logging.getLogger(__name__)
RETRY_S: Final = 1.0
MOST_RETRY_S: Final = 30.0


class Resizer:
    """`start` once the ledger is complete. Everything runs on one loop, and each decision in one step of it."""

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        catalog: Catalog,
        events: Events,
        metrics: Metrics,
        *,
        enabled: bool,
        on_free_capacity: Callable[[str], None] = lambda _: None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        """`enabled`: an admission policy lets nobody but us write grants. `may_write`: whether this extender decides now.

        `on_free_capacity` is called with the node on which a growth was counted that is refused after all.
        """
        self._client = client
        self._ledger = ledger
        self._profiles: Mapping[str, Profile] = {profile.name: profile for profile in catalog.profiles}
        self._quotas = QuotaReader(catalog)
        self._events = events
        self._metrics = metrics
        self.enabled = enabled
        self._on_free_capacity = on_free_capacity
        self._may_write = may_write
        self._started = False
        self._answered: dict[str, str | None] = {}  # by uid: the text that was answered last; None: it was removed since
        self._waiting: dict[str, set[str]] = {}  # by node: uids of pods whose last resize the node has not reported yet
        self._short: dict[str, set[str]] = {}  # by node: uids of pods that were refused for a reason of the node
        self._postponed: dict[str, bool] = {}  # by uid of pods to decide when we may: whether they were refused before
        self._decide_later: asyncio.TimerHandle | None = None
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._event_tasks: set[asyncio.Task[bool]] = set()

    def start(self) -> None:
        """The ledger is complete: decide from now on."""
        self._started = True
        # One that had a grant and wants nothing now may want the same again.
        for uid in [pod.seen.uid for pod in self._ledger.pods() if pod.seen.resize is not None or pod.seen.granted is not None]:
            self._decide(uid)

    async def stop(self) -> None:
        """End the writes; the next start fences them."""
        if self._decide_later is not None:
            self._decide_later.cancel()
        tasks = [*self._writing.values(), *self._event_tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def settled(self) -> bool:
        """Whether no grant is on its way."""
        return not self._writing

    def pod_seen(self, uid: str) -> None:
        """The ledger has a new version of this pod."""
        if self._started:
            self._decide(uid)

    def pod_gone(self, uid: str) -> None:
        self._answered.pop(uid, None)
        for by_node in (self._waiting, self._short):
            for node in [node for node, uids in by_node.items() if uid in uids]:
                by_node[node].discard(uid)
                if not by_node[node]:
                    del by_node[node]

    def node_seen(self, node: str) -> None:
        """The ledger has a new version of this node: it may have reported a resize, or have a card that it had not."""
        for uid in self._waiting.pop(node, ()):
            self._decide(uid)
        self.capacity_freed(node)

    def capacity_freed(self, node: str) -> None:
        """Something may have become free on this node: decide its refusals again."""
        for uid in self._short.pop(node, ()):
            pod = self._ledger.pod(uid)
            if pod is not None and pod.seen.resize is not None and self._answered.get(uid) == pod.seen.resize.text:
                del self._answered[uid]
                self._decide(uid, again=True)

    def _decide(self, uid: str, *, again: bool = False) -> None:
        pod = self._ledger.pod(uid)
        if pod is None or uid in self._writing or pod.resize_hold is not None:
            return
        seen, wanted = pod.seen, pod.seen.resize
        if wanted is None:
            if uid in self._answered or seen.granted is not None:
                self._answered[uid] = None
            return
        if not seen.node or not seen.started or seen.ended or self._is_answered(seen, wanted):
            return
        if not self._may_write():
            self._postpone(uid, again=again)
            return
        answer = self._answer(pod, wanted)
        if answer == "wait":
            self._waiting.setdefault(seen.node, set()).add(uid)
            return
        if isinstance(answer, Resize):
            before = seen.request[0].share
            self._ledger.hold_resize(uid, answer)
            self._writing[uid] = asyncio.ensure_future(self._write(pod, answer, before))
            return
        self._answered[uid] = wanted.text
        if answer is not None and answer.reason in _DECIDED_AGAIN:
            self._short.setdefault(seen.node, set()).add(uid)
        if answer is not None and not again:
            self._refuse(seen, wanted, answer)

    def _postpone(self, uid: str, *, again: bool) -> None:
        """Our Lease has lapsed. Either it is renewed soon, or this process ends."""
        self._postponed[uid] = again
        if len(self._postponed) == 1:
            self._decide_later = asyncio.get_running_loop().call_later(RETRY_S, self._decide_postponed)

    def _decide_postponed(self) -> None:
        postponed, self._postponed = self._postponed, {}
        for uid, again in postponed.items():
            self._decide(uid, again=again)

    def _is_answered(self, seen: PodSeen, wanted: WantedResize) -> bool:
        # What an earlier extender granted is not granted again, also if the node could not do it.
        granted = seen.granted is not None and seen.granted.units == wanted.units
        return self._answered[seen.uid] == wanted.text if seen.uid in self._answered else granted

    def _answer(self, pod: LedgerPod, wanted: WantedResize) -> Resize | ResizeRefusal | Literal["wait"] | None:
        """The grant or the refusal; "wait": the node has to report first; None: the pod has this amount."""
        seen = pod.seen
        if not self.enabled:
            return ResizeRefusal(ResizeReason.OFF)
        if not wanted.units:
            return ResizeRefusal(ResizeReason.UNREADABLE)
        if not wanted.one_container or not is_one_slice(seen.request):
            return ResizeRefusal(ResizeReason.NOT_ONE_SLICE)
        node = self._ledger.node(seen.node)
        fact = node.fact if node is not None else None
        applied = fact.applied.get(seen.uid) if fact is not None and fact.applied is not None else None
        if seen.granted is not None and (applied is None or applied.number != seen.granted.number):
            return "wait"
        if wanted.units == seen.request[0].share:
            return None
        kind = seen.request[0].kind
        card = next((one for one in fact.cards if _is_on(one, seen)), None) if fact is not None else None
        if fact is None or card is None:
            return ResizeRefusal(ResizeReason.CARD_UNKNOWN)
        if not fact.resizes or kind not in fact.by_runtime or not self._can_change(card):
            return ResizeRefusal(ResizeReason.LIMIT_FIXED)
        refusal = self._ledger.resize_refusal(seen.uid, wanted.units)
        if refusal is not None:
            return refusal
        last = max(one.number if one is not None else 0 for one in (seen.granted, applied))
        return Resize(wanted.units, last + 1)

    def _can_change(self, card: Card) -> bool:
        """Whether the limit of a living container can be changed: only where the agent itself sets it on the cgroup."""
        rules = self._profiles[card.kind].enforcement
        return any(way.on_cgroup for name, way in rules.in_order if name == card.way)

    async def _write(self, pod: LedgerPod, resize: Resize, before: int) -> None:
        """Write the grant, again and again until it is certain whether it was written."""
        seen, retry_s, in_doubt = pod.seen, RETRY_S, False
        wanted = seen.resize
        assert wanted is not None
        text = resizing.granted_text(resize)
        try:
            if resize.units > pod.requested[0].share and not await self._may_exceed_request(pod, resize, wanted):
                return
            while self._holds(pod, resize):
                assert pod.resize_hold is not None
                if not self._may_write():
                    await asyncio.sleep(RETRY_S)
                    continue
                try:
                    await grant_resize(
                        self._client,
                        namespace=seen.namespace,
                        name=seen.name,
                        uid=seen.uid,
                        version=str(pod.resize_hold[1]),
                        annotations={resizing.GRANTED: text},
                    )
                except (NotFound, Conflict):
                    # The pod has changed, or an earlier try has done it: the watch will show which.
                    return
                except KubeError as error:
                    log.warning("resize pod=%s/%s outcome=not-written error=%r", seen.namespace, seen.name, str(error))
                    if not in_doubt and _is_certain(error):
                        self._take_back(seen, wanted, ResizeRefusal(ResizeReason.NOT_WRITTEN), str(error))
                        return
                    in_doubt = True
                    await asyncio.sleep(retry_s)
                    retry_s = min(2 * retry_s, MOST_RETRY_S)
                else:
                    self._answered[seen.uid] = wanted.text
                    self._granted(seen, resize, before)
                    return
        finally:
            del self._writing[seen.uid]
            if self._ledger.pod(seen.uid) is None:
                self._answered.pop(seen.uid, None)  # it ended before the answer came
            self._decide(seen.uid)

    def _holds(self, pod: LedgerPod, resize: Resize) -> bool:
        """Whether this resize is still to be written."""
        return pod.resize_hold is not None and pod.resize_hold[0] == resize

    async def _may_exceed_request(self, pod: LedgerPod, resize: Resize, wanted: WantedResize) -> bool:
        """Whether the pod may have more than it requests. If not, that is answered.

        A ResourceQuota counts requests, and the API server admits pods by it. What a slice has beyond its request would count
        nowhere, so a namespace could hold more than its quota.
        """
        seen, retry_s = pod.seen, RETRY_S
        while self._holds(pod, resize):
            try:
                quota = await self._quota_of(seen)
            except KubeError as error:
                log.warning("resize pod=%s/%s outcome=quotas-not-read error=%r", seen.namespace, seen.name, str(error))
                if _is_certain(error):
                    self._take_back(seen, wanted, ResizeRefusal(ResizeReason.NOT_WRITTEN), str(error))
                    return False
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, MOST_RETRY_S)
            else:
                if quota:
                    self._take_back(seen, wanted, ResizeRefusal(ResizeReason.QUOTA, pod.requested[0].share), quota)
                return not quota
        return False

    async def _quota_of(self, seen: PodSeen) -> str:
        """The name of a ResourceQuota that limits what pods of the namespace request of the pod's resource; empty: none does."""
        resource = self._resource(seen)
        async with contextlib.aclosing(self._client.pages(paths.resource_quotas(seen.namespace))) as pages:
            async for page in pages:
                for raw in page.items:
                    quota = self._quotas.decode(raw)
                    for row in quota.rows if quota is not None else ():
                        if row.resource == resource:
                            return row.quota
        return ""

    def _take_back(self, seen: PodSeen, wanted: WantedResize, refusal: ResizeRefusal, problem: str) -> None:
        """Refuse a resize that was held and has certainly not been written."""
        freed = self._ledger.release_resize(seen.uid)
        self._answered[seen.uid] = wanted.text
        self._refuse(seen, wanted, refusal, problem)
        if freed:
            self._on_free_capacity(freed)

    def _granted(self, seen: PodSeen, resize: Resize, before: int) -> None:
        self._metrics.resized("granted")
        log.info(
            "resize pod=%s/%s node=%s before=%d units=%d n=%d outcome=granted",
            *(seen.namespace, seen.name, seen.node, before, resize.units, resize.number),
        )
        resource = self._resource(seen)
        message = f"{resize.units} of {resource} are granted instead of {before}; the agent of node {seen.node} sets the limit"
        self._record_event(seen, "Normal", "ResizeGranted", message)

    def _refuse(self, seen: PodSeen, wanted: WantedResize, refusal: ResizeRefusal, problem: str = "") -> None:
        self._metrics.resized(refusal.reason.value)
        log.info(
            "resize pod=%s/%s node=%s wanted=%r reason=%s outcome=refused",
            *(seen.namespace, seen.name, seen.node, wanted.text, refusal.reason.value),
        )
        sentence = _SENTENCES[refusal.reason].format(
            units=refusal.units, resource=self._resource(seen), node=seen.node, problem=problem
        )
        self._record_event(seen, "Warning", "ResizeRefused", f"{resizing.RESIZE} is {wanted.text!r}: {sentence}")

    def _resource(self, seen: PodSeen) -> str:
        profile = self._profiles.get(seen.request[0].kind) if seen.request else None
        return (profile.resources.memory if profile is not None else None) or "units"

    def _record_event(self, seen: PodSeen, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        ref = PodRef(namespace=seen.namespace, name=seen.name, uid=seen.uid)
        task = asyncio.ensure_future(self._events.record(ref, kind=kind, reason=reason, message=message))
        self._event_tasks.add(task)
        task.add_done_callback(self._event_tasks.discard)


# Refusals that a change of the node can make obsolete.
_DECIDED_AGAIN: Final = frozenset(
    {ResizeReason.NO_ROOM, ResizeReason.CARD_UNHEALTHY, ResizeReason.CARD_UNKNOWN, ResizeReason.LIMIT_FIXED}
)
_SENTENCES: Final[Mapping[ResizeReason, str]] = {
    ResizeReason.OFF: "resizing is off; it needs the admission policy of the chart, which needs Kubernetes 1.30 or newer",
    ResizeReason.UNREADABLE: "it must be a whole number above 0, such as 8, in the unit of {resource}",
    ResizeReason.NOT_ONE_SLICE: "only a pod of which one container requests one slice of one card can be resized",
    ResizeReason.CARD_UNKNOWN: "the pod's card is not known, or node {node} no longer has it",
    ResizeReason.LIMIT_FIXED: "on node {node} the limit of a running container cannot be changed; "
    "that needs an agent with --resize, delivery through NRI, and a limit that the kernel or the vendor's driver holds",
    ResizeReason.LARGER_THAN_CARD: "the pod's card has {units} of {resource} in all",
    ResizeReason.BELOW_MINIMUM: "a container needs at least {units} of {resource} on this card",
    ResizeReason.CARD_UNHEALTHY: "the pod's card is not healthy, so its slice cannot grow",
    ResizeReason.NO_ROOM: "the card has room for {units} of {resource} at most for this pod; it is tried again when more is free",
    ResizeReason.QUOTA: "ResourceQuota {problem} limits what pods of this namespace request of {resource}, and it does not count "
    "what a slice has beyond its request; here the pod can have {units} at most",
    ResizeReason.NOT_WRITTEN: "the grant could not be written: {problem}",
}


def _is_on(card: Card, seen: PodSeen) -> bool:
    return any(
        slice_.kind == card.kind and (slice_.id == card.id if slice_.id and card.id else slice_.index == card.index)
        for slice_ in seen.slices
    )


def _is_certain(error: KubeError) -> bool:
    """Whether the request was certainly not carried out, and will not be."""
    if isinstance(error, Unreachable):
        return False
    return isinstance(error, ApiError) and 400 <= error.status < 500 and not isinstance(error, TooManyRequests)
