"""What the extender counts about itself, for Prometheus.

Belongs here: names, helps and labels of the metrics. Never: series of nodes, cards and pods (series.py).
"""

from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from accelshare.extender.bind_latency import BindLatency
from accelshare.kube.watch import Reflector
from accelshare.ledger.refusals import Reason

# What can become of a call to each verb, beside "not-ready" and "unreadable".
OUTCOMES: Final[Mapping[str, tuple[str, ...]]] = {
    "filter": ("served", "refused"),
    "prioritize": ("served",),
    "preempt": ("served", "refused"),
    "bind": ("bound", "already", "elsewhere", "refused", "in-doubt", "gone", "unreachable", "failed", "unknown"),
}
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        decisions = Counter(
            "accelshare_decisions", "Answers given to kube-scheduler", ["verb", "outcome"], registry=self._registry
        )
        seconds = Histogram(
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
        self._watch_up = Gauge("accelshare_watch_up", "1 while the API server's news come in", ["what"], registry=self._registry)
        self._watch_silent = Gauge(
            "accelshare_watch_silent_seconds",
            "Since when nothing has come, not even a bookmark",
            ["what"],
            registry=self._registry,
        )
        lag = Histogram(
            "accelshare_watch_lag_seconds",
            "From sending a bind to its echo on the watch",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.bind_latency = BindLatency(lag.observe)
        self.api_retries = Counter("accelshare_api_retries", "Requests to the API server sent again", registry=self._registry)
        self.woken = Counter(
            "accelshare_pods_woken",
            "Refused pods that fit since and that kube-scheduler was made to ask for again",
            registry=self._registry,
        )
        self.record_rewrites = Counter(
            "accelshare_record_rewrites",
            "Records of bound pods that somebody else changed; the pods are counted on the cards they have",
            registry=self._registry,
        )
        self.ready = Gauge("accelshare_ready", "1 when the ledger is whole", registry=self._registry)
        # A counter that is not there before its first event hides that event from every rate.
        for reason in Reason:
            self.refusals.labels(reason.value)
        for what in ("nodes", "pods"):
            self.malformed.labels(what)
            self.interruptions.labels(what)
        # Found once, because finding a label's counter takes longer than counting.
        self._decisions = {
            (verb, outcome): decisions.labels(verb, outcome)
            for verb, outcomes in OUTCOMES.items()
            for outcome in (*outcomes, "not-ready", "unreadable")
        }
        self._seconds = {verb: seconds.labels(verb) for verb in OUTCOMES}

    def decided(self, verb: str, outcome: str) -> None:
        self._decisions[verb, outcome].inc()

    def took(self, verb: str, seconds: float) -> None:
        self._seconds[verb].observe(seconds)

    def watches(self, what: str, reflector: Reflector[Any]) -> None:
        """Show how this reflector's watch is doing whenever somebody looks."""
        self._watch_up.labels(what).set_function(lambda: float(reflector.watching))
        self._watch_silent.labels(what).set_function(lambda: reflector.silent_s)

    def text(self) -> bytes:
        return generate_latest(self._registry)
