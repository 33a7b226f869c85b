"""What the extender counts about itself, for Prometheus.

Belongs here: names, helps and labels of the metrics. Never: per-card series (the ledger's view has those), counting twice
what a log line already says.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from accelshare.ledger.refusals import Reason

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.decisions = Counter(
            "accelshare_decisions", "Answers given to kube-scheduler", ["verb", "outcome"], registry=self._registry
        )
        self.seconds = Histogram(
            "accelshare_decision_seconds", "Time from a call to its answer", ["verb"], buckets=_SECONDS, registry=self._registry
        )
        self.refusals = Counter(
            "accelshare_refused_nodes", "Nodes refused to a pod by filter", ["reason"], registry=self._registry
        )
        self.malformed = Counter(
            "accelshare_unreadable_objects", "Objects of the API server that could not be read", ["what"], registry=self._registry
        )
        self.interruptions = Counter(
            "accelshare_watch_interruptions", "Times that news of the API server stopped", ["what"], registry=self._registry
        )
        self.api_retries = Counter("accelshare_api_retries", "Requests to the API server sent again", registry=self._registry)
        self.woken = Counter(
            "accelshare_pods_woken",
            "Refused pods that fit since and that kube-scheduler was made to ask for again",
            registry=self._registry,
        )
        self.ready = Gauge("accelshare_ready", "1 when the ledger is whole", registry=self._registry)
        for reason in Reason:
            self.refusals.labels(reason.value)

    def text(self) -> bytes:
        return generate_latest(self._registry)
