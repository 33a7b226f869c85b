"""The pods that wait for kube-scheduler, in its order: the highest priority first, then the oldest.

Belongs here: this order. Never: which pods belong into it (plan.py).
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice

from accelshare.wire.scheduling import SchedulingPod


class PendingPods:
    def __init__(self) -> None:
        self._pods: dict[str, tuple[tuple[int, str, int, str], SchedulingPod]] = {}
        self._order: list[tuple[int, str, int, str]] = []
        self._arrivals = 0

    def __len__(self) -> int:
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

    def remove(self, uid: str) -> SchedulingPod | None:
        known = self._pods.pop(uid, None)
        if known is None:
            return None
        del self._order[bisect_left(self._order, known[0])]
        return known[1]

    def first(self, skip: int = 0) -> Iterator[SchedulingPod]:
        """In order, without as many of the first."""
        return (self._pods[key[3]][1] for key in islice(self._order, skip, None))
