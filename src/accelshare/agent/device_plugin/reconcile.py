"""Reconciles pods' records with what kubelet allocated: sets the assigned flag, and corrects the cards if they differ.

Belongs here: comparing and correcting. Never: allocating.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from accelshare.agent.container_cards import numbering
from accelshare.agent.delivery_mode import CurrentMode
from accelshare.agent.device_plugin.device_ids import by_card
from accelshare.agent.device_plugin.pod_queue import Holding, PodQueue, holds_all
from accelshare.agent.device_plugin.pod_resources import PodResourcesReader
from accelshare.agent.discovery.device_inventory import DeviceInventory, VendorCards
from accelshare.agent.metrics import AgentMetrics
from accelshare.agent.pinned_records import PinnedRecords, cards_text
from accelshare.agent.retries import Retries
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, KubeError, NotFound
from accelshare.kube.events import Events, PodRef
from accelshare.kube.patches import annotate_pod
from accelshare.ledger.nouns import Slice
from accelshare.vendors.catalog import Catalog
from accelshare.wire import assignment
from accelshare.wire.node_pods import NodePod

log = logging.getLogger(__name__)
BATCH_S: Final = 0.2  # several containers of a pod are served within this
EVERY_S: Final = 10.0
AT_LEAST_S: Final = 1.0  # between two tries, also while kubelet does not answer and nothing can be tried


class Reconcile:
    def __init__(
        self,
        client: Client,
        pod_queue: PodQueue,
        devices: DeviceInventory,
        catalog: Catalog,
        events: Events,
        metrics: AgentMetrics,
        *,
        pod_resources: PodResourcesReader,
        pins: PinnedRecords,
        mode: CurrentMode,
        now_ns: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._pod_queue = pod_queue
        self._devices = devices
        self._profiles = {profile.name: profile for profile in catalog}
        self._events = events
        self._metrics = metrics
        self._pod_resources = pod_resources
        self._mode = mode
        self._pins = pins
        self._now_ns = now_ns
        self._retries = Retries(clock)
        self._wanted = asyncio.Event()
        pod_queue.allocated.subscribe(self.request)
        pod_queue.pods.subscribe(seen=lambda pod: self.request() if pod.terminating else None, gone=lambda _pod: self.request())

    def request(self) -> None:
        """Reconcile soon."""
        self._wanted.set()

    async def run(self) -> None:
        while True:
            await self.once()
            try:
                async with asyncio.timeout(max(self._retries.next_due_s(EVERY_S), AT_LEAST_S)):
                    await self._wanted.wait()
                await asyncio.sleep(BATCH_S)
            except TimeoutError:
                pass
            self._wanted.clear()

    async def once(self) -> None:
        """Read PodResources and correct the pods' records."""
        if await self._pod_resources.read() is None and not self._pod_resources.unsupported:
            return
        self._retries.keep_only({pod.uid for pod in self._pod_queue.pods.values() if not pod.terminating})
        for pod in list(self._pod_queue.pods.values()):
            if not pod.terminating and self._retries.due(pod.uid):
                await self._correct(pod, self._pod_queue.holding(pod))

    async def _correct(self, pod: NodePod, holding: Holding) -> None:
        real = self._slices(pod, holding)
        if real is None:
            self._retries.forget(pod.uid)
            return
        moved = bool(pod.seen.slices) and self._places(real) != self._places(pod.seen.slices)
        annotations = self._record(pod, real, rewrite=moved or not pod.seen.slices)
        if not annotations:
            self._retries.forget(pod.uid)
            return
        seen = pod.seen
        try:
            if assignment.OURS in annotations:
                await self._pins.correct(pod.uid, real, annotations)
            await annotate_pod(self._client, namespace=seen.namespace, name=seen.name, uid=seen.uid, annotations=annotations)
        except (NotFound, Conflict):
            self._retries.forget(pod.uid)
            return
        except KubeError as error:
            if self._retries.failed(pod.uid, error):
                log.warning("reconcile pod=%s outcome=failed error=%r", pod.name, str(error))
            return
        self._retries.forget(pod.uid)
        log.info("reconcile pod=%s cards=%s outcome=%s", pod.name, cards_text(real), "moved" if moved else "assigned")
        if moved:
            self._metrics.drift.inc()
            await self._events.record(
                PodRef(namespace=seen.namespace, name=seen.name, uid=seen.uid),
                kind="Warning",
                reason="AcceleratorMoved",
                message=f"kubelet allocated {cards_text(real)}, the record named {cards_text(seen.slices)}; it is corrected",
            )

    def _slices(self, pod: NodePod, holding: Holding) -> tuple[Slice, ...] | None:
        """The cards that kubelet's ids name; None while a container lacks its ids, or if neither ids nor record name cards."""
        if not holds_all(pod, holding):
            return None
        real: list[Slice] = []
        for ask in pod.seen.request:
            vendor = self._devices.kinds.get(ask.kind)
            ids = {i for container in holding.values() for i in container.get((ask.kind, ask.whole), ())}
            cards = [vendor.index_at(slot) for slot in by_card(ids)] or _by_hardware_id(ids, vendor) if vendor is not None else []
            recorded = [s for s in pod.seen.slices if s.kind == ask.kind and s.whole == ask.whole]
            if ask.kind in self._mode.get().corrected_kinds and recorded and not pod.by_hand:
                real += recorded
            elif vendor is None or len(cards) != ask.cards or any(card not in vendor.cards for card in cards):
                # A kubelet that asks for no preference takes ids of any card; then the container got the cards of its record.
                if not recorded:
                    return None
                real += recorded
            else:
                real += [Slice(ask.kind, card, ask.share, ask.whole, vendor.cards[card].found.id) for card in cards]
        return tuple(real)

    def _record(self, pod: NodePod, real: tuple[Slice, ...], *, rewrite: bool) -> dict[str, str]:
        """The annotations to write: the whole record if its cards changed, else only the assigned flag."""
        kinds = {slice_.kind for slice_ in real if not slice_.whole}
        flags = {key: "true" for kind in kinds if (key := self._profiles[kind].annotations.assigned) is not None}
        if rewrite:
            sizes = {(name, card.index): card.units for name, kind in self._devices.kinds.items() for card in kind.cards.values()}
            if any((slice_.kind, slice_.index) not in sizes for slice_ in real):
                return {}  # a card of the record is not here now; nothing is written until it is
            written = assignment.write(real, profiles=self._profiles, sizes=sizes, now_ns=self._now_ns())
            return written | flags
        return {key: value for key, value in flags.items() if pod.annotations.get(key) != value}

    def _places(self, slices: tuple[Slice, ...]) -> set[tuple[str, int, bool]]:
        """The cards by the indexes that they have now: an index in a record may be from before a card was unplugged."""
        numbers = {kind: numbering(vendor) for kind, vendor in self._devices.kinds.items()}
        return {(s.kind, numbers[s.kind](s) if s.kind in numbers else s.index, s.whole) for s in slices}


def _by_hardware_id(device_ids: Iterable[str], vendor: VendorCards) -> list[int]:
    """The cards that another plugin's ids name: hardware ids, perhaps with a replica number after two colons."""
    by_id = {card.found.id: index for index, card in vendor.cards.items()}
    named = {device_id.partition("::")[0] for device_id in device_ids}
    return sorted(by_id[name] for name in named) if named <= by_id.keys() else []
