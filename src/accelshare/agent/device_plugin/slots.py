"""Slots: the number of each card in device ids, which stays with the hardware id when the driver numbers cards again.

Belongs here: assigning slots, and what the Node's inventory records of them, so that the next agent assigns the same. Never: the
form of device ids (device_ids.py).

Drivers number cards again when one is unplugged, and kubelet keeps device ids with the old numbers for living pods. A card that
is gone keeps its slot, so that no other card is mistaken for it.
"""

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Final

from accelshare.agent.device_plugin.checkpoint import Allocation
from accelshare.agent.device_plugin.device_ids import cards_of
from accelshare.vendors.drivers.driver import HostCard
from accelshare.wire.inventory import KindEntry
from accelshare.wire.node_pods import NodePod, by_uid_at_kubelet

MOST_GONE: Final = 64  # cards of a kind that are gone and keep their slot; the oldest are dropped first


class Slots:
    def __init__(self) -> None:
        self._slots: dict[str, dict[str, int]] = {}  # kind → hardware id → slot, those seen last at the end

    def load(self, inventory: Mapping[str, KindEntry]) -> None:
        """Take over the slots of an earlier agent, before any card is discovered. An agent without slots used the indexes."""
        for kind, entry in inventory.items():
            slots = {card.id: card.index for card in entry.cards if card.id} | entry.slots
            self._slots[kind] = {id: slot for id, slot in slots.items() if 0 <= slot < 10**9}

    def derive(self, pods: Iterable[NodePod], allocations: Iterable[Allocation], roles: Mapping[str, tuple[str, bool]]) -> None:
        """Find the slots of kinds that the Node does not list because the Node object is new: the ids that kubelet holds for a
        pod with one card contain its slot.
        """
        known = by_uid_at_kubelet(pod for pod in pods if not pod.seen.ended)
        derived: dict[str, dict[str, int]] = {}
        for one in allocations:
            kind, whole = roles.get(one.resource, ("", False))
            if not kind or kind in self._slots or one.uid not in known:
                continue
            ids = [slice_.id for slice_ in known[one.uid].seen.slices if (slice_.kind, slice_.whole) == (kind, whole)]
            numbers = cards_of(one.ids)
            if len(ids) == len(numbers) == 1 and ids[0]:
                derived.setdefault(kind, {}).setdefault(ids[0], numbers.pop())
        self._slots |= derived

    def assign(self, kind: str, cards: Iterable[HostCard]) -> dict[int, int]:
        """The slot of each card, by its index."""
        known = self._slots.setdefault(kind, {})
        names: dict[int, str] = {}
        for card in sorted(cards, key=lambda card: card.index):
            # Two cards with the same id, or with none, differ by their index only.
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

    def to_publish(self, kind: str, cards: Iterable[HostCard]) -> dict[str, int]:
        """The slots that the Node must list: those that differ from the card's index, and those of cards that are gone."""
        indexes = {card.id: card.index for card in cards}
        return {id: slot for id, slot in self._slots.get(kind, {}).items() if indexes.get(id) != slot and "#" not in id}


def _free(index: int, known: Mapping[str, int]) -> int:
    taken = set(known.values())
    return index if index not in taken else next(slot for slot in count() if slot not in taken)
