"""How far kube-scheduler's watch is behind ours: it may take a pod before it has seen a nomination that we have seen.

Belongs here: this time, from what was observed. Never: which pods (plan.py).
"""

from typing import Final

FIRST_S: Final = 0.05
LONGEST_S: Final = 0.25
MARGIN: Final = 1.5  # over the longest time that was not enough
CLOSE: Final = 4.0  # one that was shown for much longer proves nothing
DECAY: Final = 0.003  # for each nomination that it knew in time


class SchedulerLag:
    def __init__(self, first_s: float = FIRST_S) -> None:
        self.seconds = first_s

    def knew(self, shown_s: float) -> None:
        """kube-scheduler knew a nomination, which our watch had shown for so long, when it took the pod."""
        if shown_s <= self.seconds * CLOSE:
            self.seconds -= self.seconds * DECAY

    def missed(self, shown_s: float) -> None:
        """It did not know one that our watch had shown for so long."""
        self.seconds = max(self.seconds, min(LONGEST_S, shown_s * MARGIN))
