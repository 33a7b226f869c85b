"""Answers kubelet's anonymous requests: which device ids to take, and what the container gets.

Belongs here: combining the pod of a request (pod_queue.py), the device inventory and the profile's container edits. Never: gRPC
(plugin.py), the API server (reconcile.py).

The ids that kubelet holds decide a pod's cards; its record names the cards that they should be. If the ids are of as many cards
as the pod requests, those are its cards, even if its record names others. A kubelet that asks for no preference takes ids at
random, and they name no card: then the record decides for all pods alike, or two sources could oversell a card.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError

from accelshare.agent.container_cards import container_edits, numbering, recorded_cards, share_of
from accelshare.agent.delivery_mode import CurrentMode
from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as api
from accelshare.agent.device_plugin.checkpoint import Allocation
from accelshare.agent.device_plugin.device_ids import by_card, cards_of, select_on_any, select_on_cards
from accelshare.agent.device_plugin.matching import Match
from accelshare.agent.device_plugin.pod_queue import Holding, PodQueue
from accelshare.agent.discovery.device_inventory import DeviceInventory, VendorCards
from accelshare.vendors.container_edits import ContainerEdits
from accelshare.vendors.problems import VendorError
from accelshare.vendors.profile import Profile
from accelshare.wire.node_pods import NodePod, by_uid_at_kubelet


class AllocationError(Exception):
    """The pod is known and cannot get what it requests; the message gives the reason."""


class WrongPodError(AllocationError):
    """The node is able to deliver; the pod's own specification is wrong."""


@dataclass(frozen=True, slots=True)
class _Preference:
    ids: frozenset[str]
    match: Match


