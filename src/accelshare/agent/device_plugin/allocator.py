"""Where kubelet's anonymous requests are answered: which ids, and what the container gets.

Belongs here: putting together who asks (waiting_room.py), the shelf, and the profile's container edits. Never: gRPC
(device_plugin/), the API server (reconcile.py).

What kubelet holds is the truth about cards; a pod's record says which card it should be. Ids of as many cards as the pod asks
for: those cards are its cards, whatever its record says. A kubelet that asks for no advice takes ids at random, and they name
nothing: then the record is the truth for all pods alike, or two truths could oversell a card.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from google.protobuf.message import DecodeError

from accelshare.agent.container_cards import given, numbering, recorded_cards
from accelshare.agent.device_plugin import id_selection
from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as api
from accelshare.agent.device_plugin.cached_answers import names_other_cards
from accelshare.agent.device_plugin.checkpoint import Allocation
from accelshare.agent.device_plugin.device_ids import by_card, cards_of
from accelshare.agent.device_plugin.matching import Match
from accelshare.agent.device_plugin.pod_queue import Holding, PodQueue
from accelshare.agent.discovery.device_inventory import DeviceInventory, Kind
from accelshare.vendors.container_edits import ContainerEdits
from accelshare.vendors.problems import VendorError
from accelshare.vendors.profile import Profile
from accelshare.wire.node_pods import NodePod, by_uid_at_kubelet

# kubelet's books as they are now, by pod name; None if it does not show them.
Books: TypeAlias = Callable[[], Awaitable[Mapping[str, Holding] | None]]


class NoRoomError(Exception):
    """The pod is known, and its cards do not have what it asks; the message says what is missing."""


class WrongPodError(NoRoomError):
    """The node is well: the pod would have to be another one."""


@dataclass(frozen=True, slots=True)
class _Advice:
    ids: frozenset[str]
    match: Match


class Allocator:
    def __init__(
        self,
        devices: DeviceInventory,
        pod_queue: PodQueue,
        books: Books,
        *,
        exists: Callable[[str], bool],
        node_labels: Callable[[], Mapping[str, str]] = dict,
        wrong_handler: Callable[[Profile, str], str] = lambda _profile, _handler: "",
        has_handler: Callable[[Profile], bool] = lambda _profile: False,
    ) -> None:
        self._devices = devices
        self._pod_queue = pod_queue
        self._books = books
        self._exists = exists
        self._node_labels = node_labels
        self._wrong_handler = wrong_handler
        self._has_handler = has_handler
        self._advice: dict[tuple[str, bool], _Advice] = {}
        self._asked = False  # kubelet takes advice, so its ids name cards
        # Kinds of which somebody after us makes what a container has equal to its record: ids need not name the right card.
        self.by_record: frozenset[str] = frozenset()
        self.served: Callable[[str], None] = lambda _uid: None
        self.must_be_replaced: Callable[[NodePod, str], None] = lambda _pod, _container: None

    def kubelet_began(self) -> None:
        self._advice.clear()
        self._pod_queue.kubelet_began()

    async def prefer(self, kind: str, *, whole: bool, available: Collection[str], must: Collection[str], size: int) -> list[str]:
        """The ids kubelet should take for whoever it is asking for."""
        self._asked = True
        match = await self._pod_queue.match((kind, whole, size), books=await self._books())
        pod = self._pod_queue.pods[match.uid]
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
            named_cards = {self._devices.kinds[kind].index_at(slot) for slot in cards_of(device_ids)} if self._asked else ()
            match = await self._pod_queue.match((kind, whole, len(device_ids)), books=await self._books(), cards=named_cards)
        pod = self._pod_queue.pods[match.uid]
        here = self._devices.kinds[kind]
        # Ids that the pod's init containers had come again without a question.
        named = device_ids if advice is not None or self._pod_queue.ids_of(pod, kind, whole=whole).issuperset(device_ids) else ()
        # Which handler a RuntimeClass names is not known here; that none is named means the default one.
        if not pod.runtime_class and (problem := self._wrong_handler(here.profile, "")):
            refused = WrongPodError if self._has_handler(here.profile) else NoRoomError
            raise refused(f"pod {pod.name}: {problem}")
        cards = self._cards(pod, here, whole=whole, named=named, amount=len(device_ids))
        shut = self.closed(kind, whole=whole)
        for card in cards if kind not in self.by_record else ():
            if here.slot_of(card) in shut and not _has_both(pod, kind):
                manner = "in slices" if whole else "whole"
                raise NoRoomError(f"pod {pod.name} was handed card {card} of {kind}, which another pod holds {manner}")
        result = self._given(pod, here, cards, whole=whole, amount=len(device_ids))
        self.served(match.uid)
        self._pod_queue.served(match, named)
        return result

    def renumbered(
        self, kind: str, *, whole: bool, allocations: Iterable[Allocation]
    ) -> dict[frozenset[str], tuple[NodePod, str]]:
        """By their ids: containers for which kubelet keeps an answer that now names other cards than theirs."""
        pods = by_uid_at_kubelet(pod for pod in self._pod_queue.pods.values() if not pod.seen.ended)
        here = self._devices.kinds[kind]
        found: dict[frozenset[str], tuple[NodePod, str]] = {}
        for one in allocations:
            pod = pods.get(one.uid)
            if pod is None or not one.answer:
                continue
            try:
                kept = api.ContainerAllocateResponse.FromString(one.answer)
                cards = self._cards(pod, here, whole=whole, named=one.ids, amount=len(one.ids))
                now = self._given(pod, here, cards, whole=whole, amount=len(one.ids))
            except (DecodeError, NoRoomError, VendorError):
                continue  # its card is not here now, or cannot be described: nothing to compare with
            if names_other_cards(here.profile, kept, now):
                found[one.ids] = pod, one.container
        return found

    def closed(self, kind: str, *, whole: bool) -> set[int]:
        """The slots of cards that are held in the other manner: whole, if slices are asked for; in slices, if whole cards are."""
        by_record: set[int] = set()
        if kind in self.by_record or not self._pod_queue.kubelet_tells:
            live = (pod for pod in self._pod_queue.pods.values() if not pod.seen.ended)
            here = self._devices.kinds[kind]
            number = numbering(here)
            by_record = {here.slot_of(number(s)) for pod in live for s in pod.seen.slices if s.kind == kind and s.whole != whole}
        return by_record if kind in self.by_record else by_record | cards_of(self._pod_queue.all_ids(kind, whole=not whole))

    # How.

    def _given(self, pod: NodePod, here: Kind, cards: Mapping[int, int], *, whole: bool, amount: int) -> ContainerEdits:
        labels = self._node_labels()
        return given(pod, here, cards, whole=whole, amount=amount, exists=self._exists, node_labels=labels)

    def _choose(
        self, pod: NodePod, kind: str, *, whole: bool, available: Collection[str], must: Collection[str], size: int
    ) -> list[str] | None:
        here = self._devices.kinds[kind]
        recorded = [here.slot_of(card) for card in recorded_cards(pod, here, whole=whole)]
        if recorded:
            chosen = id_selection.on_cards(available, must=must, size=size, cards=recorded)
            if chosen is not None:
                return chosen
        # Nobody gave it a card, or its card is taken: the tightest that does, and not one that a waiting pod was promised.
        asked = next((ask.cards for ask in pod.seen.request if ask.kind == kind and ask.whole == whole), 1)
        cards = min(size, asked)
        closed = self.closed(kind, whole=whole)
        spare = self._without_promised(available, kind, whole=whole, but=pod.uid)
        for among in (spare, available):
            chosen = id_selection.on_any(among, must=must, size=size, cards=cards, closed=closed)
            if chosen is not None:
                return chosen
        if kind in self.by_record and len(available) >= size:
            return [*must, *(i for i in sorted(available) if i not in set(must))][:size]
        return None

    def _without_promised(self, available: Collection[str], kind: str, *, whole: bool, but: str) -> list[str]:
        promised: dict[int, int] = {}
        here = self._devices.kinds[kind]
        number = numbering(here)
        for pod in self._pod_queue.waiting_pods():
            for slice_ in pod.seen.slices if pod.uid != but else ():
                if slice_.kind == kind:
                    card = here.slot_of(number(slice_))
                    promised[card] = promised.get(card, 0) + (10**9 if slice_.whole or whole else slice_.units)
        return [i for card, free in by_card(available).items() for i in free[: max(0, len(free) - promised.get(card, 0))]]

    def _cards(self, pod: NodePod, here: Kind, *, whole: bool, named: Collection[str], amount: int) -> dict[int, int]:
        """The container's cards, and how many units of each: those that its ids name, if they name any, else its record's.

        Of a kind that is made equal to the record after us the record's cards are given at once: nobody may be there to do it.
        """
        kind = here.profile.name
        cards = {here.index_at(slot): len(taken) for slot, taken in by_card(named).items()}
        asked = next((ask.cards for ask in pod.seen.request if ask.kind == kind and ask.whole == whole), 1)
        recorded = recorded_cards(pod, here, whole=whole)
        by_record = kind in self.by_record and recorded and not pod.by_hand and (not whole or len(recorded) == amount)
        if by_record or not 0 < len(cards) <= asked:
            if not recorded:
                raise NoRoomError(
                    f"pod {pod.name} was handed ids that kubelet took at random, and its record names no card of {kind}"
                )
            cards = {card: amount // len(recorded) for card in recorded}
        unknown = [card for card in cards if card not in here.cards]
        if unknown:
            raise NoRoomError(f"pod {pod.name} was handed ids of card {unknown[0]} of {kind}, which this node does not have")
        return cards


def _has_both(pod: NodePod, kind: str) -> bool:
    return len({ask.whole for ask in pod.seen.request if ask.kind == kind}) > 1


def _free(available: Collection[str]) -> str:
    return ", ".join(f"card {card} has {len(free)}" for card, free in by_card(available).items()) or "nothing is free"
