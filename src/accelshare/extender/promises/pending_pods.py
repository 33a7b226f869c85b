"""The pods that wait for kube-scheduler, in its order: the highest priority first, then the one that came first.

Belongs here: this order. Never: which pods belong into it (plan.py).

kube-scheduler orders pods by the time at which its watch has shown them. Our watch shows them in the same order, which can differ
from that of their creation times: these are whole seconds, and older than the write.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from typing import TypeAlias

from accelshare.wire.scheduling import SchedulingPod

Key: TypeAlias = tuple[int, bool, str, int, str]


class PendingPods:
    """Those that can be promised a node, and the places of those that have been."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[Key, SchedulingPod]] = {}
        self._order: list[Key] = []
        self._promised: dict[str, Key] = {}
        self._promised_order: list[Key] = []
        self._places: dict[str, Key] = {}  # of every pod that was put here, until it is forgotten
        self._arrivals = 0

    def __len__(self) -> int:
        """How many can be promised a node."""
        return len(self._pods)

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    def put(self, pod: SchedulingPod, *, listed: bool = False) -> None:
        """Add a pod, or replace what is known of it. One that was here before gets its place again.

        `listed`: it was there before our watch began; then its creation time tells its place.
        """
        known = self._pods.get(pod.uid)
        if known is not None:
            self._pods[pod.uid] = known[0], pod
            return
        self.remove(pod.uid)
        key = self._places.get(pod.uid)
        if key is None:
            self._arrivals += 1
            key = (-pod.priority, not listed, pod.created if listed else "", self._arrivals, pod.uid)
            self._places[pod.uid] = key
        self._pods[pod.uid] = key, pod
        insort(self._order, key)

    def forget(self, uid: str) -> None:
        """The pod waits no longer."""
        self.remove(uid)
        self._places.pop(uid, None)

    def remove(self, uid: str) -> None:
        """The pod cannot be promised a node now."""
        if (known := self._pods.pop(uid, None)) is not None:
            del self._order[bisect_left(self._order, known[0])]
        if (key := self._promised.pop(uid, None)) is not None:
            del self._promised_order[bisect_left(self._promised_order, key)]

    def keep_place(self, uid: str) -> None:
        """The pod was promised a node. It stays in the queue until it is removed, but cannot be promised another."""
        key, _ = self._pods[uid]
        self.remove(uid)
        self._promised[uid] = key
        insort(self._promised_order, key)

    def first(self, count: int) -> list[str]:
        """The uids of the first ones, whether they were promised a node or not."""
        return [key[-1] for key in sorted(self._order[:count] + self._promised_order[:count])[:count]]

    def after(self, count: int) -> Iterator[SchedulingPod]:
        """The pods that can be promised a node and have at least so many pods before them, in order."""

        def too_near(place: int) -> bool:
            return place + bisect_left(self._promised_order, self._order[place]) < count

        start = bisect_left(range(len(self._order)), True, key=lambda place: not too_near(place))
        return (self._pods[key[-1]][1] for key in islice(self._order, start, None))
