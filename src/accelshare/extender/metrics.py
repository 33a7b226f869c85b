"""The extender's own Prometheus metrics: decisions, refusals, the watches' health, bind latency.

Belongs here: names, help and labels of the metrics. Never: metrics of nodes, cards and pods (card_metrics.py).
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from accelshare.extender import gangs
from accelshare.extender.promises import plan
from accelshare.kube.watch import Reflector
from accelshare.ledger.refusals import Reason
from accelshare.ledger.resizing import ResizeReason

# The outcomes of each verb, beside "not-ready" and "unreadable".
OUTCOMES: Final[Mapping[str, tuple[str, ...]]] = {
    "filter": ("served", "refused"),
    "prioritize": ("served",),
    "preempt": ("served", "refused"),
    "bind": ("bound", "already", "elsewhere", "refused", "in-doubt", "gone", "unreachable", "failed", "unknown"),
}
MAX_UNSEEN_BINDS: Final = 4096  # binds that never appear on the watch, because the pod was deleted first
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class BindLatency:
    """Measures how far the watch lags: from sending a bind to seeing the pod bound on the watch."""

    def __init__(self, observe: Callable[[float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._observe = observe
        self._clock = clock
        self._sent: dict[str, float] = {}

    def sent(self, uid: str) -> None:
        """A bind of this pod is sent now."""
        self._sent[uid] = self._clock()
        if len(self._sent) > MAX_UNSEEN_BINDS:
            del self._sent[next(iter(self._sent))]

    def forget(self, uid: str) -> None:
        """The bind failed, so the watch will not show it."""
        self._sent.pop(uid, None)

    def seen(self, uid: str) -> None:
        """The watch showed the pod bound. Ignored unless we sent its bind and this is the first time."""
        sent = self._sent.pop(uid, None)
        if sent is not None:
            self._observe(self._clock() - sent)


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        decisions = Counter("accelshare_decisions", "Responses to kube-scheduler", ["verb", "outcome"], registry=self._registry)
        seconds = Histogram(
            "accelshare_decision_seconds",
            "Seconds from a request to its response, without the wait of a filter call",
            ["verb"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.filter_wait = Histogram(
            "accelshare_filter_wait_seconds",
            "Seconds that a filter call waited before it was decided: for binds on their way, or for the next pods' nominations",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.refusals = Counter(
            "accelshare_refused_nodes", "Nodes that filter refused, by reason", ["reason"], registry=self._registry
        )
        self.malformed = Counter(
            "accelshare_unreadable_objects",
            "Objects from the API server that could not be decoded",
            ["what"],
            registry=self._registry,
        )
        self.interruptions = Counter(
            "accelshare_watch_interruptions", "Interruptions of a watch of the API server", ["what"], registry=self._registry
        )
        self._watch_up = Gauge("accelshare_watch_up", "1 while the watch is established", ["what"], registry=self._registry)
        self._watch_silent = Gauge(
            "accelshare_watch_silent_seconds",
            "Seconds since the last watch event or bookmark",
            ["what"],
            registry=self._registry,
        )
        lag = Histogram(
            "accelshare_watch_lag_seconds",
            "Seconds from sending a bind to seeing it on the watch",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.bind_latency = BindLatency(lag.observe)
        self.api_retries = Counter("accelshare_api_retries", "Retried requests to the API server", registry=self._registry)
        self.tls_connections = Counter(
            "accelshare_tls_connections", "TLS connections opened to the port that kube-scheduler calls", registry=self._registry
        )
        self.requeued = Counter(
            "accelshare_pods_requeued",
            "Refused pods that fit later and were requeued in kube-scheduler",
            registry=self._registry,
        )
        self.record_rewrites = Counter(
            "accelshare_record_rewrites",
            "Assignment records of bound pods that another user changed; the pods stay counted on their cards",
            registry=self._registry,
        )
        self._resizes = Counter(
            "accelshare_resizes",
            "Answers to pods that wanted another amount of their slice: granted, or the reason of the refusal",
            ["outcome"],
            registry=self._registry,
        )
        self._promises = Counter(
            "accelshare_promises",
            "Promises of nodes to pending pods, by what became of them",
            ["outcome"],
            registry=self._registry,
        )
        self.promises_open = Gauge(
            "accelshare_promises_open", "Promises that are neither kept nor dropped yet", registry=self._registry
        )
        self._gang_holds = Counter(
            "accelshare_gang_holds",
            "Holds of cards for members of gangs between filter and bind, by how they ended",
            ["outcome"],
            registry=self._registry,
        )
        self.ready = Gauge(
            "accelshare_ready", "1 when nodes and pods are listed and the extender decides", registry=self._registry
        )
        self.leader = Gauge(
            "accelshare_extender_leader",
            "1 while this extender holds the lease, or runs without one; the others stand by",
            registry=self._registry,
        )
        self.lease_transitions = Counter(
            "accelshare_extender_lease_transitions",
            "Changes of the holder of the lease that this extender has seen",
            registry=self._registry,
        )
        self.lease_age = Gauge(
            "accelshare_extender_lease_renewal_age_seconds",
            "Seconds since this extender last renewed the lease; 0 while it is not the holder",
            registry=self._registry,
        )
        # A counter that does not exist before its first event hides that event from rate().
        for reason in Reason:
            self.refusals.labels(reason.value)
        for outcome in ("granted", *(reason.value for reason in ResizeReason)):
            self._resizes.labels(outcome)
        for outcome in gangs.OUTCOMES:
            self._gang_holds.labels(outcome)
        for outcome in plan.OUTCOMES:
            self._promises.labels(outcome)
        for what in ("nodes", "pods"):
            self.malformed.labels(what)
            self.interruptions.labels(what)
        # Resolved once: labels() takes longer than inc().
        self._decisions = {
            (verb, outcome): decisions.labels(verb, outcome)
            for verb, outcomes in OUTCOMES.items()
            for outcome in (*outcomes, "not-ready", "unreadable")
        }
        self._seconds = {verb: seconds.labels(verb) for verb in OUTCOMES}

    def decided(self, verb: str, outcome: str) -> None:
        self._decisions[verb, outcome].inc()

    def resized(self, outcome: str) -> None:
        self._resizes.labels(outcome).inc()

    def gang_hold_ended(self, outcome: str) -> None:
        self._gang_holds.labels(outcome).inc()

    def promise_ended(self, outcome: str) -> None:
        self._promises.labels(outcome).inc()

    def took(self, verb: str, seconds: float) -> None:
        self._seconds[verb].observe(seconds)

    def watches(self, what: str, reflector: Reflector[Any]) -> None:
        """Export the state of this reflector's watch."""
        self._watch_up.labels(what).set_function(lambda: float(reflector.watching))
        self._watch_silent.labels(what).set_function(lambda: reflector.silent_s)

    def text(self) -> bytes:
        return generate_latest(self._registry)
