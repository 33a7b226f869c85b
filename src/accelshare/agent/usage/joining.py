"""From the processes on each card to the use of each pod and card. Pure.

Belongs here: which process counts for which pod's part of which card. Never: reading processes, time.
"""

from collections.abc import Iterable, Mapping, Sequence

from accelshare.agent.container_cards import numbering
from accelshare.agent.discovery.device_inventory import InventoryCard, VendorCards
from accelshare.vendors.drivers.driver import CardProcess
from accelshare.wire.node_pods import NodePod, by_uid_at_kubelet
from accelshare.wire.usage import MOST_LISTED, CardUse, OtherProcess, PodUse

MIB = 2**20


def join(
    vendor: VendorCards,
    processes: Mapping[str, Sequence[CardProcess]],
    uids: Mapping[int, str],
    pods: Iterable[NodePod],
) -> tuple[list[PodUse], list[CardUse]]:
    """The use of this vendor's cards. `processes`: by card id. `uids`: by process, the uid that kubelet has for its pod."""
    living = [pod for pod in pods if not pod.seen.ended]
    by_uid = by_uid_at_kubelet(living)
    held = {(pod.uid, card): held for pod in living for card, held in _held_bytes(pod, vendor).items()}
    pod_uses: list[PodUse] = []
    card_uses: list[CardUse] = []
    for card in vendor.cards.values():
        if card.found.id not in processes:  # it does not tell
            continue
        of_pods: dict[str, list[CardProcess]] = {pod.uid: [] for pod in living if (pod.uid, card.index) in held}
        others: list[tuple[CardProcess, str]] = []
        for process in processes[card.found.id]:
            pod = by_uid.get(uids.get(process.pid, ""))
            if pod is not None and pod.uid in of_pods:
                of_pods[pod.uid].append(process)
            else:
                others.append((process, pod.name if pod is not None else ""))
        pod_uses += [
            PodUse(
                namespace=pod.seen.namespace,
                name=pod.seen.name,
                uid=pod.uid,
                kind=vendor.profile.name,
                card=card.index,
                held_bytes=held[pod.uid, card.index],
                used_bytes=_memory(of_pods[pod.uid]),
                utilisation=_utilisation(of_pods[pod.uid]),
            )
            for pod in living
            if pod.uid in of_pods
        ]
        card_uses.append(_card_use(vendor, card, processes[card.found.id], others))
    return pod_uses, card_uses


def _card_use(
    vendor: VendorCards, card: InventoryCard, processes: Sequence[CardProcess], others: Sequence[tuple[CardProcess, str]]
) -> CardUse:
    largest = sorted(others, key=lambda each: -(each[0].used_bytes or 0))[:MOST_LISTED]
    return CardUse(
        kind=vendor.profile.name,
        card=card.index,
        used_bytes=_memory(processes),
        utilisation=_utilisation(processes),
        used_by_others_bytes=_memory([process for process, _ in others]),
        others=tuple(OtherProcess(process.pid, process.used_bytes, pod) for process, pod in largest),
    )


def _held_bytes(pod: NodePod, vendor: VendorCards) -> dict[int, int]:
    """By card index: what the pod holds. Who holds all units of a card holds its memory, which may be no whole number of them."""
    number = numbering(vendor)
    units: dict[int, int] = {}
    for slice_ in pod.seen.slices:
        card = vendor.cards.get(number(slice_)) if slice_.kind == vendor.profile.name else None
        if card is not None:
            units[card.index] = units.get(card.index, 0) + (card.units if slice_.whole else slice_.units)
    return {
        index: max(round(held * vendor.unit_mib), card.found.memory_mib if held >= card.units else 0) * MIB
        for index, held in units.items()
        for card in (vendor.cards[index],)
    }


def _memory(processes: Sequence[CardProcess]) -> int | None:
    """The sum of what is known; None if there are processes and nothing is known."""
    known = [process.used_bytes for process in processes if process.used_bytes is not None]
    return None if processes and not known else sum(known)


def _utilisation(processes: Sequence[CardProcess]) -> float | None:
    known = [process.utilisation for process in processes if process.utilisation is not None]
    return None if processes and not known else min(1.0, sum(known))
