"""The extender's own Prometheus metrics: decisions, refusals, the watches' health, bind latency.

Belongs here: names, help and labels of the metrics. Never: metrics of nodes, cards and pods (card_metrics.py).
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from accelshare.kube.watch import Reflector
from accelshare.ledger.refusals import Reason

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
            "Seconds from a request to its response",
            ["verb"],
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
        self.woken = Counter(
            "accelshare_pods_woken",
            "Refused pods that fit later and were requeued in kube-scheduler",
            registry=self._registry,
        )
        self.record_rewrites = Counter(
            "accelshare_record_rewrites",
            "Assignment records of bound pods that another user changed; the pods stay counted on their cards",
            registry=self._registry,
        )
        self.ready = Gauge(
            "accelshare_ready", "1 when nodes and pods are listed and the extender decides", registry=self._registry
        )
        # A counter that does not exist before its first event hides that event from rate().
        for reason in Reason:
            self.refusals.labels(reason.value)
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

    def took(self, verb: str, seconds: float) -> None:
        self._seconds[verb].observe(seconds)

    def watches(self, what: str, reflector: Reflector[Any]) -> None:
        """Export the state of this reflector's watch."""
        self._watch_up.labels(what).set_function(lambda: float(reflector.watching))
        self._watch_silent.labels(what).set_function(lambda: reflector.silent_s)

    def text(self) -> bytes:
        return generate_latest(self._registry)
