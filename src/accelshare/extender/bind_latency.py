"""How far the watch lags behind, told by our own binds: from sending one to seeing it on the watch.

Belongs here: remembering when binds were sent. Never: what an echo means (ledger/), the metric's name (metrics.py).
"""

import time
from collections.abc import Callable
from typing import Final

REMEMBERED: Final = 4096  # binds whose echo never came, because the pod was gone before it


class BindLatency:
    def __init__(self, observe: Callable[[float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._observe = observe
        self._clock = clock
        self._sent: dict[str, float] = {}

    def sent(self, uid: str) -> None:
        """A bind of this pod goes out now."""
        self._sent[uid] = self._clock()
        if len(self._sent) > REMEMBERED:
            del self._sent[next(iter(self._sent))]

    def forget(self, uid: str) -> None:
        """It was not bound, so there will be no echo."""
        self._sent.pop(uid, None)

    def seen(self, uid: str) -> None:
        """The pod was seen bound. Whom we did not bind, or have seen bound before, tells nothing about the lag."""
        sent = self._sent.pop(uid, None)
        if sent is not None:
            self._observe(self._clock() - sent)
