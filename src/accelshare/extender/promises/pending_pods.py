"""The pods that wait for kube-scheduler, in its order: the highest priority first, then the one that came first.

Belongs here: this order, for each scheduler of its own. Never: which pods belong into it (plan.py).

kube-scheduler orders pods by the time at which its watch has shown them. Our watch shows them in the same order, which can differ
from that of their creation times: these are whole seconds, and older than the write. A list shows them in no order; then their
creation times tell it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from accelshare.wire.scheduling import SchedulingPod


class Place(NamedTuple):
    """Of a pod in its scheduler's queue. The smallest is taken first."""

    less_priority: int
    batch: int  # each list is one, and what the watch shows between two lists
    created: str  # in a list only
    arrival: int
    uid: str


class _Queue:
    """The pods of one scheduler."""

    def __init__(self) -> None:
        self.order: list[Place] = []  # those that can be promised a node
        self.promised: list[Place] = []  # those that have been


class PendingPods:
    """Those that can be promised a node, and the places of those that have been."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}  # by scheduler
        self._pods: dict[str, SchedulingPod] = {}
        self._promised: dict[str, str] = {}  # uid → scheduler
        self._places: dict[str, Place] = {}  # of every pod that was put here, until it is forgotten
        self._arrivals = 0
        self._batch = 0
        self._in_list = True

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    def count(self, scheduler: str) -> int:
        """How many of its pods can be promised a node."""
        queue = self._queues.get(scheduler)
        return len(queue.order) if queue is not None else 0

    def place(self, uid: str) -> Place:
        return self._places[uid]

    def arrived(self, pod: SchedulingPod, *, listed: bool = False) -> None:
        """Give the pod its place, until it is forgotten: kube-scheduler does, also if the pod is gated.

        `listed`: a list has shown it, so that it may have come before others that were shown earlier.
        """
        if listed != self._in_list:
            self._in_list = listed
            self._batch += 1
        if pod.uid not in self._places:
            self._arrivals += 1
            self._places[pod.uid] = Place(-pod.priority, self._batch, pod.created if listed else "", self._arrivals, pod.uid)

    def put(self, pod: SchedulingPod, *, listed: bool = False) -> None:
        """Add a pod, or replace what is known of it. One that was here before gets its place again."""
        self.arrived(pod, listed=listed)
        if pod.uid in self._pods:
            self._pods[pod.uid] = pod
            return
        self.remove(pod.uid)
        place = self._places[pod.uid]
        self._pods[pod.uid] = pod
        insort(self._queues.setdefault(pod.scheduler, _Queue()).order, place)

    def forget(self, uid: str) -> None:
        """The pod waits no longer."""
        self.remove(uid)
        self._places.pop(uid, None)

    def remove(self, uid: str) -> None:
        """The pod cannot be promised a node now."""
        if (pod := self._pods.pop(uid, None)) is not None:
            self._take_out(pod.scheduler, uid, promised=False)
        if (scheduler := self._promised.pop(uid, None)) is not None:
            self._take_out(scheduler, uid, promised=True)

    def _take_out(self, scheduler: str, uid: str, *, promised: bool) -> None:
        queue = self._queues[scheduler]
        places = queue.promised if promised else queue.order
        del places[bisect_left(places, self._places[uid])]
        if not queue.order and not queue.promised:
            del self._queues[scheduler]

    def keep_place(self, uid: str) -> None:
        """The pod was promised a node. It stays in the queue until it is removed, but cannot be promised another."""
        scheduler = self._promised[uid] = self._pods[uid].scheduler
        insort(self._queues[scheduler].promised, self._places[uid])
        del self._pods[uid]
        self._take_out(scheduler, uid, promised=False)

    def first(self, scheduler: str, count: int) -> list[str]:
        """The uids of the first pods of a scheduler, whether they were promised a node or not."""
        queue = self._queues.get(scheduler)
        return [place.uid for place in sorted(queue.order[:count] + queue.promised[:count])[:count]] if queue is not None else []

    def after(self, scheduler: str, count: int) -> Iterator[SchedulingPod]:
        """The pods of a scheduler that can be promised a node and have at least so many pods before them, in order."""
        queue = self._queues.get(scheduler)
        if queue is None:
            return iter(())
        order, promised = queue.order, queue.promised

        def too_near(number: int) -> bool:
            return number + bisect_left(promised, order[number]) < count

        start = bisect_left(range(len(order)), True, key=lambda number: not too_near(number))
        return (self._pods[place.uid] for place in islice(order, start, None))
