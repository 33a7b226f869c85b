"""The pods bound to this node, as the watch last showed them. Every thread may read it; the agent's main loop alone writes.

Belongs here: storing pods and notifying subscribers. Never: what follows from a pod.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from accelshare.agent.amounts import AmountsInForce
from accelshare.wire.node_pods import NodePod


class PodStore(Mapping[str, NodePod]):
    """Pods by uid. A change replaces the whole dict, so that a snapshot never changes after it was taken."""

    def __init__(self, amounts: AmountsInForce | None = None) -> None:
        """`amounts`: those that pods have after a resize."""
        self._amounts = amounts or AmountsInForce()
        self._lock = threading.Lock()
        self._pods: dict[str, NodePod] = {}
        self._on_seen: list[Callable[[NodePod], None]] = []
        self._on_gone: list[Callable[[NodePod], None]] = []

    def subscribe(
        self, *, seen: Callable[[NodePod], None] = lambda _pod: None, gone: Callable[[NodePod], None] = lambda _pod: None
    ) -> None:
        """Call `seen` for every pod that is stored or changed, `gone` for every pod that is removed."""
        self._on_seen.append(seen)
        self._on_gone.append(gone)

    def snapshot(self) -> Mapping[str, NodePod]:
        """All pods at this moment, for a reader that works on several of them or runs on another thread."""
        with self._lock:
            return self._pods

    def put(self, pod: NodePod) -> None:
        before = self.snapshot().get(pod.uid)
        if before is not None and before.by_hand != pod.by_hand:
            pod = replace(pod, by_hand=before.by_hand)  # only the first version shows how the pod was placed
        pod = self._amounts.of(pod)
        with self._lock:
            self._pods = {**self._pods, pod.uid: pod}
        for seen in self._on_seen:
            seen(pod)

    def remove(self, uid: str) -> None:
        with self._lock:
            removed = self._pods.get(uid)
            self._pods = {other: pod for other, pod in self._pods.items() if other != uid}
        if removed is not None:
            for gone in self._on_gone:
                gone(removed)

    def __getitem__(self, uid: str) -> NodePod:
        return self.snapshot()[uid]

    def __iter__(self) -> Iterator[str]:
        return iter(self.snapshot())

    def __len__(self) -> int:
        return len(self.snapshot())
