"""The pods of this node, who of them waits for cards, and for whom a question of kubelet's is.

Belongs here: what is known of pods from our watch, from kubelet's books and from what we gave; naming the pod of an anonymous
request. Never: which ids or cards it gets (desk.py).

A question names no pod, but kubelet takes a pod into its books just before it asks for it, and admits one pod at a time: whoever
is in the books and lacks something is the one. A kubelet that shows nobody its books is taken at the order of its watch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from accelshare.agent.container_cards import recorded_cards
from accelshare.agent.device_plugin.matching import Match, Queue
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.wire.node_pods import NodePod, Want

ARRIVAL_S: Final = 5.0  # how long a request may wait for its pod to arrive on our watch

# What kubelet says of one pod: for each container and (kind, whole), the ids it holds.
Holding: TypeAlias = Mapping[str, Mapping[tuple[str, bool], Collection[str]]]


class NobodyWaitsError(Exception):
    """A request that fits no waiting pod; the message names those that wait."""


class PodQueue:
    def __init__(self, devices: DeviceInventory, *, arrival_s: float = ARRIVAL_S) -> None:
        self._devices = devices
        self._arrival_s = arrival_s
        self._queue = Queue()
        self._arrived = asyncio.Event()
        self._given: dict[str, dict[str, dict[tuple[str, bool], set[str]]]] = {}  # uid → what was given since kubelet last told
        self._held: dict[str, Holding] = {}  # pod name → what kubelet told
        self._done: set[str] = set()  # pods that have been given all they ask; kubelet may not have told yet
        self.kubelet_tells = True
        self.pods: dict[str, NodePod] = {}
        self.is_behind: Callable[[], Awaitable[bool]] = _never  # may a pod be bound here that has not been seen yet?
        self.changed: Callable[[], None] = lambda: None  # called when something was given, or may have been lost
        self.gone: Callable[[str], None] = lambda _uid: None

    # What is heard.

    def pod_seen(self, pod: NodePod) -> None:
        """A pod of this node, as the watch brings it. Pods wait in the order in which they come here."""
        before = self.pods.get(pod.uid)
        if before is not None and before.by_hand != pod.by_hand:
            pod = replace(pod, by_hand=before.by_hand)  # what was seen first is right
        self.pods[pod.uid] = pod
        self._wait_or_leave(pod)
        if pod.seen.ended:
            self._given.pop(pod.uid, None)

    def pod_gone(self, uid: str) -> None:
        gone = self.pods.pop(uid, None)
        self._given.pop(uid, None)
        self._done.discard(uid)
        self._queue.leave(uid)
        if gone is not None:
            # What kubelet told under this name was its. A new list brings a namesake before it says who is gone.
            self._held.pop(gone.name, None)
            for namesake in [pod for pod in self.pods.values() if pod.name == gone.name]:
                self._wait_or_leave(namesake)
        self.gone(uid)

    def kubelet_says(self, held: Mapping[str, Holding]) -> None:
        """Everything kubelet holds now, by pod name. What we gave and kubelet confirms is kubelet's to tell from now on."""
        self.kubelet_tells = True
        self._held = dict(held)
        for uid in list(self._given):
            if uid not in self.pods or held.get(self.pods[uid].name):
                del self._given[uid]
        for pod in self.pods.values():
            self._wait_or_leave(pod)

    def kubelet_is_mute(self) -> None:
        """It has no way to tell. Then, as in the originals, what we gave is held, and a record that says assigned is right."""
        self.kubelet_tells = False
        for pod in self.pods.values():
            if self._is_served(pod):
                self._queue.leave(pod.uid)

    def kubelet_began(self) -> None:
        """A kubelet that starts takes the pods that it finds by age; within a second of creation nobody knows its order.

        What we gave in the old one's last moments it may not have kept: such pods wait again, until the new one's books are read.
        """
        self._done.difference_update(self._given)
        for uid in self._given if self.kubelet_tells else ():
            self._queue.leave(uid)
        by_age = sorted(self.pods.values(), key=lambda pod: pod.seen.created)
        for pod in by_age:
            self._wait_or_leave(pod)
        self._queue.reorder(pod.uid for pod in by_age)
        self.changed()

    def served(self, match: Match, ids: Iterable[str]) -> None:
        """The match has been given what it asked, by these ids if they name cards."""
        self._queue.serve(match)
        if match.uid not in self._queue:
            self._done.add(match.uid)
        kind, whole, _ = match.want
        containers = self._given.setdefault(match.uid, {})
        containers.setdefault(match.container, {}).setdefault((kind, whole), set()).update(ids)
        self.changed()

    # What is known.

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def waiting_pods(self) -> Iterator[NodePod]:
        for uid, _, _ in self._queue.waiting():
            yield self.pods[uid]

    def holding(self, pod: NodePod) -> Holding:
        """What its containers hold: as kubelet says, or as we gave if it says nothing."""
        return self._held.get(pod.name, {}) if self.kubelet_tells else self._given.get(pod.uid, {})

    def ids_of(self, pod: NodePod, kind: str, *, whole: bool) -> set[str]:
        """The ids that its containers have so far."""
        containers = [*self._given.get(pod.uid, {}).values(), *self._held.get(pod.name, {}).values()]
        return {i for container in containers for i in container.get((kind, whole), ())}

    def all_ids(self, kind: str, *, whole: bool) -> Iterator[str]:
        """The ids that anybody has, a pod that we do not know too."""
        for holding in (*self._held.values(), *self._given.values()):
            for container in holding.values():
                yield from container.get((kind, whole), ())

    async def match(self, want: Want, *, books: Mapping[str, Holding] | None = None, cards: Collection[int] = ()) -> Match:
        """For whom a request is: by kubelet's books, or by the cards that kubelet has chosen unasked, or by the order.

        The pod may be on its way to us: kubelet has the same news on a watch of its own, perhaps a moment earlier.
        """
        deadline = asyncio.get_running_loop().time() + self._arrival_s
        while (
            match := self._queue.match(want, self._promised(want, cards)) or self._queue.match(want, self._lacking(books))
        ) is None:
            self._arrived.clear()
            left_s = deadline - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(self._arrived.wait(), max(left_s, 0.001))
            except TimeoutError:
                if await self.is_behind():
                    # kubelet asks for a pod that it knows and we do not. Failing would end that pod for good.
                    deadline = asyncio.get_running_loop().time() + self._arrival_s
                    continue
                if (match := self._lost(want, books)) is None:
                    raise NobodyWaitsError(self._nobody(want)) from None
                break
        return match

    # How.

    def _lacking(self, books: Mapping[str, Holding] | None) -> set[str] | None:
        """The pods that are in kubelet's books without all they ask; of those that wait one, the one that it admits.

        An old kubelet also lists those that it has just rejected. Of others the books never show anything: of a pod whose cards
        are its init containers' only, and of one that was served by the runtime.
        """
        if books is None:
            return None
        known = (pod for pod in self.pods.values() if pod.parts and not pod.terminating and pod.name in books)
        return {pod.uid for pod in known if not holds_all(pod, books[pod.name])}

    def _lost(self, want: Want, books: Mapping[str, Holding] | None) -> Match | None:
        """Who had been served and is asked for once more, when nobody else comes: kubelet has lost what it had."""
        others = [uid for uid in self._lacking(books) or () if uid not in self._queue]
        for uid in others:
            self._queue.arrive(uid, self.pods[uid].parts)
        match = self._queue.match(want, others)
        for uid in others:
            if match is None or uid != match.uid:
                self._queue.leave(uid)
        return match

    def _promised(self, want: Want, cards: Collection[int]) -> set[str]:
        """Who waits and has just these cards in its record: kubelet asks no question about the last ids that it has."""
        kind, whole, _ = want
        waiting = self.waiting_pods() if cards else ()
        return {pod.uid for pod in waiting if set(recorded_cards(pod, self._devices.kinds[kind], whole=whole)) == set(cards)}

    def _nobody(self, want: Want) -> str:
        kind, whole, amount = want
        what = f"{amount} {'whole cards' if whole else 'units'} of {kind}"
        waiting = [f"{self.pods[uid].name}/{container} asks {_words(wants)}" for uid, container, wants in self._queue.waiting()]
        return f"no pod on this node waits for {what}; waiting are: {'; '.join(waiting[:10]) or 'none'}"

    def _wait_or_leave(self, pod: NodePod) -> None:
        if pod.terminating or pod.phase not in ("", "Pending") or self._is_served(pod):
            self._queue.leave(pod.uid)
        else:
            self._queue.arrive(pod.uid, pod.parts)
            self._arrived.set()

    def _is_served(self, pod: NodePod) -> bool:
        if not pod.parts:
            return False
        return holds_all(pod, self.holding(pod)) or pod.uid in self._done or (not self.kubelet_tells and self._marked(pod))

    def _marked(self, pod: NodePod) -> bool:
        """Does its record say that it has been assigned?"""
        kinds = [self._devices.kinds.get(ask.kind) for ask in pod.seen.request if not ask.whole]
        keys = [here.profile.annotations.assigned for here in kinds if here is not None]
        return any(keys) and all(pod.annotations.get(key) == "true" for key in keys if key is not None)


async def _never() -> bool:
    return False


def holds_all(pod: NodePod, holding: Holding) -> bool:
    """kubelet admits a pod's containers in one go, so one that holds what its last container asks has been served."""
    if not pod.parts:
        return False
    last = pod.parts[-1]
    return all((kind, whole) in holding.get(last.container, {}) for kind, whole, _ in last.wants)


def _words(wants: Iterable[Want]) -> str:
    return " and ".join(f"{amount} {'whole ' if whole else ''}{kind}" for kind, whole, amount in wants)
