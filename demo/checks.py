"""Checks that a pod's record, kubelet's device ids and its containers' devices are the same cards.

Belongs here: comparing the three, and a node's allocatable amounts with its free cards. Never: correcting anything, which the
agent does.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from accelshare.agent.container_cards import share_of
from accelshare.agent.device_plugin.device_ids import card_of
from accelshare.ledger.facts import PodSeen
from accelshare.testing.fake_kubelet import Admitted
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.container_edits import CardShare, ContainerEdits, edits
from accelshare.vendors.profile import Profile
from accelshare.vendors.shapes import cost
from accelshare.wire import inventory
from accelshare.wire.inventory import KindEntry
from accelshare.wire.objects import Node
from accelshare.wire.quantity import whole_number

Held: TypeAlias = Mapping[tuple[str, int, bool], int]  # (kind, card, whole) → units, or 1 for a whole card


def published_cards(node: Node) -> dict[str, KindEntry]:
    """The inventory that the node's agent has published, by kind."""
    text = (node.metadata.annotations or {}).get(inventory.KEY)
    return inventory.entries_of(text) if text is not None else {}


def disagreements(pod: PodSeen, admitted: Admitted, node: Node, catalog: Catalog) -> Iterator[str]:
    """Every difference between the pod's record, kubelet's device ids and the containers' devices and variables."""
    recorded = {(s.kind, s.index, s.whole): 1 if s.whole else s.units for s in pod.slices}
    allocated = _allocated(admitted, catalog)
    if recorded != allocated:
        yield f"the record of {admitted.name} has {_words(recorded)}, kubelet allocated {_words(allocated)}"
    for container in admitted.ids:
        expected = _by_record(pod, admitted, container, published_cards(node), catalog)
        devices = {device.container_path for due in expected for device in due.device_nodes}
        if devices != set(admitted.devices(container)):
            yield f"container {container} of {admitted.name} has {admitted.devices(container)}; expected {sorted(devices)}"
        env = admitted.env(container)
        for name, value in ((name, value) for due in expected for name, value in due.env.items()):
            if env.get(name) != value:
                yield f"container {container} of {admitted.name} has {name}={env.get(name)!r}; expected {value!r}"


def visible_cards(admitted: Admitted, catalog: Catalog) -> Iterator[str]:
    """For each container its device files, and the variables that name cards to the vendor's runtime."""
    for container, by_resource in admitted.ids.items():
        naming = [name for profile, _ in _asked(by_resource, catalog) for name in profile.container.envvar]
        env = admitted.env(container)
        yield ", ".join([*admitted.devices(container), *(f"{name}={env[name]}" for name in naming if name in env)])


def oversold_resources(node: Node, pods: Iterable[PodSeen], catalog: Catalog) -> list[str]:
    """The resources of which a node shows more than is free: a card held whole has no free slices, and the reverse."""
    here = [s for pod in pods if pod.node == node.metadata.name and not pod.ended for s in pod.slices]
    wrong = []
    for kind, entry in published_cards(node).items():
        resources = catalog[kind].resources
        closed = {whole: {s.index for s in here if s.kind == kind and s.whole != whole} for whole in (False, True)}
        left = {
            resources.memory: sum(card.size for card in entry.cards if card.index not in closed[False]),
            resources.whole: sum(1 for card in entry.cards if card.index not in closed[True]),
        }
        wrong += [name for name, amount in left.items() if name is not None and allocatable(node, name) > amount]
    return wrong


def allocatable(node: Node, resource: str) -> int:
    """The node's allocatable amount of a resource."""
    return whole_number(((node.status and node.status.allocatable) or {}).get(resource)) or 0


def _allocated(admitted: Admitted, catalog: Catalog) -> Held:
    """What kubelet's ids are of each card; a container's slice counts with its shape, if the profile has shapes."""
    held = Counter[tuple[str, int, bool]]()
    seen = set[tuple[str, str]]()  # a container may reuse the ids of an init container: the same id counts once
    for by_resource in admitted.ids.values():
        for name, ids in by_resource.items():
            new = [one for one in ids if (name, one) not in seen]
            seen |= {(name, one) for one in new}
            for profile, whole in _asked([name], catalog):
                for card, units in Counter(card_of(one) for one in new).items():
                    held[profile.name, card, whole] += units if whole else cost(profile, units) or units
    return held


def _by_record(
    pod: PodSeen, admitted: Admitted, container: str, cards: Mapping[str, KindEntry], catalog: Catalog
) -> list[ContainerEdits]:
    """The edits that profiles make for a container with the cards of the pod's record."""
    due = []
    for resource, ids in admitted.ids[container].items():
        for profile, whole in _asked([resource], catalog):
            entry = cards[profile.name]
            recorded = {s.id: s for s in pod.slices if s.kind == profile.name and s.whole == whole}
            shares = [
                CardShare(
                    index=card.index,
                    minor=card.minor,
                    id=card.id,
                    units=card.size if whole else share_of(profile, len(ids), len(recorded)),
                    card_units=card.size,
                    unit_mib=profile.unit.mib[entry.unit],
                    whole=whole,
                )
                for card in entry.cards
                if card.id in recorded
            ]
            alone = sum(share.units for share in shares)  # a card that is held whole counts with all its units
            pod_units = alone if whole else sum(s.units for s in recorded.values())
            mine = alone if whole or profile.request.shapes else len(ids)
            due.append(edits(profile, cards=shares, container_units=mine, pod_units=pod_units, exists=lambda _: True))
    return due


def _asked(resources: Iterable[str], catalog: Catalog) -> list[tuple[Profile, bool]]:
    """The profile of each resource of ours, and whether it asks for whole cards."""
    return [(match[0], match[1] == "whole") for name in resources if (match := catalog.by_resource(name)) is not None]


def _words(held: Held) -> str:
    return ", ".join(f"{kind} card {card} {'whole' if whole else units}" for (kind, card, whole), units in sorted(held.items()))
