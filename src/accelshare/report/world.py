"""What an explanation is made from: the book, and beside it what only the objects themselves say.

Belongs here: two values and small questions to them. Never: reading objects, words.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from accelshare.ledger.ledger import Ledger
from accelshare.ledger.node_ledger import CardLedger
from accelshare.report.surroundings import Surroundings, Toleration
from accelshare.report.units import NOTHING_TOLD, Told, unit_label, unit_name
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.profile import Profile


@dataclass(frozen=True, slots=True)
class Asking:
    """A pod as its owner wrote it, and what others have said on it."""

    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)  # every resource that its containers name, as written
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Toleration] = ()
    has_affinity: bool = False  # it requires nodes of us in a language that is not looked at here
    phase: str = ""
    reason: str = ""  # of its status: why it failed, in kubelet's words
    scheduler_says: str = ""


@dataclass(frozen=True, slots=True)
class World:
    ledger: Ledger
    catalog: Catalog
    told: Told = field(default_factory=lambda: NOTHING_TOLD)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of every node
    surroundings: Mapping[str, Surroundings] = field(default_factory=dict)  # of every node

    def cards(self, kind: str) -> Iterator[tuple[str, CardLedger]]:
        """Every card of this kind that a node shows, with the node's name; by name and index."""
        for node in self.ledger.nodes():
            for card in node.cards.get(kind, ()):
                yield node.name, card

    def unit(self, profile: Profile, node: str) -> str:
        """What the node counts this vendor's cards in, for people."""
        return unit_label(profile, node, self._first_size(profile, node), self.told)

    def unit_mib(self, profile: Profile, node: str) -> float:
        """How many MiB that is; 0 if nobody knows."""
        return float(profile.unit.mib.get(unit_name(profile, node, self._first_size(profile, node), self.told), 0))

    def _first_size(self, profile: Profile, node: str) -> int:
        book = self.ledger.node(node)
        cards = book.cards.get(profile.name, ()) if book else ()
        return cards[0].card.size if cards else 0
