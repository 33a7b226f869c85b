"""How long before kube-scheduler takes a pod it must be nominated, and how soon kube-scheduler takes a pod.

Belongs here: these times, from what was observed. Never: which pods (plan.py).

A nomination takes a while: the request, and the watch event that shows it. kube-scheduler takes a nominated pod many times faster
than one for which it must search. All these times differ by a factor of a hundred between clusters, so they are measured.
Nominations that are sent at once delay each other, so their number grows only as they are seen.
"""

import math
from dataclasses import dataclass
from typing import Final

FIRST_GUESS_S: Final = 0.25  # how long a nomination takes, until some were seen: where pods wait, the API server is busy
LONGEST_S: Final = 5.0
MARGIN: Final = 3.0  # kube-scheduler may see it later than we do, and the next ones may take longer
FIRST_UNSEEN: Final = 8  # nominations on their way at once, before any was seen
UNSEEN_PART: Final = 0.25  # of all promises that may be open: with more on their way, each only takes longer
REMEMBERED_S: Final = 2.0  # with none on its way: a lead that is longer than the queue would stay for ever
FIRST_POD_S: Final = 0.01  # how long kube-scheduler takes for a pod, until it was seen
LONGEST_POD_S: Final = 1.0  # more than that between two calls is a pause
NEW_WEIGHT: Final = 0.1  # of an observation in the average


@dataclass(slots=True)
class _Measured:
    """What is known of nominations."""

    takes_s: float = FIRST_GUESS_S
    interval_s: float = 0.0  # between two that our watch shows while more are on their way
    seen: int = 0
    seen_at: float = -math.inf  # the last one


class Lead:
    def __init__(
        self, *, first_unseen: int = FIRST_UNSEEN, unseen_part: float = UNSEEN_PART, longest_s: float = LONGEST_S
    ) -> None:
        self._first_unseen = first_unseen
        self._unseen_part = unseen_part
        self._longest_s = longest_s
        self._last_call: tuple[float, bool] | None = None
        self._pod_s = {False: FIRST_POD_S, True: FIRST_POD_S}  # by whether it was nominated
        self._unseen: dict[str, float] = {}  # by uid: when a nomination was decided that our watch has not shown; oldest first
        self._measured = _Measured()

    def called(self, now: float, *, nominated: bool) -> None:
        """kube-scheduler has taken a pod, which was nominated as far as kube-scheduler knows, or not."""
        if self._last_call is not None:
            at, kind = self._last_call
            if (took_s := now - at) <= LONGEST_POD_S:
                self._pod_s[kind] += (took_s - self._pod_s[kind]) * NEW_WEIGHT
        self._last_call = now, nominated

    def decided(self, uid: str, now: float) -> None:
        """A nomination of this pod is sent now."""
        self._unseen[uid] = now

    def seen(self, uid: str, now: float) -> None:
        """Our own watch has shown the nomination."""
        if (decided := self._unseen.pop(uid, None)) is None:
            return
        measured, took_s = self._measured, now - decided
        measured.takes_s += (took_s - measured.takes_s) * (1.0 if took_s > measured.takes_s else NEW_WEIGHT)
        if decided < measured.seen_at:  # it was on its way already when the last one was seen
            measured.interval_s += (now - measured.seen_at - measured.interval_s) * NEW_WEIGHT
        measured.seen, measured.seen_at = measured.seen + 1, now

    def forget(self, uid: str) -> None:
        """The promise has ended."""
        self._unseen.pop(uid, None)

    @property
    def takes_s(self) -> float:
        """How long a nomination takes until our watch shows it."""
        return self._measured.takes_s

    def needed_s(self, now: float, *, queue_s: float = math.inf) -> float:
        """How long before kube-scheduler takes a pod its nomination must be sent.

        `queue_s`: in which it takes all that wait. Before anything was measured, the result is at most half of that.
        """
        if not self._unseen and self._measured.seen and now - self._measured.seen_at > REMEMBERED_S:
            self._measured = _Measured()
        measured = self._measured
        takes_s = measured.takes_s if measured.seen else min(measured.takes_s, queue_s / 2 / MARGIN)
        # The oldest that is still on its way takes at least as long as it has taken until now.
        waits_s = now - next(iter(self._unseen.values())) if self._unseen else 0.0
        behind_s = len(self._unseen) * measured.interval_s
        return min(self._longest_s, max(takes_s, waits_s, behind_s) * MARGIN)

    def pod_s(self, *, nominated: bool) -> float:
        """How long kube-scheduler takes for a pod."""
        return self._pod_s[nominated]

    def allows_more(self, most_promises: int) -> bool:
        """Whether one more nomination may be on its way: few at first, one more for each that was seen, and a part of all."""
        most = min(self._first_unseen + self._measured.seen, most_promises * self._unseen_part)
        return len(self._unseen) < most
