"""The number under which kubelet knows each card: given once to a hardware id, whatever index the driver counts later.

Belongs here: giving numbers, and what the Node says of them, so that the next agent gives the same. Never: device ids (ids.py).

Drivers renumber cards when one is unplugged, and kubelet goes on holding device ids by the old numbers for the pods that live. A
card that is gone keeps its number, so that no other card is taken for it.
"""

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Final

from accelshare.agent.device_plugin.checkpoint import Allocation
from accelshare.agent.device_plugin.device_ids import cards_of
from accelshare.vendors.drivers.driver import FoundCard
from accelshare.wire.inventory import KindEntry
from accelshare.wire.node_pods import NodePod, by_uid_at_kubelet

MOST_GONE: Final = 64  # cards of a kind that are not there any more and keep their number; the oldest are forgotten first


class Slots:
    def __init__(self) -> None:
        self._slots: dict[str, dict[str, int]] = {}  # kind → hardware id → slot, those seen last at the end

    def load(self, inventory: Mapping[str, KindEntry]) -> None:
        """What an earlier agent of this node said, before any card is found. One that knew no slots used indexes as such."""
        for kind, entry in inventory.items():
            told = {card.id: card.index for card in entry.cards if card.id} | entry.slots
            self._slots[kind] = {id: slot for id, slot in told.items() if 0 <= slot < 10**9}

    def derive(self, pods: Iterable[NodePod], allocations: Iterable[Allocation], roles: Mapping[str, tuple[str, bool]]) -> None:
        """Of kinds of which the Node says nothing, because it was made anew: what kubelet holds for a pod of one card tells its
        number.
        """
        known = by_uid_at_kubelet(pod for pod in pods if not pod.seen.ended)
        unknown: dict[str, dict[str, int]] = {}
        for one in allocations:
            kind, whole = roles.get(one.resource, ("", False))
            if not kind or kind in self._slots or one.uid not in known:
                continue
            ids = [slice_.id for slice_ in known[one.uid].seen.slices if (slice_.kind, slice_.whole) == (kind, whole)]
            numbers = cards_of(one.ids)
            if len(ids) == len(numbers) == 1 and ids[0]:
                unknown.setdefault(kind, {}).setdefault(ids[0], numbers.pop())
        self._slots |= unknown

    def assign(self, kind: str, cards: Iterable[FoundCard]) -> dict[int, int]:
        """The slot of each card, by its index."""
        known = self._slots.setdefault(kind, {})
        names: dict[int, str] = {}
        for card in sorted(cards, key=lambda card: card.index):
            # Two cards of one id, or of none, are told apart by their index only.
            name = card.id if card.id and card.id not in names.values() else f"{card.id}#{card.index}"
            names[card.index] = name
            former = next((id for id in card.former_ids if id in known), None)
            if name not in known and former is not None:
                known[name] = known.pop(former)
        for index, name in names.items():
            slot = known.pop(name, None)
            known[name] = _free(index, known) if slot is None or slot in known.values() else slot
        for name in [name for name in known if name not in names.values()][:-MOST_GONE]:
            del known[name]
        return {index: known[name] for index, name in names.items()}

    def told(self, kind: str, cards: Iterable[FoundCard]) -> dict[str, int]:
        """What the Node must say beside its cards' indexes: the slots that differ, and those of cards that are gone."""
        indexes = {card.id: card.index for card in cards}
        return {id: slot for id, slot in self._slots.get(kind, {}).items() if indexes.get(id) != slot and "#" not in id}


def _free(index: int, known: Mapping[str, int]) -> int:
    taken = set(known.values())
    return index if index not in taken else next(slot for slot in count() if slot not in taken)
