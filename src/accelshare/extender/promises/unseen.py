"""Nominations that were sent and that our own watch has not shown yet: how many there may be.

Nominations that are sent at once delay each other, so their number grows only as they are seen.
"""

import math
from typing import Final

FIRST_UNSEEN: Final = 8  # at once, before any was seen
UNSEEN_PART: Final = 0.25  # of all promises that may be open: with more on their way, each only takes longer
REMEMBERED_S: Final = 2.0  # with none on its way: then it begins with few again


class UnseenNominations:
    def __init__(self, *, first: int = FIRST_UNSEEN, part: float = UNSEEN_PART) -> None:
        self._first = first
        self._part = part
        self._sent_at: dict[str, float] = {}  # by uid
        self._seen = 0
        self._seen_at = -math.inf  # the last one

    def sent(self, uid: str, now: float) -> None:
        """A nomination of this pod is sent now."""
        if not self._sent_at and now - self._seen_at > REMEMBERED_S:
            self._seen = 0
        self._sent_at[uid] = now

    def seen(self, uid: str, now: float) -> None:
        """Our own watch has shown the nomination."""
        if self._sent_at.pop(uid, None) is not None:
            self._seen, self._seen_at = self._seen + 1, now

    def forget(self, uid: str) -> None:
        """The promise has ended."""
        self._sent_at.pop(uid, None)

    def allows_more(self, most_promises: int, now: float) -> bool:
        """Whether one more nomination may be on its way: few at first, one more for each that was seen, and a part of all."""
        seen = self._seen if self._sent_at or now - self._seen_at <= REMEMBERED_S else 0
        return len(self._sent_at) < min(self._first + seen, most_promises * self._part)
