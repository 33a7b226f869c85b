"""Which cards of this node one container gets by its pod's record, and the container edits for them.

Belongs here: from a pod's record to this node's card indexes, from those to the profile's container edits. Pure. Never: which pod
a kubelet request is for (device_plugin/), how edits reach the container (device_plugin/, nri/).
"""

from collections.abc import Callable, Collection, Mapping

from accelshare.agent.discovery.device_inventory import VendorCards
from accelshare.ledger.nouns import Slice
from accelshare.vendors.container_edits import CardShare, ContainerEdits, edits
from accelshare.vendors.profile import Profile
from accelshare.vendors.shapes import cost
from accelshare.wire.node_pods import NodePod


def numbering(vendor: VendorCards) -> Callable[[Slice], int]:
    """From a slice of any record to its card as this node numbers it now; -1 for a card that is not here."""
    by_id = {id: card.index for card in vendor.cards.values() for id in card.found.former_ids}
    by_id |= {card.found.id: card.index for card in vendor.cards.values()}
    return lambda slice_: by_id.get(slice_.id, -1) if slice_.id else slice_.index


def recorded_cards(pod: NodePod, vendor: VendorCards, *, whole: bool) -> list[int]:
    """The cards of the pod's record as this node numbers them now; none if one of them is not here."""
    number = numbering(vendor)
    cards = [number(s) for s in pod.seen.slices if s.kind == vendor.profile.name and s.whole == whole]
    return cards if all(card in vendor.cards for card in cards) else []


def whole_cards(
    pod: NodePod, vendor: VendorCards, container: str, held: Mapping[str, Collection[int]] | None = None
) -> list[int]:
    """The whole cards of one container: those of the pod's record, distributed over its containers as kubelet does it.

    Containers that run side by side have different cards; an ordinary init container uses cards of the containers after it. The
    order of the manifest and of the record decides. `held`: the cards of containers for which they are certain already.
    """
    held = held or {}
    together = {part.container for part in pod.parts if not part.ends_first}
    fresh = recorded_cards(pod, vendor, whole=True)
    reusable: list[int] = []  # of init containers that have ended
    for part in pod.parts:
        amount = sum(want[2] for want in part.wants if want[0] == vendor.profile.name and want[1])
        others = {card for name in together & held.keys() - {part.container} for card in held[name]}
        mine = [
            card
            for card in held.get(part.container) or (*reusable, *(card for card in fresh if card not in reusable))
            if part.ends_first or card not in others
        ][:amount]
        if part.container == container:
            return mine
        fresh = [card for card in fresh if card not in mine]
        reusable = [card for card in reusable if card not in mine]
        if part.ends_first:
            reusable += mine
    return []


def share_of(profile: Profile, amount: int, cards: int) -> int:
    """A container's units of each of its cards, if it requests this amount: what the ledger counts for it."""
    share = amount // cards
    return cost(profile, share) or share


def shares(vendor: VendorCards, cards: Mapping[int, int], *, whole: bool) -> list[CardShare]:
    """These cards, each with the units that the container has of it."""
    return [
        CardShare(
            index=index,
            minor=vendor.cards[index].found.minor,
            id=vendor.cards[index].found.id,
            pci=vendor.cards[index].found.pci,
            card_node=vendor.cards[index].found.card_node,
            render_node=vendor.cards[index].found.render_node,
            units=vendor.cards[index].units if whole else units,
            card_units=vendor.cards[index].units,
            unit_mib=vendor.unit_mib,
            whole=whole,
            cdi_name=vendor.cards[index].cdi_name,
            enforcement=None if whole else vendor.cards[index].enforcement,
        )
        for index, units in cards.items()
    ]


def container_edits(
    pod: NodePod,
    vendor: VendorCards,
    cards: Mapping[int, int],
    *,
    whole: bool,
    amount: int,
    exists: Callable[[str], bool],
    node_labels: Mapping[str, str],
) -> ContainerEdits:
    """The edits of a container that requests `amount` and gets these units of these cards."""
    parts = shares(vendor, cards, whole=whole)
    kind = vendor.profile.name
    return edits(
        vendor.profile,
        cards=parts,
        container_units=sum(part.units for part in parts) if whole or vendor.profile.request.shapes else amount,
        pod_units=sum(
            ask.cards * parts[0].card_units if whole else ask.units
            for ask in pod.seen.request
            if ask.kind == kind and ask.whole == whole
        ),
        exists=exists,
        node_labels=node_labels,
    )


def correctable(profile: Profile) -> bool:
    """Whether NRI can replace what a device plugin gave of this kind: variables yes, device files no (NRI loses removals)."""
    return not {"device-nodes", "cdi"} & set(profile.container.strategy)
