"""The cards of this node as the agent hands them out: sizes in units, health, and who enforces a share.

Belongs here: what there is to give. Never: who gets it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from accelshare.agent.device_plugin import device_ids
from accelshare.agent.device_plugin.slots import Slots
from accelshare.vendors.drivers.driver import FoundCard
from accelshare.vendors.enforcement import Enforcement
from accelshare.vendors.profile import Profile
from accelshare.wire.inventory import BY_RUNTIME, CardEntry, KindEntry

LONGEST_PROBLEM: Final = 1024


@dataclass(frozen=True, slots=True)
class InventoryCard:
    """One card with its size in units. Illness may be seen by the driver or told by people; either makes it ill."""

    found: FoundCard
    units: int
    ill: str = ""  # what the driver says
    told_ill: str = ""  # what people say
    slot: int = -1  # its number in device ids; the shelf gives it
    cdi_name: str = ""  # where a specification on this node, not of ours, names it

    @property
    def healthy(self) -> bool:
        return not self.ill and not self.told_ill

    @property
    def index(self) -> int:
        return self.found.index


@dataclass(frozen=True, slots=True)
class Kind:
    """A vendor's cards on this node."""

    profile: Profile
    unit: str
    unit_mib: float
    cards: Mapping[int, InventoryCard]
    enforcement: Enforcement | None = None

    def index_at(self, slot: int) -> int:
        """The card that device ids of this number are of; -1 for one that is not here."""
        return next((card.index for card in self.cards.values() if card.slot == slot), -1)

    def slot_of(self, index: int) -> int:
        """The number that device ids of this card have; -1 for one that is not here."""
        return self.cards[index].slot if index in self.cards else -1


@dataclass(frozen=True, slots=True)
class Shown:
    """One card as kubelet sees it: its number, its size, and whether anything of it may be taken."""

    card: int
    units: int
    open: bool

    def device_ids(self, *, whole: bool) -> list[str]:
        return [device_ids.whole_id(self.card)] if whole else device_ids.unit_ids(self.card, self.units)


