"""The device inventory: this node's cards with their size in units, their health, and who enforces shares.

Belongs here: what this node has. Never: which pod gets it. The main loop alone changes it; other threads read snapshots.
"""

import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from msgspec.structs import replace as replaced

from accelshare.agent.changes import Changes
from accelshare.agent.device_plugin import device_ids
from accelshare.agent.device_plugin.slots import Slots
from accelshare.vendors.drivers.driver import HostCard
from accelshare.vendors.enforcement import Enforcement
from accelshare.vendors.profile import Profile
from accelshare.wire.inventory import BY_RUNTIME, CardEntry, KindEntry

LONGEST_PROBLEM: Final = 1024


@dataclass(frozen=True, slots=True)
class InventoryCard:
    """One card with its size in units. It is unhealthy if its driver reports a problem, or if people marked it."""

    found: HostCard
    units: int
    problem: str = ""  # what the driver reports
    marked: str = ""  # why people marked it unhealthy
    slot: int = -1  # its number in device ids; the inventory assigns it
    cdi_name: str = ""  # its name in a CDI specification of this node that is not ours
    enforcement: Enforcement | None = None  # who holds pods to their shares of it; none: not known yet

    @property
    def healthy(self) -> bool:
        return not self.problem and not self.marked

    @property
    def index(self) -> int:
        return self.found.index


@dataclass(frozen=True, slots=True)
class VendorCards:
    """The cards of one kind, that is of one vendor's profile, on this node."""

    profile: Profile
    unit: str
    unit_mib: float
    cards: Mapping[int, InventoryCard]

    def index_at(self, slot: int) -> int:
        """The index of the card that device ids name by this slot; -1 if it is not here."""
        return next((card.index for card in self.cards.values() if card.slot == slot), -1)

    def slot_of(self, index: int) -> int:
        """The slot that device ids of this card have; -1 if it is not here."""
        return self.cards[index].slot if index in self.cards else -1


@dataclass(frozen=True, slots=True)
class ListedCard:
    """One card as kubelet sees it: its slot, its size, and whether kubelet may allocate it."""

    slot: int
    units: int
    usable: bool

    def device_ids(self, *, whole: bool) -> list[str]:
        return [str(self.slot)] if whole else device_ids.unit_ids(self.slot, self.units)


@dataclass(frozen=True, slots=True)
class InventorySnapshot:
    """The inventory at one moment, for readers on other threads. It never changes."""

    kinds: Mapping[str, VendorCards] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)  # by kind: what keeps it from being served
    whole_by_others: frozenset[str] = frozenset()  # kinds whose whole cards another device plugin delivers
    discovered: frozenset[str] = frozenset()  # kinds whose driver has answered or failed at least once


