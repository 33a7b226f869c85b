"""What the world tells the book. Facts may come twice, late or in any order; their version says which is newer.

Belongs here: the facts. Never: what follows from them (book.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from accelshare.ledger.nouns import Card, Request, Slice
from accelshare.ledger.refusals import Refusal

# How much of every resource a pod takes from its node, the ones we do not book included: enough to compare two sets of pods.
Needs: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node with its cards. A node of no cards is still a node."""

    name: str
    version: int = 0
    cards: tuple[Card, ...] = ()
    address: str = ""
    paused: frozenset[str] = frozenset()  # kinds of which the node cannot hand out cards at the moment
    by_runtime: frozenset[str] = frozenset()  # kinds that the node's container runtime hands out
    by_device_plugin: frozenset[str] = frozenset()  # kinds that kubelet's device plugins hand out
    # uid → the cards that a pod of this node has where its own record says, or said, something else
    corrected: Mapping[str, tuple[Slice, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()  # what the node says of itself that could not be read, in words


@dataclass(frozen=True, slots=True)
class NodeGone:
    name: str
    version: int = 0


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod that asks for cards. `slices` is what its record says it was given; none yet, or none readable, is empty."""

    uid: str
    namespace: str
    name: str
    request: Request
    version: int = 0
    node: str = ""
    slices: tuple[Slice, ...] = ()
    ended: bool = False
    started: bool = False  # its node's kubelet has acknowledged it
    rejected: bool = False  # kubelet has refused to admit it, for good
    priority: int = 0
    created: str = ""
    needs: Needs = ()
    refusal: Refusal | None = None  # why no node can serve it, if the request itself is wrong
    problems: tuple[str, ...] = ()  # what its record says that could not be read, in words
    runtime_notes: tuple[tuple[str, str], ...] = ()  # to be written beside its record where a container runtime hands out cards


@dataclass(frozen=True, slots=True)
class AgentSeen:
    """The pod that hands out a node's cards. While it is not ready, a pod bound there would die of it."""

    uid: str
    node: str
    ready: bool
    version: int = 0


@dataclass(frozen=True, slots=True)
class PodGone:
    uid: str
    version: int = 0


Fact: TypeAlias = NodeSeen | NodeGone | PodSeen | AgentSeen | PodGone
