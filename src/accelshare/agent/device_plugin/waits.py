"""How long a bound pod waits for its card.

Belongs here: remembering when pods came to this node. Never: who is served (waiting_room.py), the metric's name (metrics.py).
"""

import time
from collections.abc import Callable


class Waits:
    """From a pod's arrival on our watch, which has only bound pods, until something was handed out for it for the first time.

    A pod that was there before us is not counted: nobody knows since when.
    """

    def __init__(self, observe: Callable[[float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._observe = observe
        self._clock = clock
        self._since: dict[str, float] = {}

    def came(self, uid: str) -> None:
        self._since[uid] = self._clock()

    def served(self, uid: str) -> None:
        since = self._since.pop(uid, None)
        if since is not None:
            self._observe(self._clock() - since)

    def left(self, uid: str) -> None:
        """It ended, or is going: nobody waits any more."""
        self._since.pop(uid, None)