class Allocator:
    def __init__(
        self,
        devices: DeviceInventory,
        pod_queue: PodQueue,
        read_holdings: Callable[[], Awaitable[Mapping[str, Holding] | None]],
        *,
        mode: CurrentMode,
        exists: Callable[[str], bool],
        node_labels: Callable[[], Mapping[str, str]] = dict,
        wrong_handler: Callable[[Profile, str], str] = lambda _profile, _handler: "",
        has_handler: Callable[[Profile], bool] = lambda _profile: False,
        on_served: Callable[[str], None] = lambda _uid: None,
    ) -> None:
        """`read_holdings`: PodResources by pod name, None without an answer. `on_served` gets the uid of a served pod."""
        self._devices = devices
        self._pod_queue = pod_queue
        self._read_holdings = read_holdings
        self._mode = mode
        self._exists = exists
        self._node_labels = node_labels
        self._wrong_handler = wrong_handler
        self._has_handler = has_handler
        self._on_served = on_served
        self._preferences: dict[tuple[str, bool], _Preference] = {}
        self._asks_preference = False  # kubelet asks which ids to take, so its ids name cards

    def kubelet_restarted(self) -> None:
        self._preferences.clear()
        self._pod_queue.kubelet_restarted()

    async def prefer(self, kind: str, *, whole: bool, available: Collection[str], must: Collection[str], size: int) -> list[str]:
        """The ids that kubelet should take for this request."""
        self._asks_preference = True
        match = await self._pod_queue.match((kind, whole, size), holdings=await self._read_holdings())
        pod = self._pod_queue.pods[match.uid]
        chosen = self._choose(pod, kind, whole=whole, available=available, must=must, size=size)
        if chosen is None:
            raise AllocationError(f"pod {pod.name} requests {size} of {kind}, and no card has that many free: {_free(available)}")
        self._preferences[kind, whole] = _Preference(frozenset(chosen), match)
        return chosen

    async def allocate(self, kind: str, *, whole: bool, device_ids: Collection[str]) -> ContainerEdits:
        """What a container gets for these ids of kubelet's choice."""
        preference = self._preferences.pop((kind, whole), None)
        if preference is not None and preference.ids == set(device_ids):
            match = preference.match
        else:
            slots = cards_of(device_ids) if self._asks_preference else ()
            named_cards = {self._devices.kinds[kind].index_at(slot) for slot in slots}
            match = await self._pod_queue.match(
                (kind, whole, len(device_ids)), holdings=await self._read_holdings(), cards=named_cards
            )
        pod = self._pod_queue.pods[match.uid]
        vendor = self._devices.kinds[kind]
        # kubelet reuses ids of the pod's init containers without asking for a preference.
        named = (
            device_ids if preference is not None or self._pod_queue.ids_of(pod, kind, whole=whole).issuperset(device_ids) else ()
        )
        # The handler of a RuntimeClass is not known here; without a RuntimeClass it is the default one.
        if not pod.runtime_class and (problem := self._wrong_handler(vendor.profile, "")):
            refused = WrongPodError if self._has_handler(vendor.profile) else AllocationError
            raise refused(f"pod {pod.name}: {problem}")
        cards = self._cards(pod, vendor, whole=whole, named=named, amount=len(device_ids))
        closed = self.closed(kind, whole=whole)
        for card in cards if kind not in self._corrected() else ():
            if vendor.slot_of(card) in closed and not _has_both(pod, kind):
                raise AllocationError(
                    f"pod {pod.name} got card {card} of {kind}, which another pod holds {'in slices' if whole else 'whole'}"
                )
        for card in sorted(cards.keys() & self._cards_without_room(pod, vendor)) if not whole else ():
            raise AllocationError(
                f"pod {pod.name} got card {card} of {kind}, which other pods' slices leave no room for another of this size"
            )
        result = self._edits(pod, vendor, cards, whole=whole, amount=len(device_ids))
        if kind in self._corrected():
            result = _without_own_variables(result, pod, match.container)
        self._on_served(match.uid)
        self._pod_queue.served(match, named)
        return result

    def renumbered(
        self, kind: str, *, whole: bool, allocations: Iterable[Allocation]
    ) -> dict[frozenset[str], tuple[NodePod, str]]:
        """The containers, by their ids, for which kubelet keeps an answer that now names other cards than theirs."""
        pods = by_uid_at_kubelet(pod for pod in self._pod_queue.pods.values() if not pod.seen.ended)
        vendor = self._devices.kinds[kind]
        renumbered: dict[frozenset[str], tuple[NodePod, str]] = {}
        for one in allocations:
            pod = pods.get(one.uid)
            if pod is None or not one.answer:
                continue
            try:
                kept = api.ContainerAllocateResponse.FromString(one.answer)
                cards = self._cards(pod, vendor, whole=whole, named=one.ids, amount=len(one.ids))
                now = self._edits(pod, vendor, cards, whole=whole, amount=len(one.ids))
            except (DecodeError, AllocationError, VendorError):
                continue  # its card is not here now: nothing to compare with
            if names_other_cards(vendor.profile, kept, now):
                renumbered[one.ids] = pod, one.container
        return renumbered

    def closed(self, kind: str, *, whole: bool) -> set[int]:
        """The slots of cards that cannot be used: held whole, if slices are requested; held in slices, if whole cards are."""
        by_record: set[int] = set()
        if kind in self._corrected() or not self._pod_queue.kubelet_reports:
            live = (pod for pod in self._pod_queue.pods.values() if not pod.seen.ended)
            vendor = self._devices.kinds[kind]
            number = numbering(vendor)
            by_record = {
                vendor.slot_of(number(s)) for pod in live for s in pod.seen.slices if s.kind == kind and s.whole != whole
            }
        return by_record if kind in self._corrected() else by_record | cards_of(self._pod_queue.all_ids(kind, whole=not whole))

    def _corrected(self) -> frozenset[str]:
        """Kinds whose containers NRI makes equal to the record after us: their ids need not name the right card."""
        return self._mode.get().corrected_kinds

    def _edits(self, pod: NodePod, vendor: VendorCards, cards: Mapping[int, int], *, whole: bool, amount: int) -> ContainerEdits:
        labels = self._node_labels()
        return container_edits(pod, vendor, cards, whole=whole, amount=amount, exists=self._exists, node_labels=labels)

    def _choose(
        self, pod: NodePod, kind: str, *, whole: bool, available: Collection[str], must: Collection[str], size: int
    ) -> list[str] | None:
        vendor = self._devices.kinds[kind]
        recorded = [vendor.slot_of(card) for card in recorded_cards(pod, vendor, whole=whole)]
        if recorded:
            chosen = select_on_cards(available, must=must, size=size, cards=recorded)
            if chosen is not None:
                return chosen
        # It has no recorded card, or that one is taken: the fullest card that fits, if possible not a waiting pod's card.
        requested = next((ask.cards for ask in pod.seen.request if ask.kind == kind and ask.whole == whole), 1)
        cards = min(size, requested)
        closed = self.closed(kind, whole=whole)
        if not whole:
            closed |= {vendor.slot_of(card) for card in self._cards_without_room(pod, vendor)}
        spare = self._without_recorded(available, kind, whole=whole, but=pod.uid)
        for among in (spare, available):
            chosen = select_on_any(among, must=must, size=size, cards=cards, closed=closed)
            if chosen is not None:
                return chosen
        if kind in self._corrected() and len(available) >= size:
            return [*must, *(i for i in sorted(available) if i not in set(must))][:size]
        return None

    def _cards_without_room(self, pod: NodePod, vendor: VendorCards) -> set[int]:
        """The cards that cannot take this pod's slice, though kubelet has free ids of them: it counts what pods request, and a
        slice takes its whole shape. The extender ensures room; this is for pods that reach the node without it.
        """
        rules, kind = vendor.profile.request, vendor.profile.name
        if not rules.shapes and rules.max_slices_per_card is None:
            return set()
        number = numbering(vendor)
        used, slices = Counter[int](), Counter[int]()
        for other in self._pod_queue.pods.values():
            if other.uid == pod.uid or other.seen.ended:
                continue
            share = _share(other, kind)
            recorded = {number(s) for s in other.seen.slices if s.kind == kind and not s.whole}
            held = {vendor.index_at(slot) for slot in cards_of(self._pod_queue.ids_of(other, kind, whole=False))}
            for card in recorded or held:
                used[card] += share
                slices[card] += 1
        share, most = _share(pod, kind), rules.max_slices_per_card
        return {
            index
            for index, card in vendor.cards.items()
            if used[index] + share > card.units or (most is not None and slices[index] >= most)
        }

    def _without_recorded(self, available: Collection[str], kind: str, *, whole: bool, but: str) -> list[str]:
        recorded_units: dict[int, int] = {}
        vendor = self._devices.kinds[kind]
        number = numbering(vendor)
        for pod in self._pod_queue.waiting_pods():
            for slice_ in pod.seen.slices if pod.uid != but else ():
                if slice_.kind == kind:
                    card = vendor.slot_of(number(slice_))
                    recorded_units[card] = recorded_units.get(card, 0) + (10**9 if slice_.whole or whole else slice_.units)
        return [i for card, free in by_card(available).items() for i in free[: max(0, len(free) - recorded_units.get(card, 0))]]

    def _cards(self, pod: NodePod, vendor: VendorCards, *, whole: bool, named: Collection[str], amount: int) -> dict[int, int]:
        """The container's cards and its units of each: those that its ids name, if they name any, else those of the record.

        Of a kind that NRI corrects, the record's cards are given at once: NRI may be away when the container is created.
        """
        kind = vendor.profile.name
        cards = {vendor.index_at(slot): len(ids) for slot, ids in by_card(named).items()}
        requested = next((ask.cards for ask in pod.seen.request if ask.kind == kind and ask.whole == whole), 1)
        recorded = recorded_cards(pod, vendor, whole=whole)
        by_record = kind in self._corrected() and recorded and not pod.by_hand and (not whole or len(recorded) == amount)
        if by_record or not 0 < len(cards) <= requested:
            if not recorded:
                raise AllocationError(
                    f"pod {pod.name} got ids that kubelet took at random, and its record names no card of {kind}"
                )
            cards = {card: amount // len(recorded) for card in recorded}
        if not whole and vendor.profile.request.shapes:
            cards = {card: share_of(vendor.profile, units, 1) for card, units in cards.items()}
        unknown = [card for card in cards if card not in vendor.cards]
        if unknown:
            raise AllocationError(f"pod {pod.name} got ids of card {unknown[0]} of {kind}, which this node does not have")
        return cards


def _without_own_variables(edits: ContainerEdits, pod: NodePod, container: str) -> ContainerEdits:
    """The edits without variables that the manifest of the container sets, as some name their card by an annotation.

    kubelet would pass both values, of which NRI can replace only one. It gives the manifest's variable our value. For a pod
    without a record it gives none, so such a pod gets all variables, and is refused.
    """
    if pod.by_hand or not pod.seen.slices:
        return edits
    own = next((part.variables for part in pod.parts if part.container == container), frozenset())
    return replace(edits, env={name: value for name, value in edits.env.items() if name not in own}) if own else edits


def _share(pod: NodePod, kind: str) -> int:
    """What the pod takes of each card of which it has a slice."""
    return next((ask.share for ask in pod.seen.request if ask.kind == kind and not ask.whole), 0)


def _has_both(pod: NodePod, kind: str) -> bool:
    return len({ask.whole for ask in pod.seen.request if ask.kind == kind}) > 1


def _free(available: Collection[str]) -> str:
    return ", ".join(f"card {card} has {len(free)}" for card, free in by_card(available).items()) or "nothing is free"


def names_other_cards(profile: Profile, kept: api.ContainerAllocateResponse, now: ContainerEdits) -> bool:
    """Whether an answer that kubelet keeps for restarts names other cards than the container has now.

    Hardware ids stay right; an index or minor number names another card after cards were numbered again, say by a reboot.
    """
    rules = profile.container
    templates = {**rules.cdi.env, **rules.device_nodes.env, **rules.volume_mounts.env, **rules.envvar, **rules.env}
    for name, template in templates.items():
        if _by_number(template) and name in kept.envs and name in now.env and kept.envs[name] != now.env[name]:
            return True
    if any(_by_number(template) for template in profile.hardware.device_nodes):
        shared = set(profile.hardware.shared_device_nodes)
        files = {device.host_path for device in kept.devices} - shared
        if files and files != {node.host_path for node in now.device_nodes} - shared:
            return True
    if _by_number(rules.volume_mounts.container_path):
        mounts = {mount.container_path for mount in kept.mounts}
        if mounts and not mounts.issuperset(mount.container_path for mount in now.mounts):
            return True
    return _by_number(rules.cdi.name) and bool(kept.cdi_devices) and {d.name for d in kept.cdi_devices} != set(now.cdi_devices)


def _by_number(template: str | None) -> bool:
    return template is not None and any(f"{{{name}}}" in template for name in ("index", "minor", "card_node", "render_node"))
