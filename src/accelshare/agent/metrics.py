"""The agent's Prometheus metrics: names, help texts, labels, and how long bound pods wait for their cards."""

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from accelshare.agent.discovery.device_inventory import DeviceInventory, VendorCards
from accelshare.wire.usage import NodeUse

_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_CARD: Final = ("node", "vendor", "card")
_POD: Final = (*_CARD, "namespace", "pod")


class PodWaits:
    """The time from a bound pod's arrival on the watch to its first card. Pods that were there before the agent do not count."""

    def __init__(self, observe: Callable[[float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._observe = observe
        self._clock = clock
        self._since: dict[str, float] = {}

    def begin(self, uid: str) -> None:
        self._since[uid] = self._clock()

    def served(self, uid: str) -> None:
        since = self._since.pop(uid, None)
        if since is not None:
            self._observe(self._clock() - since)

    def forget(self, uid: str) -> None:
        """The pod has ended or terminates, and waits no more."""
        self._since.pop(uid, None)


class AgentMetrics:
    def __init__(self, node: str = "") -> None:
        self._node = node
        self._registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self._registry), partial(Gauge, registry=self._registry)
        self.drift = counter("accelshare_drift", "Pods that got another card from kubelet than their record named")
        self._delivers = gauge("accelshare_delivers", "1 while the node can deliver cards of this vendor", ["vendor"])
        self._problem = gauge(
            "accelshare_vendor_problem", "1 while a problem keeps this vendor's cards from being delivered", ["vendor"]
        )
        self._card_healthy = gauge("accelshare_agent_card_healthy", "1 while the card is healthy, as its node sees it", _CARD)
        self._card_memory = gauge("accelshare_card_memory_bytes", "Memory of the card", _CARD)
        self._card_used = gauge(
            "accelshare_card_used_bytes", "Memory of the card that is in use, where the driver reports it", _CARD
        )
        self._card_enforcement = gauge(
            "accelshare_agent_card_enforcement",
            "1 for the way in which a pod's share of the card is enforced; the way is nobody where it is not",
            (*_CARD, "way"),
        )
        self.limit_repairs = counter(
            "accelshare_limit_repairs", "Limits of living containers that were missing or wrong, and were set again"
        )
        self._resizes = counter(
            "accelshare_agent_resizes",
            "Granted resizes of slices that the agent has answered: the new limit is set, or the old one stays",
            ["outcome"],
        )
        for outcome in ("applied", "failed"):
            self._resizes.labels(outcome)
        self._card_used_by_others = gauge(
            "accelshare_card_used_by_others_bytes",
            "Memory of the card in use by processes of no pod that holds it",
            _CARD,
        )
        self._pod_used = gauge("accelshare_pod_used_bytes", "Memory of the card that the pod's processes use", _POD)
        self._pod_utilisation = gauge(
            "accelshare_pod_utilisation_ratio", "Share of the time in which the pod's processes ran on the card", _POD
        )
        self._pod_over_use = gauge(
            "accelshare_pod_over_use_bytes",
            "Memory of the card that the pod uses beyond what it holds, or 0",
            _POD,
        )
        self._pod_idle = gauge(
            "accelshare_pod_idle_seconds",
            "For how long the pod has held a part of the card without using it",
            _POD,
        )
        self.over_use_evictions = counter(
            "accelshare_over_use_evictions", "Pods that were evicted because they used more than they hold"
        )
        wait = Histogram(
            "accelshare_bound_to_allocated_seconds",
            "Seconds from a bound pod's arrival at its node to its first card",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.waits = PodWaits(wait.observe)
        self.deliveries = counter(
            "accelshare_deliveries",
            "Containers that the container runtime asked about, and pods replaced because a container ran without its card",
            ["outcome"],
        )
        for outcome in ("delivered", "corrected", "refused", "replaced"):
            self.deliveries.labels(outcome)
        self.validated = gauge(
            "accelshare_runtime_insists", "1 while the container runtime's validator refuses containers that lack their cards"
        )
        self.guarded = counter(
            "accelshare_guard",
            "Containers that request no card of a kind and would have got one: withheld, refused, or found running",
            ["outcome"],
        )
        for outcome in ("withheld", "refused", "found"):
            self.guarded.labels(outcome)
        self.record_rewrites = counter(
            "accelshare_record_rewrites", "Pod records that somebody else changed after the bind; the pods kept their cards"
        )
        self.watch_current = gauge(
            "accelshare_agent_watch_current", "1 while the agent's watch of its node's pods is open and not stalled"
        )
        self.waiting = gauge("accelshare_waiting_pods", "Pods bound to this node that wait for their cards")

    def resized(self, outcome: str) -> None:
        self._resizes.labels(outcome).inc()

    def show(self, devices: DeviceInventory) -> None:
        """Set the series of all cards in the inventory; a card that is gone has no series any more."""
        self._card_healthy.clear()
        self._card_memory.clear()
        self._card_enforcement.clear()
        self._problem.clear()
        for name in (*devices.kinds, *devices.problems):
            self._problem.labels(name).set(name in devices.problems)
        for name, kind in devices.kinds.items():
            self._delivers.labels(name).set(devices.delivers.get(name, False))
            for card in kind.cards.values():
                where = (self._node, name, str(card.index))
                self._card_healthy.labels(*where).set(card.healthy)
                self._card_memory.labels(*where).set(card.found.memory_mib * 2**20)
                if card.enforcement is not None:
                    self._card_enforcement.labels(*where, card.enforcement.name).set(1)

    def show_use(self, kinds: Iterable[VendorCards], used_mib: Mapping[str, Mapping[str, int]]) -> None:
        """Set the memory in use as the drivers last read it, by vendor and card id."""
        self._card_used.clear()
        for kind in kinds:
            seen = used_mib.get(kind.profile.name, {})
            for card in kind.cards.values():
                if card.found.id in seen:
                    where = (self._node, kind.profile.name, str(card.index))
                    self._card_used.labels(*where).set(seen[card.found.id] * 2**20)

    def show_usage(self, use: NodeUse | None) -> None:
        """Set the series of the pods and cards in the last sample; a pod that has ended has no series any more."""
        for family in (
            self._card_used_by_others,
            self._pod_used,
            self._pod_utilisation,
            self._pod_over_use,
            self._pod_idle,
        ):
            family.clear()
        for card in use.cards if use is not None else ():
            if card.used_by_others_bytes is not None:
                self._card_used_by_others.labels(self._node, card.kind, str(card.card)).set(card.used_by_others_bytes)
        for pod in use.pods if use is not None else ():
            where = (self._node, pod.kind, str(pod.card), pod.namespace, pod.name)
            if pod.used_bytes is not None:
                self._pod_used.labels(*where).set(pod.used_bytes)
                over = max(0, pod.used_bytes - pod.held_bytes) if pod.over_use else 0
                self._pod_over_use.labels(*where).set(over)
            if pod.utilisation is not None:
                self._pod_utilisation.labels(*where).set(pod.utilisation)
            self._pod_idle.labels(*where).set(pod.idle_s or 0.0)

    def text(self) -> bytes:
        return generate_latest(self._registry)
