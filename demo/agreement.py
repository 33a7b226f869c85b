"""Do the books agree? A pod's record in the cluster, kubelet's book of device ids, and what its containers were given.

Belongs here: comparing the three of one pod, and what a node offers with what is taken. Never: correcting anything, which is
the agent's work.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from accelshare.agent.device_plugin.device_ids import card_of
from accelshare.ledger.facts import PodSeen
from accelshare.testing.fake_kubelet import Admitted
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.container_edits import CardShare, ContainerEdits, edits
from accelshare.vendors.profile import Profile
from accelshare.wire import inventory
from accelshare.wire.inventory import KindEntry
from accelshare.wire.objects import Node
from accelshare.wire.quantity import whole_number

Held: TypeAlias = Mapping[tuple[str, int, bool], int]  # (kind, card, whole) → units, or 1 for a whole card


def told(node: Node) -> dict[str, KindEntry]:
    """What the node's agent has published."""
    text = (node.metadata.annotations or {}).get(inventory.KEY)
    return inventory.entries_of(text) if text is not None else {}


def disagreements(pod: PodSeen, admitted: Admitted, node: Node, catalog: Catalog) -> Iterator[str]:
    """In words, whatever one of the three books says otherwise than the record; nothing if they agree."""
    recorded = {(s.kind, s.index, s.whole): 1 if s.whole else s.units for s in pod.slices}
    booked = _booked(admitted, catalog)
    if recorded != booked:
        yield f"the record of {admitted.name} says {_words(recorded)}, kubelet's book says {_words(booked)}"
    for container in admitted.ids:
        wanted = _by_record(pod, admitted, container, told(node), catalog)
        devices = {device.container_path for due in wanted for device in due.device_nodes}
        if devices != set(admitted.devices(container)):
            yield f"container {container} of {admitted.name} was given {admitted.devices(container)}, due are {sorted(devices)}"
        env = admitted.env(container)
        for name, value in ((name, value) for due in wanted for name, value in due.env.items()):
            if env.get(name) != value:
                yield f"container {container} of {admitted.name} was given {name}={env.get(name)!r}, due is {value!r}"


def given(admitted: Admitted, catalog: Catalog) -> Iterator[str]:
    """How each container of a pod sees its cards: the device files, and the variables that name cards to the vendor's runtime."""
    for container, by_resource in admitted.ids.items():
        naming = [name for profile, _ in _asked(by_resource, catalog) for name in profile.container.envvar]
        env = admitted.env(container)
        yield ", ".join([*admitted.devices(container), *(f"{name}={env[name]}" for name in naming if name in env)])


def offered_though_taken(node: Node, pods: Iterable[PodSeen], catalog: Catalog) -> list[str]:
    """The resources of which a node shows more than it has: cards held whole are not there in slices, nor the reverse."""
    here = [s for pod in pods if pod.node == node.metadata.name and not pod.ended for s in pod.slices]
    wrong = []
    for kind, entry in told(node).items():
        resources = catalog[kind].resources
        closed = {whole: {s.index for s in here if s.kind == kind and s.whole != whole} for whole in (False, True)}
        left = {
            resources.memory: sum(card.size for card in entry.cards if card.index not in closed[False]),
            resources.whole: sum(1 for card in entry.cards if card.index not in closed[True]),
        }
        wrong += [name for name, amount in left.items() if name is not None and shown(node, name) > amount]
    return wrong


def shown(node: Node, resource: str) -> int:
    """How much of a resource the node shows."""
    return whole_number(((node.status and node.status.allocatable) or {}).get(resource)) or 0


def _booked(admitted: Admitted, catalog: Catalog) -> Held:
    # A later container of a pod may hold what an init container had: the same id counts once.
    ids = {(name, one) for by_resource in admitted.ids.values() for name, ids in by_resource.items() for one in ids}
    return Counter((profile.name, card_of(one), whole) for name, one in ids for profile, whole in _asked([name], catalog))


def _by_record(
    pod: PodSeen, admitted: Admitted, container: str, cards: Mapping[str, KindEntry], catalog: Catalog
) -> list[ContainerEdits]:
    """What the profiles give to a container with the cards of the pod's record, as far as the node has them."""
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
                    units=card.size if whole else len(ids) // len(recorded),
                    card_units=card.size,
                    unit_mib=profile.unit.mib[entry.unit],
                    whole=whole,
                )
                for card in entry.cards
                if card.id in recorded
            ]
            alone = sum(share.units for share in shares)  # a card that is held whole counts with all its units
            pod_units = alone if whole else sum(s.units for s in recorded.values())
            mine = alone if whole else len(ids)
            due.append(edits(profile, cards=shares, container_units=mine, pod_units=pod_units, exists=lambda _: True))
    return due


def _asked(resources: Iterable[str], catalog: Catalog) -> list[tuple[Profile, bool]]:
    """The profile of each resource of ours, and whether it asks for whole cards."""
    return [(found[0], found[1] == "whole") for name in resources if (found := catalog.by_resource(name)) is not None]


def _words(held: Held) -> str:
    return ", ".join(f"{kind} card {card} {'whole' if whole else units}" for (kind, card, whole), units in sorted(held.items()))
