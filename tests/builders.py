"""Short constructors of cards, pods and facts for tests.

Belongs here: short ways to make values of the ledger. Never: expectations.
"""

import itertools
from dataclasses import replace

from accelshare.ledger.facts import NodeGone, NodeSeen, PodGone, PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Ask, Assignment, Card, LimitNeed, Request, Slice

KIND = "gpu"
_versions = itertools.count(1)


def share(units: int, *, cards: int = 1, kind: str = KIND, limits: LimitNeed = LimitNeed.ANY) -> Request:
    return (Ask(kind, cards, units, limits=limits),)


def whole(cards: int = 1, *, kind: str = KIND) -> Request:
    return (Ask(kind, cards, whole=True),)


def card(index: int, size: int, *, kind: str = KIND, healthy: bool = True, id: str = "") -> Card:
    return Card(kind, index, size, healthy, id)


def limited(index: int, size: int, *, min_units: int = 0, kind: str = KIND, healthy: bool = True, id: str = "") -> Card:
    """A card of which no pod can use more than its share."""
    return Card(kind, index, size, healthy, id, limited=True, min_units=min_units, way="driver")


def node(name: str, *sizes: int, cards: tuple[Card, ...] = (), version: int | None = None) -> NodeSeen:
    """A node with cards of these sizes, or with just these cards."""
    return NodeSeen(name, next(_versions) if version is None else version, cards or tuple(map(card, range(len(sizes)), sizes)))


def node_gone(name: str) -> NodeGone:
    return NodeGone(name, next(_versions))


def pending(name: str, request: Request, *, priority: int = 0, uid: str = "") -> PodSeen:
    return PodSeen(uid or name, "default", name, request, next(_versions), priority=priority)


def running(name: str, *, on: str, request: Request, priority: int = 0, uid: str = "") -> PodSeen:
    """A pod on "node/index", "node/0,1", or on "node" alone if its card is unknown."""
    where, _, indexes = on.partition("/")
    cards = [int(index) for index in indexes.split(",")] if indexes else []
    slices = tuple(Slice(ask.kind, index, ask.share, ask.whole) for ask in request for index in cards)
    return replace(pending(name, request, priority=priority, uid=uid), node=where, slices=slices)


def ended(fact: PodSeen) -> PodSeen:
    return replace(fact, ended=True, version=next(_versions))


def again(fact: PodSeen) -> PodSeen:
    """The same pod, written once more."""
    return replace(fact, version=next(_versions))


def gone(name: str) -> PodGone:
    return PodGone(name, next(_versions))


def given(on: str, units: int = 0, *, kind: str = KIND, whole: bool = False) -> Assignment:
    """The offer of "node/index" or "node/0,1"."""
    where, _, indexes = on.partition("/")
    return Assignment(where, tuple(Slice(kind, int(index), units, whole) for index in indexes.split(",")))


def place(ledger: Ledger, name: str, request: Request, *, on: str) -> Assignment:
    """Let a new pod be offered cards on a node and hold them."""
    ledger.apply(pending(name, request))
    offer = ledger.offer(on, request)
    assert isinstance(offer, Assignment), offer
    ledger.hold(name, offer)
    return offer
