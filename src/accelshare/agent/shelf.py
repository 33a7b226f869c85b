"""The cards of this node as the agent hands them out: sizes in units, health, and who enforces a share.

Belongs here: what there is to give. Never: who gets it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from accelshare.agent import ids
from accelshare.vendors.drivers.driver import FoundCard
from accelshare.vendors.enforcement import Enforcement
from accelshare.vendors.profile import Profile
from accelshare.wire.inventory import CardEntry, KindEntry


@dataclass(frozen=True, slots=True)
class ShelfCard:
    """One card with its size in units. Illness may be seen by the driver or told by people; either makes it ill."""

    found: FoundCard
    units: int
    ill: str = ""  # what the driver says
    told_ill: str = ""  # what people say

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
    cards: Mapping[int, ShelfCard]
    enforcement: Enforcement | None = None


class Shelf:
    """All kinds of this node. Whoever needs to know of a change asks to be told."""

    def __init__(self) -> None:
        self.kinds: dict[str, Kind] = {}
        self.delivers: dict[str, bool] = {}
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def put(self, kind: Kind) -> None:
        if self.kinds.get(kind.profile.name) != kind:
            self.kinds[kind.profile.name] = kind
            self._changed()

    def set_health(self, name: str, card_id: str, problem: str) -> None:
        """What the driver says of a card; no problem is health."""
        self._replace(name, lambda card: replace(card, ill=problem) if card.found.id == card_id else card)

    def set_told(self, name: str, indexes: Iterable[int], words: str) -> None:
        """The cards that people have marked ill; all others of the kind are not marked any more."""
        marked = set(indexes)
        self._replace(name, lambda card: replace(card, told_ill=words if card.index in marked else ""))

    def set_delivers(self, name: str, delivers: bool) -> None:
        if self.delivers.get(name) != delivers:
            self.delivers[name] = delivers
            self._changed()

    def inventory(self, way: str) -> dict[str, KindEntry]:
        """What the cluster is told."""
        return {
            name: KindEntry(
                cards=[_entry(card, kind) for card in kind.cards.values()],
                unit=kind.unit,
                delivery=way,
                delivers=self.delivers.get(name, False),
            )
            for name, kind in self.kinds.items()
        }

    def device_ids(self, name: str, *, whole: bool, closed: Iterable[int]) -> dict[str, bool]:
        """The ids that kubelet is shown, and whether each may be taken. Closed cards are in use in the other manner."""
        kind = self.kinds[name]
        shut = set(closed)
        shown: dict[str, bool] = {}
        for card in kind.cards.values():
            names = [ids.whole_id(card.index)] if whole else ids.unit_ids(card.index, card.units)
            shown |= dict.fromkeys(names, card.healthy and card.index not in shut)
        return shown

    def _replace(self, name: str, change: Callable[[ShelfCard], ShelfCard]) -> None:
        kind = self.kinds.get(name)
        if kind is not None:
            self.put(replace(kind, cards={index: change(card) for index, card in kind.cards.items()}))

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()


def _entry(card: ShelfCard, kind: Kind) -> CardEntry:
    return CardEntry(
        index=card.index,
        size=card.units,
        id=card.found.id,
        healthy=card.healthy,
        minor=card.found.minor,
        model=card.found.model,
        numa=card.found.numa,
        problem=card.ill or card.told_ill,
        enforced_by=kind.enforcement.name if kind.enforcement is not None else "",
    )
