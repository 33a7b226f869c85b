"""The pods that wait for kube-scheduler, in its order: the highest priority first, then the oldest.

Belongs here: this order. Never: which pods belong into it (plan.py).
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from typing import TypeAlias

from accelshare.wire.scheduling import SchedulingPod

Key: TypeAlias = tuple[int, str, int, str]


class PendingPods:
    """Those that can be promised a node, and the places of those that have been."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[Key, SchedulingPod]] = {}
        self._order: list[Key] = []
        self._promised: dict[str, Key] = {}
        self._promised_order: list[Key] = []
        self._arrivals = 0

    def __len__(self) -> int:
        """How many can be promised a node."""
        return len(self._pods)

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    def put(self, pod: SchedulingPod) -> None:
        """Add a pod, or replace what is known of it. Pods created in the same second stay in the order of their arrival."""
        known = self._pods.get(pod.uid)
        if known is not None and known[0][:2] == (-pod.priority, pod.created):
            self._pods[pod.uid] = known[0], pod
            return
        self.remove(pod.uid)
        self._arrivals += 1
        key = (-pod.priority, pod.created, self._arrivals, pod.uid)
        self._pods[pod.uid] = key, pod
        insort(self._order, key)

    def remove(self, uid: str) -> None:
        """The pod cannot be promised a node, or waits no longer."""
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

    def taken_after(self, wait_s: float, *, pod_s: float, promised_s: float, fewest: int = 0) -> Iterator[SchedulingPod]:
        """The pods that can be promised a node and that kube-scheduler takes after `wait_s` or later, in order.

        Before it takes a pod, it spends `promised_s` on each earlier pod that was promised a node and `pod_s` on each other one.
        At least `fewest` pods are earlier than those returned.
        """

        def too_near(place: int) -> bool:
            promised = bisect_left(self._promised_order, self._order[place])
            return place + promised < fewest or place * pod_s + promised * promised_s < wait_s

        start = bisect_left(range(len(self._order)), True, key=lambda place: not too_near(place))
        return (self._pods[key[3]][1] for key in islice(self._order, start, None))