class DeviceInventory:
    """All kinds of this node."""

    def __init__(self) -> None:
        self.kinds: dict[str, VendorCards] = {}
        self.delivers: dict[str, bool] = {}
        self._whole_by_others: frozenset[str] = frozenset()  # kinds whose whole cards another device plugin delivers
        self._discovered: frozenset[str] = frozenset()
        self.delivery = ""  # the name of the delivery mode
        self.validated = False  # the runtime's validator refuses containers that lack their card, also while the agent is away
        self._problems: dict[str, tuple[str, str]] = {}  # by kind: what keeps it from being served, and its unit
        self._refused: dict[str, str] = {}  # by kind: why kubelet refuses it
        self._marked: dict[str, tuple[frozenset[int], str]] = {}  # by kind: cards that people marked unhealthy, and the reason
        self._changes = Changes()
        self._earlier: dict[str, KindEntry] = {}  # kinds as an earlier agent published them, until their driver has answered
        self.slots = Slots()
        self._snapshot_lock = threading.Lock()
        self._snapshot = InventorySnapshot()

    def snapshot(self) -> InventorySnapshot:
        """The inventory as it is now. Every thread may call this."""
        with self._snapshot_lock:
            return self._snapshot

    def load(self, published: Mapping[str, KindEntry], kinds: Collection[str]) -> None:
        """Take over what an earlier agent published of these kinds, before any card is discovered.

        Without an entry the extender would assume cards from the Node's capacity, and the next agent would lack slots and unit.
        """
        self._earlier = {name: replaced(entry, delivers=False) for name, entry in published.items() if name in kinds}
        self.slots.load(published)

    def on_change(self, listener: Callable[[], None]) -> None:
        self._changes.subscribe(listener)

    def put(self, kind: VendorCards) -> None:
        """Store the cards that a driver found. Marks that people set on them stay."""
        marked, reason = self._marked.get(kind.profile.name, (frozenset(), ""))
        slots = self.slots.assign(kind.profile.name, (card.found for card in kind.cards.values()))
        cards = {
            index: replace(card, marked=reason if index in marked else "", slot=slots[index])
            for index, card in kind.cards.items()
        }
        kind = replace(kind, cards=cards)
        if self.kinds.get(kind.profile.name) != kind:
            self.kinds[kind.profile.name] = kind
            self._changed()

    def set_health(self, name: str, card_id: str, problem: str) -> None:
        """Store what the driver reports of a card; an empty problem means healthy."""
        self._replace(name, lambda card: replace(card, problem=problem) if card.found.id == card_id else card)

    def set_marked(self, name: str, indexes: Iterable[int], reason: str) -> None:
        """Mark these cards unhealthy, as people wrote it; all others of the kind lose their mark."""
        self._marked[name] = frozenset(indexes), reason
        self._replace(name, lambda card: card)

    def set_enforcement(self, name: str, by_card: Mapping[str, Enforcement]) -> None:
        """Who enforces the shares of these cards, by id, from now on."""
        self._replace(name, lambda card: replace(card, enforcement=by_card.get(card.found.id, card.enforcement)))

    def set_refused(self, refused: Mapping[str, str]) -> None:
        """The kinds that kubelet refuses, and why."""
        if self._refused != refused:
            self._refused = dict(refused)
            self._changed()

    def set_problem(self, name: str, problem: str, *, unit: str = "") -> None:
        """The kind's problem; while it has one, the extender sends no pod here for it. Empty: no problem.

        `unit`: the unit of living pods' requests. The Node keeps it while there are no cards that would show it.
        """
        entry = (problem[:LONGEST_PROBLEM], unit) if problem else None
        if entry != self._problems.get(name):
            self._problems.pop(name, None)
            if entry is not None:
                self._problems[name] = entry
            self._changed()

    def problem(self, name: str) -> str:
        """What keeps this kind from being served; empty if nothing."""
        return self._problems.get(name, ("", ""))[0]

    @property
    def problems(self) -> dict[str, str]:
        """By kind: what keeps it from being served."""
        return self._refused | {name: problem for name, (problem, _) in self._problems.items()}

    def set_whole_by_others(self, kinds: frozenset[str]) -> None:
        """Another device plugin delivers whole cards of these kinds; slices stay ours."""
        if self._whole_by_others != kinds:
            self._whole_by_others = kinds
            self._changed()

    def whole_by_others(self, name: str) -> bool:
        return name in self._whole_by_others

    def resources(self, profile: Profile) -> tuple[tuple[str, bool], ...]:
        """The resources that we deliver, each with whether it counts whole cards."""
        resources = profile.resources
        whole = None if self.whole_by_others(profile.name) else resources.whole
        return tuple((name, is_whole) for name, is_whole in ((resources.memory, False), (whole, True)) if name is not None)

    def set_delivers(self, name: str, delivers: bool) -> None:
        if self.delivers.get(name) != delivers:
            self.delivers[name] = delivers
            self._changed()

    def set_delivery(self, mode: str, *, validated: bool) -> None:
        if (self.delivery, self.validated) != (mode, validated):
            self.delivery, self.validated = mode, validated
            self._changed()

    def inventory(self) -> dict[str, KindEntry]:
        """The content of the Node's inventory annotation. A kind without cards is listed, too, if it has a problem."""
        without_cards = {
            name: KindEntry(cards=[], unit=unit, delivers=False, problem=problem, slots=self.slots.to_publish(name, ()))
            for name, (problem, unit) in self._problems.items()
        }
        unanswered = {name: entry for name, entry in self._earlier.items() if name not in self._discovered}
        return (unanswered | without_cards) | {
            name: KindEntry(
                cards=[_entry(card, kind) for card in kind.cards.values()],
                unit=kind.unit,
                delivery=self.delivery,
                delivers=self.delivers.get(name, False) and name not in self.problems,
                insists=self.validated,
                whole_by_others=self.whole_by_others(name),
                problem=self.problems.get(name, ""),
                slots=self.slots.to_publish(name, (card.found for card in kind.cards.values())),
            )
            for name, kind in self.kinds.items()
        }

    def amounts(self) -> dict[str, int]:
        """The resources that the Node's status must list: the number of cards, and what no device plugin reports to kubelet."""
        amounts: dict[str, int] = {}
        for kind in self.kinds.values():
            resources = kind.profile.resources
            if resources.count is not None:
                amounts[resources.count] = len(kind.cards)
            if self.delivery == BY_RUNTIME and resources.memory is not None:
                amounts[resources.memory] = sum(card.units for card in kind.cards.values())
            if self.delivery == BY_RUNTIME and resources.whole is not None and not self.whole_by_others(kind.profile.name):
                amounts[resources.whole] = len(kind.cards)
        return amounts

    def listed_cards(self, name: str, *, closed: Collection[int]) -> tuple[ListedCard, ...]:
        """The cards as kubelet's device list has them. Closed slots are held whole where slices are requested, or vice versa."""
        cards = self.kinds[name].cards.values()
        return tuple(ListedCard(card.slot, card.units, card.healthy and card.slot not in closed) for card in cards)

    def _replace(self, name: str, change: Callable[[InventoryCard], InventoryCard]) -> None:
        kind = self.kinds.get(name)
        if kind is not None:
            self.put(replace(kind, cards={index: change(card) for index, card in kind.cards.items()}))

    def set_discovered(self, name: str) -> None:
        """The kind's driver has answered or failed for the first time."""
        if name not in self._discovered:
            self._discovered |= {name}
            if name in self._earlier:
                self._changed()
            else:
                self._take_snapshot()

    def _changed(self) -> None:
        self._take_snapshot()
        self._changes.announce()

    def _take_snapshot(self) -> None:
        problems = {name: problem for name, (problem, _) in self._problems.items()}
        snapshot = InventorySnapshot(dict(self.kinds), problems, self._whole_by_others, self._discovered)
        with self._snapshot_lock:
            self._snapshot = snapshot


def _entry(card: InventoryCard, kind: VendorCards) -> CardEntry:
    return CardEntry(
        index=card.index,
        size=card.units,
        id=card.found.id,
        healthy=card.healthy,
        minor=card.found.minor,
        model=card.found.model,
        numa=card.found.numa,
        problem=card.problem or card.marked,
        size_given=not card.found.measured,
        enforced_by=card.enforcement.name if card.enforcement is not None else "",
        min_units=math.ceil(card.enforcement.min_mib / kind.unit_mib) if card.enforcement is not None else 0,
    )
