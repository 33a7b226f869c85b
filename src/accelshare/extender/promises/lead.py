"""How far ahead of kube-scheduler the plan must be, so that a nomination reaches it before it takes the pod.

Belongs here: the lead, in pods, from what was observed. Never: which pods (plan.py).

A nomination takes a while: the request, and the watch event that shows it. Meanwhile kube-scheduler takes more pods. Both times
differ by a factor of a hundred between a calm cluster and a busy one, so they are measured.
"""

from collections import deque
from typing import Final

FEWEST: Final = 6.0  # pods
MOST: Final = 384.0
FIRST_UNSEEN: Final = 4  # nominations on their way at once, before any was seen
FIRST_GUESS_S: Final = 0.1  # how long a nomination takes, until one was seen
MARGIN: Final = 1.5  # kube-scheduler may see it later than we do
RECENT_CALLS: Final = 128
SLOWEST_CALLS_S: Final = 10.0  # after a pause of that length the earlier pace says nothing
FORGET: Final = 0.1  # the weight of a new observation
LATER: Final = 1.1  # for each nomination that was too late
SOONER: Final = 0.98  # for each one that was in time
UNUSED: Final = 0.99  # for each pod that is taken while none is on its way
LARGEST_FACTOR: Final = 4.0


class Lead:
    def __init__(self, *, fewest: float = FEWEST, most: float = MOST, first_unseen: int = FIRST_UNSEEN) -> None:
        self._fewest = fewest
        self._most = most
        self._first_unseen = first_unseen
        self._calls: deque[float] = deque(maxlen=RECENT_CALLS)
        self._unseen: dict[str, float] = {}  # by uid: when a nomination was decided that our watch has not shown; oldest first
        self._takes_s = FIRST_GUESS_S
        self._factor = MARGIN

    def called(self, now: float) -> None:
        """kube-scheduler has taken a pod."""
        if self._calls and now - self._calls[-1] > SLOWEST_CALLS_S:
            self._calls.clear()
        self._calls.append(now)
        if not self._unseen:  # nothing is measured: a lead that is longer than the queue would stay for ever
            self._takes_s = max(min(self._takes_s, FIRST_GUESS_S), self._takes_s * UNUSED)
            self._factor = max(MARGIN, self._factor * UNUSED)

    def decided(self, uid: str, now: float) -> None:
        """A nomination of this pod is sent now."""
        self._unseen[uid] = now

    def seen(self, uid: str, now: float) -> None:
        """Our own watch has shown the nomination."""
        if (decided := self._unseen.pop(uid, None)) is not None:
            took_s = now - decided
            self._takes_s += (took_s - self._takes_s) * (1.0 if took_s > self._takes_s else FORGET)

    def forget(self, uid: str) -> None:
        """The promise has ended."""
        self._unseen.pop(uid, None)

    @property
    def takes_s(self) -> float:
        """How long a nomination takes until our watch shows it."""
        return self._takes_s

    def in_time(self) -> None:
        """kube-scheduler has used a nomination."""
        self._factor = max(MARGIN, self._factor * SOONER)

    def too_late(self) -> None:
        """kube-scheduler has taken a pod without seeing its nomination."""
        self._factor = min(LARGEST_FACTOR, self._factor * LATER)

    def pods(self, now: float) -> int:
        """How many pods at the head of the queue to leave to kube-scheduler."""
        if len(self._calls) < 2:
            return int(self._fewest)
        per_s = (len(self._calls) - 1) / max(1e-3, self._calls[-1] - self._calls[0])
        # The oldest that is still on its way takes at least as long as it has taken until now.
        waits_s = now - next(iter(self._unseen.values())) if self._unseen else 0.0
        return int(min(self._most, max(self._fewest, per_s * max(self._takes_s, waits_s) * self._factor)))

    def allows_more(self, now: float) -> bool:
        """Whether one more nomination may be on its way: as many as the lead, so that few are late while it is learned."""
        return len(self._unseen) < max(self._first_unseen, self.pods(now))
