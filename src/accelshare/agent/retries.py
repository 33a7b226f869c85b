"""Back-off of writes about pods: when a write is due again, and whether its failure has been logged.

Belongs here: exponential back-off per pod. Never: the write itself.
"""

import random as _random
import time
from collections.abc import Callable, Container, Iterable
from typing import Final

from accelshare.kube.errors import ApiError, KubeError
from accelshare.kube.watch import Backoff

BACKOFF: Final = Backoff(first_s=1.0, longest_s=60.0)
CALM_S: Final = 300.0  # so long after a write was due, the back-off starts again at its first delay


class Retries:
    def __init__(self, clock: Callable[[], float] = time.monotonic, random: Callable[[], float] = _random.random) -> None:
        self._clock = clock
        self._random = random
        self._tries: dict[str, int] = {}
        self._due_at: dict[str, float] = {}
        self._logged: dict[str, set[object]] = {}

    def due(self, uid: str) -> bool:
        return self._due_at.get(uid, 0.0) <= self._clock()

    def postpone(self, uid: str) -> None:
        """Postpone the next try, each time for longer."""
        if self._due_at.get(uid, self._clock()) + CALM_S <= self._clock():
            self.forget(uid)
        tries = self._tries[uid] = self._tries.get(uid, 0) + 1
        self._due_at[uid] = self._clock() + BACKOFF.delay_s(tries, self._random)

    def failed(self, uid: str, error: KubeError) -> bool:
        """Postpone the next try. Returns whether the failure should be logged."""
        self.postpone(uid)
        return self.is_new(uid, error)

    def is_new(self, uid: str, error: KubeError) -> bool:
        """Whether this is the first failure of its kind for this pod, which should be logged."""
        kind: object = error.status if isinstance(error, ApiError) else type(error)
        logged = self._logged.setdefault(uid, set())
        is_first = kind not in logged
        logged.add(kind)
        return is_first

    def forget(self, uid: str) -> None:
        """The write succeeded or is not needed any more."""
        for by_uid in (self._tries, self._due_at, self._logged):
            by_uid.pop(uid, None)

    def keep_only(self, uids: Container[str]) -> None:
        """Forget the pods that are gone."""
        for uid in [uid for uid in self._tries if uid not in uids]:
            self.forget(uid)

    def next_due_s(self, at_most: float, uids: Iterable[str] | None = None) -> float:
        """Seconds until the next try of one of these pods, or of any pod whose write failed; at most `at_most`."""
        now = self._clock()
        due_at = self._due_at.values() if uids is None else [self._due_at.get(uid, now) for uid in uids]
        return min(at_most, max(0.0, min(due_at, default=now + at_most) - now))
