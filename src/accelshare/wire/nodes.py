"""Reads the cards of a Node object.

Belongs here: reading nodes. The node's inventory has each card. A node without one, where an original plugin is still installed,
has only a total and a count; its cards are then assumed to be equal, as in the original systems. A node whose inventory cannot be
read has no cards: what is assumed would be without ids and health.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from sys import intern
from typing import Final

import msgspec

from accelshare.ledger.facts import NodeSeen
from accelshare.ledger.nouns import Card, Resize
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.profile import Profile
from accelshare.wire import assignment, inventory, resizing
from accelshare.wire.objects import Node, NodeStatus, Quantity, node_decoder, version_of
from accelshare.wire.quantity import whole_number

LONGEST_ADDRESS: Final = 64  # characters; an IPv6 address with its zone has fewer


class NodeReader:
    """Reads nodes with the resource names of a catalog."""

    def __init__(self, catalog: Catalog, *, resizes: bool | None = None) -> None:
        """`resizes`: whether slices are resized in this cluster; None: where the node's agent has reported that it does it."""
        self._resizes = resizes
        self._profiles = [(profile, _totals(profile)) for profile in catalog.profiles]
        self._kinds = frozenset(profile.name for profile in catalog.profiles)
        self._sets: dict[frozenset[str], frozenset[str]] = {}  # the same few sets of kinds for thousands of nodes

    def decode(self, raw: msgspec.Raw | bytes) -> NodeSeen:
        return self.fact(node_decoder.decode(raw))

    def fact(self, node: Node) -> NodeSeen:
        status = node.status or NodeStatus()
        annotations = node.metadata.annotations or {}
        text = annotations.get(inventory.KEY)
        found = inventory.read(text) if text is not None else inventory.Inventory()
        problems = found.problems
        cards: list[Card] = []
        amounts = status.capacity or status.allocatable or {}
        for profile, totals in self._profiles:
            if profile.name in found.cards:
                cards.extend(_with_rules(found.cards[profile.name], profile))
                continue
            if not found.readable or totals.isdisjoint(amounts):
                continue
            derived, problem = _equal_cards(profile, amounts)
            cards.extend(_with_rules(derived, profile))
            problems += problem
        addresses = {address.type: address.address for address in reversed(status.addresses or ())}
        return NodeSeen(
            name=intern(node.metadata.name),
            version=version_of(node.metadata),
            cards=tuple(cards),
            address=addresses.get("InternalIP", "")[:LONGEST_ADDRESS],
            paused=self._known(found.paused),
            by_runtime=self._known(found.by_runtime),
            by_device_plugin=self._known(found.by_device_plugin),
            corrected=assignment.corrected_slices(annotations.get(assignment.CORRECTED, "{}")),
            problems=problems,
            applied=self._applied(annotations),
            resizes=resizing.APPLIED in annotations,
        )

    def _known(self, kinds: frozenset[str]) -> frozenset[str]:
        known = kinds & self._kinds
        return self._sets.setdefault(known, known)

    def _applied(self, annotations: Mapping[str, str]) -> dict[str, Resize] | None:
        if self._resizes is False or (self._resizes is None and resizing.APPLIED not in annotations):
            return None
        return resizing.applied(annotations.get(resizing.APPLIED, "{}"))


def _totals(profile: Profile) -> frozenset[str]:
    """The resources of a node from which its cards can be derived."""
    names = (profile.resources.memory, profile.resources.count, profile.resources.whole)
    return frozenset(name for name in names if name is not None)


def _with_rules(cards: Iterable[Card], profile: Profile) -> Iterable[Card]:
    """The cards with what their vendor's profile says about each of them."""
    most = profile.request.max_slices_per_card
    return cards if most is None else [replace(card, max_slices=most) for card in cards]


def _equal_cards(profile: Profile, amounts: Mapping[str, Quantity]) -> tuple[list[Card], tuple[str, ...]]:
    total = _amount(amounts, profile.resources.memory)
    count = _amount(amounts, profile.resources.count)
    if total and not count:
        names = profile.resources
        missing = names.count or f"annotation {inventory.KEY}"
        return [], (f"{names.memory} is {total} but {missing} is missing; without it no card's size is known",)
    if not total or not count:
        # Nothing to slice; cards that another plugin delivers whole are still counted.
        count, total = _amount(amounts, profile.resources.whole), 0
    if count > inventory.MOST_CARDS or total > inventory.LARGEST_SIZE * max(count, 1):
        return [], (f"{profile.title}: {count} cards with {total} units in all cannot be right",)
    return [Card(profile.name, index, total // count) for index in range(count)], ()


def _amount(amounts: Mapping[str, Quantity], name: str | None) -> int:
    return (whole_number(amounts[name]) or 0) if name is not None and name in amounts else 0
