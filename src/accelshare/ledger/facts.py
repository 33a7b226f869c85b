"""The facts that the ledger is made from: nodes, pods and agents as the API server shows them.

Belongs here: the facts. They may come twice, late or in any order; the version decides which is newer. Never: what follows from
them (ledger.py).
"""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TypeAlias, TypeVar

from accelshare.ledger.nouns import Card, Request, Resize, Slice, value
from accelshare.ledger.refusals import Refusal

T = TypeVar("T")

# How much of every resource a pod takes from its node, also of those that the ledger does not count: to compare sets of pods.
Needs: TypeAlias = tuple[tuple[str, int], ...]


@value
class NodeSeen:
    """A node with its cards. A node of no cards is still a node."""

    name: str
    version: int = 0
    cards: tuple[Card, ...] = ()
    address: str = ""
    paused: frozenset[str] = frozenset()  # kinds that the node cannot deliver at the moment
    by_runtime: frozenset[str] = frozenset()  # kinds that the node's container runtime delivers
    by_device_plugin: frozenset[str] = frozenset()  # kinds that kubelet's device plugins deliver
    # uid → the cards of pods of this node whose own record names, or named, others
    corrected: Mapping[str, tuple[Slice, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()  # messages about parts of the node that could not be read
    # uid → the last resize that the agent has answered, with the amount in force; None: slices of this node are never resized
    applied: Mapping[str, Resize] | None = None
    resizes: bool = False  # its agent resizes slices


@value
class NodeGone:
    name: str
    version: int = 0


@value
class WantedResize:
    """What a pod's owner wrote as the new amount of its slice; 0 units: it is no amount."""

    text: str
    units: int
    one_container: bool  # exactly one container of the pod requests cards


@value
class PodSeen:
    """A pod that requests cards. `slices` are the cards in its record; empty if there is none yet, or none that can be read."""

    uid: str
    namespace: str
    name: str
    request: Request
    version: int = 0
    node: str = ""
    slices: tuple[Slice, ...] = ()
    ended: bool = False
    started: bool = False  # its node's kubelet has acknowledged it
    scheduled: bool = False  # by a Binding, or started; a pod that names its node itself is not until kubelet acknowledges it
    rejected: bool = False  # kubelet has refused to admit it, for good
    priority: int = 0
    created: str = ""
    needs: Needs = ()
    refusal: Refusal | None = None  # why no node can serve it, if the request itself is wrong
    problems: tuple[str, ...] = ()  # messages about parts of its record that could not be read
    runtime_notes: tuple[tuple[str, str], ...] = ()  # annotations for the Binding on nodes where the container runtime delivers
    resize: WantedResize | None = None
    granted: Resize | None = None  # the last resize that the extender has granted
    in_gang: bool = False  # it is not bound yet, and is to be scheduled together with others


@value
class AgentSeen:
    """The agent's pod on a node. While it is not ready, kubelet may reject a pod that is bound there."""

    uid: str
    node: str
    ready: bool
    version: int = 0


@value
class PodGone:
    uid: str
    version: int = 0


Fact: TypeAlias = NodeSeen | NodeGone | PodSeen | AgentSeen | PodGone


def shared(known: T, new: T) -> T:
    """The known value if the new one equals it, so that one of them need not stay in memory."""
    return known if known == new else new


def sharing(known: PodSeen, new: PodSeen) -> PodSeen:
    """The new fact about a pod, with the parts of a known one that have not changed: there are tens of thousands of pods."""
    if new == known:
        return known
    return replace(
        new,
        uid=shared(known.uid, new.uid),
        name=shared(known.name, new.name),
        request=shared(known.request, new.request),
        slices=shared(known.slices, new.slices),
        created=shared(known.created, new.created),
        needs=shared(known.needs, new.needs),
    )
