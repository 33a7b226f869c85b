"""The pods of this node that wait for cards, and which pod a kubelet request is for.

Belongs here: what each pod holds, by kubelet's PodResources and by our own allocations, and naming the pod of an anonymous
request. Never: which ids or cards it gets (allocator.py).

A request names no pod. But kubelet lists a pod in PodResources just before it asks for its devices, and admits one pod at a time:
the listed pod that lacks something is the one. Without PodResources, the order of the watch decides.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from accelshare.agent.changes import Changes
from accelshare.agent.container_cards import recorded_cards
from accelshare.agent.device_plugin.matching import Match, RequestMatcher
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.pod_store import PodStore
from accelshare.wire.node_pods import NodePod, Want

ARRIVAL_S: Final = 5.0  # how long a request may wait for its pod to arrive on our watch

# What one pod holds: for each container and (kind, whole), its ids.
Holding: TypeAlias = Mapping[str, Mapping[tuple[str, bool], Collection[str]]]


class NoWaitingPodError(Exception):
    """A request fits no waiting pod; the message names the waiting ones."""


async def _is_never_behind() -> bool:
    return False


class PodQueue:
    def __init__(
        self,
        devices: DeviceInventory,
        pods: PodStore,
        *,
        is_behind: Callable[[], Awaitable[bool]] = _is_never_behind,
        arrival_s: float = ARRIVAL_S,
    ) -> None:
        """`is_behind`: whether the API server has a pod of this node that the watch has not shown yet."""
        self.pods = pods
        self.kubelet_reports = True  # kubelet has PodResources
        self.allocated = Changes()  # a container got ids, or kubelet restarted and may have lost some
        self.holdings_changed = Changes()  # PodResources was read
        self._devices = devices
        self._is_behind = is_behind
        self._arrival_s = arrival_s
        self._matcher = RequestMatcher()
        self._arrived = asyncio.Event()
        self._allocated: dict[str, dict[str, dict[tuple[str, bool], set[str]]]] = {}  # uid → allocated since the last reading
        self._reported: dict[str, Holding] = {}  # pod name → what kubelet reported
        self._complete: set[str] = set()  # pods that got everything; kubelet may not have reported it yet
        pods.subscribe(seen=self._pod_seen, gone=self._pod_gone)

    def set_holdings(self, holdings: Mapping[str, Holding]) -> None:
        """What all pods hold now, by pod name, as kubelet reports it. It replaces our own notes of what we allocated."""
        self.kubelet_reports = True
        self._reported = dict(holdings)
        for uid in list(self._allocated):
            if uid not in self.pods or holdings.get(self.pods[uid].name):
                del self._allocated[uid]
        for pod in self.pods.values():
            self._add_or_remove(pod)
        self.holdings_changed.announce()

    def set_holdings_unavailable(self) -> None:
        """kubelet has no PodResources. Then, as in the original systems, our own allocations and the record's flag count."""
        self.kubelet_reports = False
        for pod in self.pods.values():
            if self._is_served(pod):
                self._matcher.remove(pod.uid)
        self.holdings_changed.announce()

    def kubelet_restarted(self) -> None:
        """A kubelet that starts admits the pods that it finds by age; its order within one second is unknown.

        It may have lost our last allocations: those pods wait again until the new kubelet's PodResources is read.
        """
        self._complete.difference_update(self._allocated)
        for uid in self._allocated if self.kubelet_reports else ():
            self._matcher.remove(uid)
        by_age = sorted(self.pods.values(), key=lambda pod: pod.seen.created)
        for pod in by_age:
            self._add_or_remove(pod)
        self._matcher.reorder(pod.uid for pod in by_age)
        self.allocated.announce()

    def served(self, match: Match, ids: Iterable[str]) -> None:
        """The match got what it requested, by these ids if they name cards."""
        self._matcher.serve(match)
        if match.uid not in self._matcher:
            self._complete.add(match.uid)
        kind, whole, _ = match.want
        containers = self._allocated.setdefault(match.uid, {})
        containers.setdefault(match.container, {}).setdefault((kind, whole), set()).update(ids)
        self.allocated.announce()

    @property
    def waiting(self) -> int:
        return len(self._matcher)

    def waiting_pods(self) -> Iterator[NodePod]:
        for uid, _, _ in self._matcher.waiting():
            yield self.pods[uid]

    def holding(self, pod: NodePod) -> Holding:
        """What its containers hold: as kubelet reports it, or as we allocated if kubelet has no PodResources."""
        return self._reported.get(pod.name, {}) if self.kubelet_reports else self._allocated.get(pod.uid, {})

    def ids_of(self, pod: NodePod, kind: str, *, whole: bool) -> set[str]:
        """The ids that the pod's containers have so far."""
        containers = [*self._allocated.get(pod.uid, {}).values(), *self._reported.get(pod.name, {}).values()]
        return {i for container in containers for i in container.get((kind, whole), ())}

    def all_ids(self, kind: str, *, whole: bool) -> Iterator[str]:
        """The ids that any pod has, also pods that the store does not have."""
        for holding in (*self._reported.values(), *self._allocated.values()):
            for container in holding.values():
                yield from container.get((kind, whole), ())

    async def match(self, want: Want, *, holdings: Mapping[str, Holding] | None = None, cards: Collection[int] = ()) -> Match:
        """The pod that a request is for: by the cards that kubelet chose without asking for a preference, by PodResources, or by
        order.

        The pod may not have arrived yet: kubelet has its own watch, which may be a moment earlier.
        """
        deadline = asyncio.get_running_loop().time() + self._arrival_s
        while (
            match := self._matcher.match(want, self._recorded_on(want, cards))
            or self._matcher.match(want, self._lacking(holdings))
        ) is None:
            self._arrived.clear()
            left_s = deadline - asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(max(left_s, 0.001)):
                    await self._arrived.wait()
            except TimeoutError:
                if await self._is_behind():
                    # kubelet asks for a pod that we have not seen. An error would make that pod fail for good.
                    deadline = asyncio.get_running_loop().time() + self._arrival_s
                    continue
                if (match := self._lost(want, holdings)) is None:
                    raise NoWaitingPodError(self._waiting_text(want)) from None
                break
        return match

    def _pod_seen(self, pod: NodePod) -> None:
        """Pods wait in the order in which the watch shows them."""
        self._add_or_remove(pod)
        if pod.seen.ended:
            self._allocated.pop(pod.uid, None)

    def _pod_gone(self, gone: NodePod) -> None:
        self._allocated.pop(gone.uid, None)
        self._complete.discard(gone.uid)
        self._matcher.remove(gone.uid)
        # What kubelet reported under this name was of this pod. A list shows a namesake before it shows which pods are gone.
        self._reported.pop(gone.name, None)
        for namesake in [pod for pod in self.pods.values() if pod.name == gone.name]:
            self._add_or_remove(namesake)

    def _lacking(self, holdings: Mapping[str, Holding] | None) -> set[str] | None:
        """The pods that kubelet lists without all they request. The waiting one among them is the pod in admission.

        An old kubelet also lists pods that it has just rejected. Kubelet never shows devices of a pod whose init containers alone
        have cards, or of one that was served through NRI.
        """
        if holdings is None:
            return None
        known = (pod for pod in self.pods.values() if pod.parts and not pod.terminating and pod.name in holdings)
        return {pod.uid for pod in known if not holds_all(pod, holdings[pod.name])}

    def _lost(self, want: Want, holdings: Mapping[str, Holding] | None) -> Match | None:
        """A pod that was served and is requested again, if no other pod fits: kubelet has lost its ids."""
        others = [uid for uid in self._lacking(holdings) or () if uid not in self._matcher]
        for uid in others:
            self._matcher.add(uid, self.pods[uid].parts)
        match = self._matcher.match(want, others)
        for uid in others:
            if match is None or uid != match.uid:
                self._matcher.remove(uid)
        return match

    def _recorded_on(self, want: Want, cards: Collection[int]) -> set[str]:
        """The waiting pods whose record names exactly these cards: kubelet asks for no preference about its last free ids."""
        kind, whole, _ = want
        waiting = self.waiting_pods() if cards else ()
        return {pod.uid for pod in waiting if set(recorded_cards(pod, self._devices.kinds[kind], whole=whole)) == set(cards)}

    def _waiting_text(self, want: Want) -> str:
        kind, whole, amount = want
        what = f"{amount} {'whole cards' if whole else 'units'} of {kind}"
        waiting = [f"{self.pods[uid].name}/{name} requests {_amounts(wants)}" for uid, name, wants in self._matcher.waiting()]
        return f"no pod on this node waits for {what}; waiting pods: {'; '.join(waiting[:10]) or 'none'}"

    def _add_or_remove(self, pod: NodePod) -> None:
        if pod.terminating or pod.phase not in ("", "Pending") or self._is_served(pod):
            self._matcher.remove(pod.uid)
        else:
            self._matcher.add(pod.uid, pod.parts)
            self._arrived.set()

    def _is_served(self, pod: NodePod) -> bool:
        if not pod.parts:
            return False
        flagged = not self.kubelet_reports and self._flagged_assigned(pod)
        return holds_all(pod, self.holding(pod)) or pod.uid in self._complete or flagged

    def _flagged_assigned(self, pod: NodePod) -> bool:
        """Whether its record has the flag that its cards are assigned."""
        vendors = [self._devices.kinds.get(ask.kind) for ask in pod.seen.request if not ask.whole]
        keys = [vendor.profile.annotations.assigned for vendor in vendors if vendor is not None]
        return any(keys) and all(pod.annotations.get(key) == "true" for key in keys if key is not None)


def holds_all(pod: NodePod, holding: Holding) -> bool:
    """Whether the pod has everything: kubelet allocates its containers in order, so its last container decides."""
    if not pod.parts:
        return False
    last = pod.parts[-1]
    return all((kind, whole) in holding.get(last.container, {}) for kind, whole, _ in last.wants)


def _amounts(wants: Iterable[Want]) -> str:
    return " and ".join(f"{amount} {'whole ' if whole else ''}{kind}" for kind, whole, amount in wants)
