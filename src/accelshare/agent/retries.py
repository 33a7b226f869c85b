"""Retries of failed writes: when a write about a pod is due again, and whether its failure has been logged.

Belongs here: exponential back-off per pod. Never: the write itself.
"""

import random as _random
import time
from collections.abc import Callable, Container
from typing import Final

from accelshare.kube.errors import ApiError, KubeError
from accelshare.kube.watch import Backoff

BACKOFF: Final = Backoff(first_s=1.0, longest_s=60.0)


class Retries:
    def __init__(self, clock: Callable[[], float] = time.monotonic, random: Callable[[], float] = _random.random) -> None:
        self._clock = clock
        self._random = random
        self._failures: dict[str, int] = {}
        self._due_at: dict[str, float] = {}
        self._logged: dict[str, set[object]] = {}

    def due(self, uid: str) -> bool:
        return self._due_at.get(uid, 0.0) <= self._clock()

    def failed(self, uid: str, error: KubeError) -> bool:
        """Postpone the next try. Returns whether this is the first failure of its kind for this pod, which should be logged."""
        failures = self._failures[uid] = self._failures.get(uid, 0) + 1
        self._due_at[uid] = self._clock() + BACKOFF.delay_s(failures, self._random)
        kind: object = error.status if isinstance(error, ApiError) else type(error)
        logged = self._logged.setdefault(uid, set())
        is_first = kind not in logged
        logged.add(kind)
        return is_first

    def succeeded(self, uid: str) -> None:
        for by_uid in (self._failures, self._due_at, self._logged):
            by_uid.pop(uid, None)

    def keep_only(self, uids: Container[str]) -> None:
        """Forget the pods that are gone."""
        for uid in [uid for uid in self._failures if uid not in uids]:
            self.succeeded(uid)

    def next_due_s(self, at_most: float) -> float:
        """Seconds until the next try is due, at most so many."""
        now = self._clock()
        return min(at_most, max(0.0, min(self._due_at.values(), default=now + at_most) - now))