class DeviceInventory:
    """All kinds of this node. Whoever needs to know of a change asks to be told."""

    def __init__(self) -> None:
        self.kinds: dict[str, Kind] = {}
        self.delivers: dict[str, bool] = {}
        self._whole_by_others: frozenset[str] = frozenset()  # kinds whose whole cards another device plugin hands out
        self.delivery = ""  # the way that cards reach containers here
        self.insists = False  # no container is made without its card, even while the agent is away
        self._problems: dict[str, tuple[str, str]] = {}  # by kind: what keeps it from being served, and its unit
        self._refused: dict[str, str] = {}  # by kind: why kubelet does not take it
        self._told: dict[str, tuple[frozenset[int], str]] = {}  # cards that people have marked ill, and the words for it
        self._listeners: list[Callable[[], None]] = []
        self.slots = Slots()

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def put(self, kind: Kind) -> None:
        """What a driver found. What people have said of these cards still holds, and is not a driver's to know."""
        marked, words = self._told.get(kind.profile.name, (frozenset(), ""))
        slots = self.slots.assign(kind.profile.name, (card.found for card in kind.cards.values()))
        cards = {
            index: replace(card, told_ill=words if index in marked else "", slot=slots[index])
            for index, card in kind.cards.items()
        }
        kind = replace(kind, cards=cards)
        if self.kinds.get(kind.profile.name) != kind:
            self.kinds[kind.profile.name] = kind
            self._changed()

    def set_health(self, name: str, card_id: str, problem: str) -> None:
        """What the driver says of a card; no problem is health."""
        self._replace(name, lambda card: replace(card, ill=problem) if card.found.id == card_id else card)

    def set_told(self, name: str, indexes: Iterable[int], words: str) -> None:
        """The cards that people have marked ill; all others of the kind are not marked any more."""
        self._told[name] = frozenset(indexes), words
        self._replace(name, lambda card: card)

    def set_enforcement(self, name: str, enforcement: Enforcement) -> None:
        """Who holds containers to their share from now on."""
        if (kind := self.kinds.get(name)) is not None:
            self.put(replace(kind, enforcement=enforcement))

    def set_refused(self, refused: Mapping[str, str]) -> None:
        """The kinds that kubelet does not take, and why."""
        if self._refused != refused:
            self._refused = dict(refused)
            self._changed()

    def set_problem(self, name: str, problem: str, *, unit: str = "") -> None:
        """The kind's own trouble; while it has one, no pod is sent here for it. Empty: it has none.

        `unit` is what living pods asked in. It stays on the node while there are no cards to tell it with.
        """
        told = (problem[:LONGEST_PROBLEM], unit) if problem else None
        if told != self._problems.get(name):
            self._problems.pop(name, None)
            if told is not None:
                self._problems[name] = told
            self._changed()

    def problem(self, name: str) -> str:
        """What keeps this kind from being served, or nothing."""
        return self._problems.get(name, ("", ""))[0]

    @property
    def problems(self) -> dict[str, str]:
        """By kind: what keeps it from being served."""
        return self._refused | {name: problem for name, (problem, _) in self._problems.items()}

    def set_whole_by_others(self, kinds: frozenset[str]) -> None:
        """Whole cards of these kinds are another device plugin's to hand out; slices stay ours."""
        if self._whole_by_others != kinds:
            self._whole_by_others = kinds
            self._changed()

    def whole_by_others(self, name: str) -> bool:
        return name in self._whole_by_others

    def resources(self, profile: Profile) -> tuple[tuple[str, bool], ...]:
        """What pods ask for and we hand out, each with whether it is whole cards."""
        resources = profile.resources
        whole = None if self.whole_by_others(profile.name) else resources.whole
        return tuple((name, is_whole) for name, is_whole in ((resources.memory, False), (whole, True)) if name is not None)

    def set_delivers(self, name: str, delivers: bool) -> None:
        if self.delivers.get(name) != delivers:
            self.delivers[name] = delivers
            self._changed()

    def set_delivery(self, way: str, *, insists: bool) -> None:
        if (self.delivery, self.insists) != (way, insists):
            self.delivery, self.insists = way, insists
            self._changed()

    def inventory(self) -> dict[str, KindEntry]:
        """What the cluster is told. A kind that only has a problem is told as well, so that people can read it."""
        without_cards = {
            name: KindEntry(cards=[], unit=unit, delivers=False, problem=problem, slots=self.slots.told(name, ()))
            for name, (problem, unit) in self._problems.items()
        }
        return without_cards | {
            name: KindEntry(
                cards=[_entry(card, kind) for card in kind.cards.values()],
                unit=kind.unit,
                delivery=self.delivery,
                delivers=self.delivers.get(name, False) and name not in self.problems,
                insists=self.insists,
                whole_by_others=self.whole_by_others(name),
                problem=self.problems.get(name, ""),
                slots=self.slots.told(name, (card.found for card in kind.cards.values())),
            )
            for name, kind in self.kinds.items()
        }

    def amounts(self) -> dict[str, int]:
        """The resources that the Node must be told of: how many cards there are, and what no device plugin tells kubelet."""
        told: dict[str, int] = {}
        for kind in self.kinds.values():
            resources = kind.profile.resources
            if resources.count is not None:
                told[resources.count] = len(kind.cards)
            if self.delivery == BY_RUNTIME and resources.memory is not None:
                told[resources.memory] = sum(card.units for card in kind.cards.values())
            if self.delivery == BY_RUNTIME and resources.whole is not None and not self.whole_by_others(kind.profile.name):
                told[resources.whole] = len(kind.cards)
        return told

    def shown(self, name: str, *, closed: Collection[int]) -> tuple[Shown, ...]:
        """What kubelet is shown of each card. Closed cards, by their slot, are in use in the other manner."""
        cards = self.kinds[name].cards.values()
        return tuple(Shown(card.slot, card.units, card.healthy and card.slot not in closed) for card in cards)

    def _replace(self, name: str, change: Callable[[InventoryCard], InventoryCard]) -> None:
        kind = self.kinds.get(name)
        if kind is not None:
            self.put(replace(kind, cards={index: change(card) for index, card in kind.cards.items()}))

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()


def _entry(card: InventoryCard, kind: Kind) -> CardEntry:
    return CardEntry(
        index=card.index,
        size=card.units,
        id=card.found.id,
        healthy=card.healthy,
        minor=card.found.minor,
        model=card.found.model,
        numa=card.found.numa,
        problem=card.ill or card.told_ill,
        size_given=not card.found.measured,
        enforced_by=kind.enforcement.name if kind.enforcement is not None else "",
    )
