"""Where kubelet's anonymous requests are answered: for whom, which ids, and what the container gets.

Belongs here: putting together the queue of waiting pods (ledger/matching), the shelf, and the profile's container edits. Never:
gRPC (device_plugin/), the API server (reconcile.py).

What kubelet holds is the truth about cards; a pod's record says which card it should be. Ids of as many cards as the pod asks
for: those cards are its cards, whatever its record says. A kubelet that asks for no advice takes ids at random, and they name
nothing: then the record is the truth for all pods alike, or two truths could oversell a card.

A question names no pod, but kubelet takes a pod into its books just before it asks for it, and admits one pod at a time: whoever
is in the books and lacks something is the one. A kubelet that shows nobody its books is taken at the order of its watch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from accelshare.agent import choosing
from accelshare.agent.giving import given, recorded_cards
from accelshare.agent.ids import by_card, cards_of
from accelshare.agent.shelf import Kind, Shelf
from accelshare.ledger.matching import Match, Queue, Want
from accelshare.vendors.container_edits import ContainerEdits
from accelshare.wire.node_pods import NodePod

ARRIVAL_S: Final = 5.0  # how long a request may wait for its pod to arrive on our watch

# What kubelet says of one pod: for each container and (kind, whole), the ids it holds.
Holding: TypeAlias = Mapping[str, Mapping[tuple[str, bool], Collection[str]]]


class NobodyWaitsError(Exception):
    """A request that fits no waiting pod; the message names those that wait."""


class NoRoomError(Exception):
    """The pod is known, and its cards do not have what it asks; the message says what is missing."""


async def _no_books() -> Mapping[str, Holding] | None:
    return None


@dataclass(frozen=True, slots=True)
class _Advice:
    ids: frozenset[str]
    match: Match


class Desk:
    def __init__(
        self,
        shelf: Shelf,
        *,
        exists: Callable[[str], bool],
        node_labels: Callable[[], Mapping[str, str]] = dict,
        arrival_s: float = ARRIVAL_S,
    ) -> None:
        self._shelf = shelf
        self._exists = exists
        self._node_labels = node_labels
        self._arrival_s = arrival_s
        self._queue = Queue()
        self._arrived = asyncio.Event()
        self._advice: dict[tuple[str, bool], _Advice] = {}
        self._given: dict[str, dict[str, dict[tuple[str, bool], set[str]]]] = {}  # uid → what was given since kubelet last told
        self._held: dict[str, Holding] = {}  # pod name → what kubelet told
        self._kubelet_tells = True
        self._asks = False  # kubelet takes advice, so its ids name cards
        self._done: set[str] = set()  # pods that have been given all they ask; kubelet may not have told yet
        self.pods: dict[str, NodePod] = {}
        # Kinds of which somebody after us makes what a container has equal to its record: ids need not name the right card.
        self.by_record: frozenset[str] = frozenset()
        # kubelet's books as they are now, by pod name; None if it does not show them.
        self.books: Callable[[], Awaitable[Mapping[str, Holding] | None]] = _no_books
        self.served: Callable[[str], None] = lambda _uid: None
        self.changed: Callable[[], None] = lambda: None  # called when something was given, or a card changed its manner of use

    # Pods of this node.

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
        self.pods.pop(uid, None)
        self._given.pop(uid, None)
        self._done.discard(uid)
        self._queue.leave(uid)

    def kubelet_says(self, held: Mapping[str, Holding]) -> None:
        """Everything kubelet holds now, by pod name. What we gave and kubelet confirms is kubelet's to tell from now on."""
        self._kubelet_tells = True
        self._held = dict(held)
        for uid in [uid for uid, pod in self._items(self._given) if pod is None or held.get(pod.name)]:
            del self._given[uid]
        self._dismiss_served()

    def kubelet_is_mute(self) -> None:
        """It has no way to tell. Then, as in the originals, what we gave is held, and a record that says assigned is right."""
        self._kubelet_tells = False
        self._dismiss_served()

    def kubelet_began(self) -> None:
        """A kubelet that starts takes the pods that it finds by age; within a second of creation nobody knows its order.

        What we gave in the old one's last moments it may not have kept: such pods wait again, until the new one's books are read.
        """
        self._advice.clear()
        self._done.difference_update(self._given)
        for uid in self._given if self._kubelet_tells else ():
            self._queue.leave(uid)
        by_age = sorted(self.pods.values(), key=lambda pod: pod.seen.created)
        for pod in by_age:
            self._wait_or_leave(pod)
        self._queue.reorder(pod.uid for pod in by_age)
        self.changed()

    def holding(self, pod: NodePod) -> Holding:
        return self._held.get(pod.name, {}) if self._kubelet_tells else self._given.get(pod.uid, {})

    @property
    def waiting(self) -> int:
        return len(self._queue)

    # Requests.

    async def prefer(self, kind: str, *, whole: bool, available: Collection[str], must: Collection[str], size: int) -> list[str]:
        """The ids kubelet should take for whoever it is asking for."""
        self._asks = True
        match = await self._match((kind, whole, size), books=await self.books())
        pod = self.pods[match.uid]
        chosen = self._choose(pod, kind, whole=whole, available=available, must=must, size=size)
        if chosen is None:
            raise NoRoomError(f"pod {pod.name} asks {size} of {kind}, and no card has that many free: {_free(available)}")
        self._advice[kind, whole] = _Advice(frozenset(chosen), match)
        return chosen

    async def allocate(self, kind: str, *, whole: bool, device_ids: Collection[str]) -> ContainerEdits:
        """What the container gets that kubelet has taken these ids for."""
        advice = self._advice.pop((kind, whole), None)
        if advice is not None and advice.ids == set(device_ids):
            match = advice.match
        else:
            match = await self._match((kind, whole, len(device_ids)), cards=cards_of(device_ids) if self._asks else ())
        pod = self.pods[match.uid]
        here = self._shelf.kinds[kind]
        # Ids that the pod's init containers had come again without a question.
        named = device_ids if advice is not None or self._has(pod, kind, whole=whole).issuperset(device_ids) else ()
        cards = self._cards(pod, here, whole=whole, named=named, amount=len(device_ids))
        shut = self.closed(kind, whole=whole)
        for card in cards if kind not in self.by_record else ():
            if card in shut and not self._has_both(pod, kind):
                manner = "in slices" if whole else "whole"
                raise NoRoomError(f"pod {pod.name} was handed card {card} of {kind}, which another pod holds {manner}")
        result = given(
            pod,
            here,
            cards,
            whole=whole,
            amount=len(device_ids),
            exists=self._exists,
            node_labels=self._node_labels(),
        )
        self._queue.serve(match)
        if match.uid not in self._queue:
            self._done.add(match.uid)
        containers = self._given.setdefault(match.uid, {})
        containers.setdefault(match.container, {}).setdefault((kind, whole), set()).update(named)
        self.served(match.uid)
        self.changed()
        return result

    def closed(self, kind: str, *, whole: bool) -> set[int]:
        """The cards that are held in the other manner: whole, if slices are asked for; in slices, if whole cards are."""
        by_record: set[int] = set()
        if kind in self.by_record or not self._kubelet_tells:
            live = (pod for pod in self.pods.values() if not pod.seen.ended)
            by_record = {s.index for pod in live for s in pod.seen.slices if s.kind == kind and s.whole != whole}
        if kind in self.by_record:
            return by_record
        held = [container for holding in (*self._held.values(), *self._given.values()) for container in holding.values()]
        return by_record.union(*(cards_of(container.get((kind, not whole), ())) for container in held))

    # How.

    async def _match(self, want: Want, *, books: Mapping[str, Holding] | None = None, cards: Collection[int] = ()) -> Match:
        """The pod may be on its way to us: kubelet has the same news on a watch of its own, perhaps a moment earlier."""
        deadline = asyncio.get_running_loop().time() + self._arrival_s
        while (
            match := self._queue.match(want, self._promised(want, cards)) or self._queue.match(want, self._lacking(books))
        ) is None:
            self._arrived.clear()
            left_s = deadline - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(self._arrived.wait(), max(left_s, 0.001))
            except TimeoutError:
                raise NobodyWaitsError(self._nobody(want)) from None
        return match

    def _lacking(self, books: Mapping[str, Holding] | None) -> set[str] | None:
        """The pods that are in kubelet's books without all they ask, whatever we thought of them: one, the one that it admits.

        An old kubelet also lists those that it has just rejected.
        """
        if books is None:
            return None
        known = (pod for pod in self.pods.values() if pod.parts and not pod.terminating and pod.name in books)
        lacking = [pod for pod in known if not holds_all(pod, books[pod.name])]
        for pod in lacking:
            self._queue.arrive(pod.uid, pod.parts)
        return {pod.uid for pod in lacking}

    def _promised(self, want: Want, cards: Collection[int]) -> set[str]:
        """Who waits and has just these cards in its record: kubelet asks no question about the last ids that it has."""
        kind, whole, _ = want
        waiting = [self.pods[uid] for uid, _, _ in self._queue.waiting()] if cards else []
        return {pod.uid for pod in waiting if set(recorded_cards(pod, self._shelf.kinds[kind], whole=whole)) == set(cards)}

    def _nobody(self, want: Want) -> str:
        kind, whole, amount = want
        what = f"{amount} {'whole cards' if whole else 'units'} of {kind}"
        waiting = [f"{self.pods[uid].name}/{container} asks {_words(wants)}" for uid, container, wants in self._queue.waiting()]
        return f"no pod on this node waits for {what}; waiting are: {'; '.join(waiting[:10]) or 'none'}"

    def _choose(
        self, pod: NodePod, kind: str, *, whole: bool, available: Collection[str], must: Collection[str], size: int
    ) -> list[str] | None:
        recorded = recorded_cards(pod, self._shelf.kinds[kind], whole=whole)
        if recorded:
            chosen = choosing.on_cards(available, must=must, size=size, cards=recorded)
            if chosen is not None:
                return chosen
        # Nobody gave it a card, or its card is taken: the tightest that does, and not one that a waiting pod was promised.
        asked = next((ask.cards for ask in pod.seen.request if ask.kind == kind and ask.whole == whole), 1)
        cards = min(size, asked)
        closed = self.closed(kind, whole=whole)
        spare = self._without_promised(available, kind, whole=whole, but=pod.uid)
        for among in (spare, available):
            chosen = choosing.on_any(among, must=must, size=size, cards=cards, closed=closed)
            if chosen is not None:
                return chosen
        if kind in self.by_record and len(available) >= size:
            return [*must, *(i for i in sorted(available) if i not in set(must))][:size]
        return None

    def _without_promised(self, available: Collection[str], kind: str, *, whole: bool, but: str) -> list[str]:
        promised: dict[int, int] = {}
        for uid, _, _ in self._queue.waiting():
            pod = self.pods[uid]
            for slice_ in pod.seen.slices if uid != but else ():
                if slice_.kind == kind:
                    promised[slice_.index] = promised.get(slice_.index, 0) + (10**9 if slice_.whole or whole else slice_.units)
        return [i for card, free in by_card(available).items() for i in free[: max(0, len(free) - promised.get(card, 0))]]

    def _cards(self, pod: NodePod, here: Kind, *, whole: bool, named: Collection[str], amount: int) -> dict[int, int]:
        """The container's cards, and how many units of each: those that its ids name, if they name any, else its record's."""
        kind = here.profile.name
        cards = {card: len(taken) for card, taken in by_card(named).items()}
        asked = next((ask.cards for ask in pod.seen.request if ask.kind == kind and ask.whole == whole), 1)
        if not 0 < len(cards) <= asked:
            recorded = recorded_cards(pod, here, whole=whole)
            if not recorded:
                raise NoRoomError(
                    f"pod {pod.name} was handed ids that kubelet took at random, and its record names no card of {kind}"
                )
            cards = {card: amount // len(recorded) for card in recorded}
        unknown = [card for card in cards if card not in here.cards]
        if unknown:
            raise NoRoomError(f"pod {pod.name} was handed ids of card {unknown[0]} of {kind}, which this node does not have")
        return cards

    def _wait_or_leave(self, pod: NodePod) -> None:
        if pod.terminating or pod.phase not in ("", "Pending") or self._is_served(pod):
            self._queue.leave(pod.uid)
        else:
            self._queue.arrive(pod.uid, pod.parts)
            self._arrived.set()

    def _has(self, pod: NodePod, kind: str, *, whole: bool) -> set[str]:
        """The ids that its containers have so far."""
        containers = [*self._given.get(pod.uid, {}).values(), *self._held.get(pod.name, {}).values()]
        return {i for container in containers for i in container.get((kind, whole), ())}

    def _is_served(self, pod: NodePod) -> bool:
        if not pod.parts:
            return False
        return holds_all(pod, self.holding(pod)) or pod.uid in self._done or (not self._kubelet_tells and self._marked(pod))

    def _marked(self, pod: NodePod) -> bool:
        """Does its record say that it has been assigned?"""
        kinds = [self._shelf.kinds.get(ask.kind) for ask in pod.seen.request if not ask.whole]
        keys = [here.profile.annotations.assigned for here in kinds if here is not None]
        return any(keys) and all(pod.annotations.get(key) == "true" for key in keys if key is not None)

    def _dismiss_served(self) -> None:
        for pod in self.pods.values():
            if self._is_served(pod):
                self._queue.leave(pod.uid)

    def _has_both(self, pod: NodePod, kind: str) -> bool:
        return len({ask.whole for ask in pod.seen.request if ask.kind == kind}) > 1

    def _items(self, uids: Iterable[str]) -> list[tuple[str, NodePod | None]]:
        return [(uid, self.pods.get(uid)) for uid in uids]


def holds_all(pod: NodePod, holding: Holding) -> bool:
    """kubelet admits a pod's containers in one go, so one that holds what its last container asks has been served."""
    if not pod.parts:
        return False
    last = pod.parts[-1]
    return all((kind, whole) in holding.get(last.container, {}) for kind, whole, _ in last.wants)


def _free(available: Collection[str]) -> str:
    return ", ".join(f"card {card} has {len(free)}" for card, free in by_card(available).items()) or "nothing is free"


def _words(wants: Iterable[Want]) -> str:
    return " and ".join(f"{amount} {'whole ' if whole else ''}{kind}" for kind, whole, amount in wants)
