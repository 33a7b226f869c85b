"""What the agent counts about itself, for Prometheus.

Belongs here: names, helps and labels.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.drift = Counter(
            "accelshare_drift", "Pods that kubelet put on another card than their record said", registry=self._registry
        )
        self.delivers = Gauge("accelshare_delivers", "1 while cards can be handed out", ["kind"], registry=self._registry)
        self.card_healthy = Gauge(
            "accelshare_card_healthy", "1 while a card is healthy", ["kind", "card"], registry=self._registry
        )
        self.waiting = Gauge("accelshare_waiting_pods", "Pods bound here that wait for their card", registry=self._registry)

    def text(self) -> bytes:
        return generate_latest(self._registry)
