"""What one container is given of one kind of card, once it is known which cards.

Belongs here: from a pod's record to card numbers of this node, from those to the profile's container edits. Pure. Never: whose
turn it is (waiting_room.py), how it reaches the container (device_plugin/, nri_way/).
"""

from collections.abc import Callable, Collection, Mapping

from accelshare.agent.discovery.device_inventory import Kind
from accelshare.ledger.nouns import Slice
from accelshare.vendors.container_edits import CardShare, ContainerEdits, edits
from accelshare.wire.node_pods import NodePod


def numbering(here: Kind) -> Callable[[Slice], int]:
    """From a slice of any record to its card as this node numbers it now; -1 for a card that is not here."""
    by_id = {id: card.index for card in here.cards.values() for id in card.found.former_ids}
    by_id |= {card.found.id: card.index for card in here.cards.values()}
    return lambda slice_: by_id.get(slice_.id, -1) if slice_.id else slice_.index


def recorded_cards(pod: NodePod, here: Kind, *, whole: bool) -> list[int]:
    """The cards of the pod's record as this node numbers them now; none if one of them is not here."""
    number = numbering(here)
    cards = [number(s) for s in pod.seen.slices if s.kind == here.profile.name and s.whole == whole]
    return cards if all(card in here.cards for card in cards) else []


def whole_cards(pod: NodePod, here: Kind, container: str, held: Mapping[str, Collection[int]] | None = None) -> list[int]:
    """The whole cards of one container: those of the pod's record, shared out over its containers as kubelet does it.

    Containers that run side by side have different cards; an ordinary init container uses those of whoever comes after it. The
    order of the manifest and of the record decides. `held` are containers whose cards are certain already.
    """
    held = held or {}
    together = {part.container for part in pod.parts if not part.ends_first}
    fresh = recorded_cards(pod, here, whole=True)
    again: list[int] = []  # had by init containers that have ended
    for part in pod.parts:
        amount = sum(want[2] for want in part.wants if want[0] == here.profile.name and want[1])
        others = {card for name in together & held.keys() - {part.container} for card in held[name]}
        mine = [
            card
            for card in held.get(part.container) or (*again, *(card for card in fresh if card not in again))
            if part.ends_first or card not in others
        ][:amount]
        if part.container == container:
            return mine
        fresh = [card for card in fresh if card not in mine]
        again = [card for card in again if card not in mine]
        if part.ends_first:
            again += mine
    return []


def shares(here: Kind, cards: Mapping[int, int], *, whole: bool) -> list[CardShare]:
    """These cards, each with the container's units of it."""
    return [
        CardShare(
            index=index,
            minor=here.cards[index].found.minor,
            id=here.cards[index].found.id,
            units=here.cards[index].units if whole else units,
            card_units=here.cards[index].units,
            unit_mib=here.unit_mib,
            whole=whole,
            cdi_name=here.cards[index].cdi_name,
        )
        for index, units in cards.items()
    ]


def given(
    pod: NodePod,
    here: Kind,
    cards: Mapping[int, int],
    *,
    whole: bool,
    amount: int,
    exists: Callable[[str], bool],
    node_labels: Mapping[str, str],
) -> ContainerEdits:
    """The edits of a container that asked for `amount` and gets these units of these cards."""
    parts = shares(here, cards, whole=whole)
    kind = here.profile.name
    return edits(
        here.profile,
        cards=parts,
        container_units=sum(part.units for part in parts) if whole else amount,
        pod_units=sum(
            ask.cards * parts[0].card_units if whole else ask.units
            for ask in pod.seen.request
            if ask.kind == kind and ask.whole == whole
        ),
        exists=exists,
        node_labels=node_labels,
        enforcement=None if whole else here.enforcement,
    )
