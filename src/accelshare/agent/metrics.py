"""What the agent counts about itself, for Prometheus.

Belongs here: names, helps and labels.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from accelshare.agent.device_plugin.waits import Waits
from accelshare.agent.discovery.device_inventory import DeviceInventory, Kind

_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_CARD: Final = ("node", "vendor", "card")


class Metrics:
    def __init__(self, node: str = "") -> None:
        self._node = node
        self._registry = CollectorRegistry()
        self.drift = Counter(
            "accelshare_drift", "Pods that kubelet put on another card than their record said", registry=self._registry
        )
        self._delivers = Gauge("accelshare_delivers", "1 while cards can be handed out", ["vendor"], registry=self._registry)
        self._problem = Gauge(
            "accelshare_vendor_problem",
            "1 while trouble of this vendor keeps it from being served",
            ["vendor"],
            registry=self._registry,
        )
        self._card_healthy = Gauge(
            "accelshare_agent_card_healthy", "1 while a card is healthy, as seen on its node", _CARD, registry=self._registry
        )
        self._card_memory = Gauge("accelshare_card_memory_bytes", "Memory of the card", _CARD, registry=self._registry)
        self._card_used = Gauge(
            "accelshare_card_used_bytes",
            "Memory of the card that is really in use, where its driver tells",
            _CARD,
            registry=self._registry,
        )
        wait = Histogram(
            "accelshare_bound_to_allocated_seconds",
            "From a bound pod's arrival at its node to its first card",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.waits = Waits(wait.observe)
        self.deliveries = Counter(
            "accelshare_deliveries",
            "Containers asked for by the container runtime, and pods replaced because one ran without its card",
            ["outcome"],
            registry=self._registry,
        )
        for outcome in ("delivered", "corrected", "refused", "replaced"):
            self.deliveries.labels(outcome)
        self.insists = Gauge(
            "accelshare_runtime_insists",
            "1 while the container runtime refuses containers rather than make them without their cards",
            registry=self._registry,
        )
        self.guarded = Counter(
            "accelshare_guard",
            "Containers that ask for no card of a kind and would have had some: withheld, refused, or found running",
            ["outcome"],
            registry=self._registry,
        )
        for outcome in ("withheld", "refused", "found"):
            self.guarded.labels(outcome)
        self.record_rewrites = Counter(
            "accelshare_record_rewrites",
            "Records of pods that somebody else changed after the bind; the pod kept its cards",
            registry=self._registry,
        )
        self.watch_current = Gauge(
            "accelshare_agent_watch_current",
            "1 while the agent's watch of its node's pods is open and not stalled",
            registry=self._registry,
        )
        self.waiting = Gauge("accelshare_waiting_pods", "Pods bound here that wait for their card", registry=self._registry)

    def show(self, devices: DeviceInventory) -> None:
        """What is on the shelf now. A card that is not there any more has no series any more."""
        self._card_healthy.clear()
        self._card_memory.clear()
        self._problem.clear()
        for name in (*devices.kinds, *devices.problems):
            self._problem.labels(name).set(name in devices.problems)
        for name, kind in devices.kinds.items():
            self._delivers.labels(name).set(devices.delivers.get(name, False))
            for card in kind.cards.values():
                where = (self._node, name, str(card.index))
                self._card_healthy.labels(*where).set(card.healthy)
                self._card_memory.labels(*where).set(card.found.memory_mib * 2**20)

    def show_use(self, kinds: Iterable[Kind], used_mib: Mapping[str, Mapping[str, int]]) -> None:
        """What the drivers' last looks saw, by vendor and card id."""
        self._card_used.clear()
        for kind in kinds:
            seen = used_mib.get(kind.profile.name, {})
            for card in kind.cards.values():
                if card.found.id in seen:
                    where = (self._node, kind.profile.name, str(card.index))
                    self._card_used.labels(*where).set(seen[card.found.id] * 2**20)

    def text(self) -> bytes:
        return generate_latest(self._registry)
