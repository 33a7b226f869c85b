"""Keeps each pod's record as it was first seen, and restores it when a user or another program changes it.

Belongs here: the cards of each pod by uid, the annotations that record them, and undoing a rewrite: the Node's annotation gets
the right cards, the pod's keys are restored, an Event and a metric report it. Never: which card a pod gets.

The bind writes node and record in one request, so the first version on this node's watch is the extender's own. After that only
this agent changes a record (`correct`). An agent that starts trusts first the Node's corrections of earlier agents, then the
cards that containers hold (`check`), and only then the pod's own annotations.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from accelshare.agent.metrics import AgentMetrics
from accelshare.agent.retries import BACKOFF, Retries
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, KubeError, NotFound
from accelshare.kube.events import Events, PodRef
from accelshare.kube.patches import annotate_node, annotate_pod
from accelshare.ledger.nouns import Slice, placed_as
from accelshare.vendors.catalog import Catalog
from accelshare.wire import assignment
from accelshare.wire.node_pods import NodePod

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Pin:
    pod: NodePod  # as last seen, with the right cards
    keys: dict[str, str]  # the record as it must be on the pod
    former: dict[str, str] | None = None  # the record before our own correction, until the watch shows the correction


class PinnedRecords:
    def __init__(self, client: Client, node: str, catalog: Catalog, events: Events, metrics: AgentMetrics) -> None:
        self._client = client
        self._node = node
        self._profiles = {profile.name: profile for profile in catalog}
        self._record_keys = assignment.record_keys(catalog)
        self._events = events
        self._metrics = metrics
        self._pins: dict[str, _Pin] = {}
        self._corrected: dict[str, str] = {}  # uid → record, as the Node's annotation must have it
        self._published: str | None = None
        self._unrestored: set[str] = set()  # uids of pods whose keys must be written
        self._retries = Retries()  # each write on a pod delays the next one, so that a user cannot cause endless writes
        self._rewrites: dict[str, str] = {}  # uid → what was written instead, to be reported
        self._wanted = asyncio.Event()

    @property
    def corrections(self) -> str | None:
        """The Node's annotation: the right cards of pods whose own record is wrong or was wrong; None: no annotation."""
        return assignment.write_corrections(self._corrected)

    def load(self, text: str) -> None:
        """Take over what an earlier agent wrote on the Node, before any pod is seen."""
        self._corrected = assignment.read_corrections(text)
        self._published = text or None

    def see(self, pod: NodePod) -> NodePod:
        """The pod with the cards that were first seen for it."""
        if not pod.seen.request:
            return pod  # it requests no card, so its annotations are its owner's
        pin = self._pins.get(pod.uid)
        now = self._keys_of(pod)
        if pin is None:
            pin = self._pins[pod.uid] = _Pin(self._first(pod), now)
            if pin.pod.seen.slices != pod.seen.slices:
                pin.keys = self._keys_for(pin.pod)
                self._rewritten(pod, pin, now)
            return pin.pod
        first = pin.pod.seen
        pin.pod = replace(pod, seen=replace(pod.seen, request=first.request, slices=first.slices, refusal=first.refusal))
        if now == pin.keys:
            pin.former = None
            self._rewrites.pop(pod.uid, None)
            self._unrestored.discard(pod.uid)
        elif now == pin.former:
            self._restore_soon(pod.uid)  # our own correction has not reached the pod yet
        else:
            self._rewritten(pod, pin, now)
        return pin.pod

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._pins.pop(uid, None)
        self._unrestored.discard(uid)
        self._retries.forget(uid)
        self._rewrites.pop(uid, None)
        if self._corrected.pop(uid, None) is not None:
            self._wanted.set()

    def forget_others(self) -> None:
        """All pods of the node have been seen: drop the corrections of all others."""
        for uid in self._corrected.keys() - self._pins.keys():
            self.forget(uid)

    async def correct(self, uid: str, slices: tuple[Slice, ...], annotations: Mapping[str, str]) -> None:
        """Record that the pod has these cards, on the Node first; the caller writes `annotations` on the pod afterwards.

        Raises KubeError if the Node could not be written; then the pod must not be written either.
        """
        pin = self._pins.get(uid)
        if pin is None:
            return
        self._corrected[uid] = assignment.text(slices)
        await self._publish()
        if pin.former is None:
            pin.former = self._keys_of(pin.pod)
        pin.pod = replace(pin.pod, seen=replace(pin.pod.seen, slices=slices))
        pin.keys = pin.keys | {key: value for key, value in annotations.items() if key in self._record_keys}

    def check(self, delivered: Iterable[tuple[str, tuple[Slice, ...]]]) -> list[NodePod]:
        """Compare with the cards that containers hold, by pod uid. A pin that differs came from a rewritten record; it is put
        right, and its pod returned.
        """
        corrected = []
        held: dict[str, set[Slice]] = {}
        for uid, slices in delivered:
            held.setdefault(uid, set()).update(slices)
        for uid, real in held.items():
            pin = self._pins.get(uid)
            if pin is not None and (right := _put_right(pin.pod, real)) is not None:
                pin.pod = replace(pin.pod, seen=replace(pin.pod.seen, slices=right))
                pin.former, pin.keys = None, self._keys_for(pin.pod)
                self._rewritten(pin.pod, pin, self._keys_of(pin.pod))
                corrected.append(pin.pod)
        return corrected

    async def run(self) -> None:
        """Write what has to be written, until cancelled. A pod that cannot be written delays no other."""
        while True:
            waiting = filter(self._differs, self._unrestored)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._retries.next_due_s(BACKOFF.longest_s, waiting)):
                    await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._publish()
            except KubeError as error:
                log.warning("record node=%s outcome=failed error=%r", self._node, str(error))
            for uid in list(self._unrestored):
                if self._retries.due(uid) and self._differs(uid):
                    await self._restore(uid)

    def _first(self, pod: NodePod) -> NodePod:
        """A pod that was not seen before, with the cards of the Node's correction if there is one."""
        text = self._corrected.get(pod.uid)
        if text is None:
            return pod
        slices, _ = assignment.read({assignment.OURS: text}, pod.seen.request, self._profiles)
        # No slices: an earlier agent knew no card of it, and what was written since is not the extender's.
        return replace(pod, seen=replace(pod.seen, request=placed_as(pod.seen.request, slices), slices=slices))

    def _keys_of(self, pod: NodePod) -> dict[str, str]:
        return {key: pod.annotations[key] for key in self._record_keys & pod.annotations.keys()}

    def _keys_for(self, pod: NodePod) -> dict[str, str]:
        """A record whose first text is lost, written again: our key and the vendors' index keys, which are what is read."""
        slices = pod.seen.slices
        keys = {assignment.OURS: assignment.text(slices)} if slices else {}
        for kind in {slice_.kind for slice_ in slices if not slice_.whole}:
            if (key := self._profiles[kind].annotations.index) is not None:
                keys[key] = ",".join(str(s.index) for s in slices if s.kind == kind and not s.whole)
        indexes = {profile.annotations.index for profile in self._profiles.values()}
        kept = {key: value for key, value in self._keys_of(pod).items() if key != assignment.OURS and key not in indexes}
        return kept | keys

    def _rewritten(self, pod: NodePod, pin: _Pin, now: Mapping[str, str]) -> None:
        """A user or another program has changed the record."""
        wrote = "; ".join(
            f"{key} is {now[key][:100]!r}" if key in now else f"{key} is removed"
            for key in sorted(self._record_keys & (now.keys() | pin.keys.keys()))
            if now.get(key) != pin.keys.get(key)
        )
        if self._rewrites.get(pod.uid) != wrote:
            self._rewrites[pod.uid] = wrote
            self._metrics.record_rewrites.inc()
        self._corrected[pod.uid] = assignment.text(pin.pod.seen.slices)
        self._restore_soon(pod.uid)

    def _restore_soon(self, uid: str) -> None:
        self._unrestored.add(uid)
        self._wanted.set()

    def _differs(self, uid: str) -> bool:
        pin = self._pins.get(uid)
        return pin is not None and self._keys_of(pin.pod) != pin.keys

    async def _publish(self) -> None:
        """Write the Node's annotation if it differs. InventoryPublisher writes it again on a new Node of the same name."""
        text = self.corrections
        if text != self._published:
            await annotate_node(self._client, self._node, {assignment.CORRECTED: text})
            self._published = text

    async def _restore(self, uid: str) -> None:
        pin = self._pins[uid]
        pod, now = pin.pod, self._keys_of(pin.pod)
        changes: dict[str, str | None] = {key: None for key in now if key not in pin.keys}
        changes |= {key: value for key, value in pin.keys.items() if now.get(key) != value}
        self._retries.postpone(uid)
        seen, cards = pod.seen, cards_text(pod.seen.slices)
        if uid in self._rewrites:  # reported once per restoration, so that a user who writes in a loop cannot fill the log
            log.warning("record pod=%s outcome=rewritten cards=%s what=%r", pod.name, cards, self._rewrites[uid])
            await self._events.record(
                PodRef(namespace=seen.namespace, name=seen.name, uid=uid),
                kind="Warning",
                reason="AcceleratorRecordRewritten",
                message=f"somebody changed the record of this pod's cards: {self._rewrites[uid]}. "
                f"The pod keeps {cards or 'no card'}; the record is restored",
            )
        try:
            await annotate_pod(self._client, namespace=seen.namespace, name=seen.name, uid=uid, annotations=changes)
        except (NotFound, Conflict):
            return
        except KubeError as error:
            if self._retries.is_new(uid, error):
                log.warning("record pod=%s outcome=not-restored error=%r", pod.name, str(error))


def _put_right(pod: NodePod, real: set[Slice]) -> tuple[Slice, ...] | None:
    """The pod's slices with the cards that its containers hold, or None if its record names all of them."""
    slices = list(pod.seen.slices)
    wrong = False
    for ask in pod.seen.request:
        of_ask = [s for s in slices if (s.kind, s.whole) == (ask.kind, ask.whole)]
        held = {s.id or s.index: s for s in real if (s.kind, s.whole) == (ask.kind, ask.whole)}
        if all(any(_same_card(one, other) for other in of_ask) for one in held.values()):
            continue
        wrong = True
        # What containers hold is certain; the rest of a rewritten record is not, and gives no container a card.
        slices = [s for s in slices if s not in of_ask]
        slices += [Slice(ask.kind, s.index, ask.share, ask.whole, s.id) for s in held.values()]
    return tuple(slices) if wrong else None


def _same_card(one: Slice, other: Slice) -> bool:
    """Compared by hardware id where both have one; records of the original systems have indexes only."""
    return one.id == other.id if one.id and other.id else one.index == other.index


def cards_text(slices: tuple[Slice, ...]) -> str:
    return ",".join(f"{slice_.kind}/{slice_.index}" for slice_ in slices)
