"""What of a node's object an agent wrote. Pure.

Belongs here: telling the agents' annotation and amounts from everything else on a node. Never: the API server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accelshare.vendors.catalog import Catalog
from accelshare.wire import inventory
from accelshare.wire.decoding import UnreadableError
from accelshare.wire.objects import Node


@dataclass(frozen=True, slots=True)
class Traces:
    """The inventory and the amounts of one node; `unknown` are kinds whose resources no profile names."""

    node: str
    amounts: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        what = ", ".join(("inventory", *self.amounts))
        said = tuple(f"node {self.node}: no profile knows {kind}, its amounts stay" for kind in self.unknown)
        return (f"node {self.node}: {what} taken away", *said)


def resources(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """The names under which each kind's amounts are shown."""
    return {
        profile.name: tuple(
            name for name in (profile.resources.count, profile.resources.memory, profile.resources.whole) if name is not None
        )
        for profile in catalog
    }


def find(node: Node, known: Mapping[str, Sequence[str]]) -> Traces | None:
    """What is to be taken from this node; None if no agent ever told anything of it."""
    text = (node.metadata.annotations or {}).get(inventory.KEY)
    if text is None:
        return None
    try:
        kinds = sorted(inventory.entries_of(text))
    except UnreadableError:
        kinds = []  # whoever broke it, an agent once wrote it
    shown = {**(node.status.capacity or {}), **(node.status.allocatable or {})} if node.status else {}
    ours = [name for kind in kinds for name in known.get(kind, ())]
    return Traces(
        node=node.metadata.name,
        amounts=tuple(name for name in ours if name in shown),
        unknown=tuple(kind for kind in kinds if kind not in known),
    )
