"""The last hours of the cluster: fill, fragmentation and waiting pods, in a ring in memory.

Belongs here: which points are kept. Never: a clock, or what the numbers mean (report/occupancy.py).
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

EVERY_S: Final = 30
HOURS: Final = 6
MOST_POINTS: Final = HOURS * 3600 // EVERY_S


class Point(Struct, frozen=True, array_like=True):
    """One moment, in seconds since 1970. Written as a list, because there are hundreds."""

    at: int
    fill: float
    fragmentation: float
    waiting: int


class History:
    """At most one point for each `EVERY_S`, the oldest leave first."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=MOST_POINTS)

    def add(self, point: Point) -> bool:
        """Keep the point, unless the last one is too recent. A clock that was set back does not stop the history."""
        if self._points and 0 <= point.at - self._points[-1].at < EVERY_S:
            return False
        self._points.append(point)
        return True

    def __iter__(self) -> Iterator[Point]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)
