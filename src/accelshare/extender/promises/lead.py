"""How long before kube-scheduler takes a pod it must be nominated, and how soon kube-scheduler takes a pod.

Belongs here: these times, from what was observed. Never: which pods (plan.py).

A nomination takes a while: the request, and the watch event that shows it. kube-scheduler takes a nominated pod many times faster
than one for which it must search. All these times differ by a factor of a hundred between clusters, so they are measured.
"""

import math
from typing import Final

FIRST_GUESS_S: Final = 0.25  # how long a nomination takes, until some were seen: where pods wait, the API server is busy
SHORTEST_S: Final = 0.02  # it is assumed to take, while none is measured
LONGEST_S: Final = 5.0
MARGIN: Final = 2.0  # kube-scheduler may see it later than we do
FIRST_UNSEEN: Final = 8  # nominations on their way at once, before any was seen
FIRST_POD_S: Final = 0.01  # how long kube-scheduler takes for a pod, until it was seen
LONGEST_POD_S: Final = 1.0  # more than that between two calls is a pause
NEW_WEIGHT: Final = 0.1  # of an observation in the average
LATER: Final = 1.1  # for each nomination that was too late
SOONER: Final = 0.98  # for each one that was in time
UNMEASURED: Final = 0.99  # for each pod that is taken while no nomination is on its way
LARGEST_FACTOR: Final = 4.0


class Lead:
    def __init__(self, *, first_unseen: int = FIRST_UNSEEN, longest_s: float = LONGEST_S) -> None:
        self._first_unseen = first_unseen
        self._longest_s = longest_s
        self._last_call: tuple[float, bool] | None = None
        self._pod_s = {False: FIRST_POD_S, True: FIRST_POD_S}  # by whether it was nominated
        self._unseen: dict[str, float] = {}  # by uid: when a nomination was decided that our watch has not shown; oldest first
        self._measured = False
        self._takes_s = FIRST_GUESS_S
        self._factor = MARGIN

    def called(self, now: float, *, nominated: bool) -> None:
        """kube-scheduler has taken a pod, which was nominated as far as kube-scheduler knows, or not."""
        if self._last_call is not None:
            at, kind = self._last_call
            if (took_s := now - at) <= LONGEST_POD_S:
                self._pod_s[kind] += (took_s - self._pod_s[kind]) * NEW_WEIGHT
        self._last_call = now, nominated
        if not self._unseen:  # nothing is measured: a lead that is longer than the queue would stay for ever
            self._takes_s = max(min(self._takes_s, SHORTEST_S), self._takes_s * UNMEASURED)
            self._factor = max(MARGIN, self._factor * UNMEASURED)

    def decided(self, uid: str, now: float) -> None:
        """A nomination of this pod is sent now."""
        self._unseen[uid] = now

    def seen(self, uid: str, now: float) -> None:
        """Our own watch has shown the nomination."""
        if (decided := self._unseen.pop(uid, None)) is not None:
            self._measured = True
            took_s = now - decided
            self._takes_s += (took_s - self._takes_s) * (1.0 if took_s > self._takes_s else NEW_WEIGHT)

    def forget(self, uid: str) -> None:
        """The promise has ended."""
        self._unseen.pop(uid, None)

    def in_time(self) -> None:
        """kube-scheduler has used a nomination."""
        self._factor = max(MARGIN, self._factor * SOONER)

    def too_late(self) -> None:
        """kube-scheduler has taken a pod without seeing its nomination."""
        self._factor = min(LARGEST_FACTOR, self._factor * LATER)

    @property
    def takes_s(self) -> float:
        """How long a nomination takes until our watch shows it."""
        return self._takes_s

    def needed_s(self, now: float, *, queue_s: float = math.inf) -> float:
        """How long before kube-scheduler takes a pod its nomination must be sent.

        `queue_s`: in which it takes all that wait. Before anything was measured, the result is at most half of that.
        """
        takes_s = self._takes_s if self._measured else min(self._takes_s, queue_s / 2 / self._factor)
        # The oldest that is still on its way takes at least as long as it has taken until now.
        waits_s = now - next(iter(self._unseen.values())) if self._unseen else 0.0
        return min(self._longest_s, max(takes_s, waits_s) * self._factor)

    def pod_s(self, *, nominated: bool) -> float:
        """How long kube-scheduler takes for a pod."""
        return self._pod_s[nominated]

    def allows_more(self) -> bool:
        """Whether one more nomination may be on its way: few, until it is known how long they take."""
        return self._measured or len(self._unseen) < self._first_unseen
