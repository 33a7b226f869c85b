"""Whether waiting for nominations pays: the time that promises have saved kube-scheduler, less the time that filter has waited.

Belongs here: these times, from what was observed. Never: which pods (plan.py), waiting (filter_wait.py).

kube-scheduler takes a nominated pod many times faster than one for which it must search. All these times differ by a factor of a
hundred between clusters, so they are measured, while so many pods wait that kube-scheduler is never idle.
"""

from typing import Final

FIRST_S: Final = 1.0  # to spend before anything was saved
MOST_S: Final = 5.0  # a good hour does not allow a bad minute
NODE_S: Final = 1e-5  # how long a search takes for each node, until some were seen
FIRST_TRY_S: Final = 0.002  # how long kube-scheduler takes for a nominated pod, until some were seen
LONGEST_POD_S: Final = 2.0  # more than that between two calls is a pause
NEW_WEIGHT: Final = 0.1  # of an observation in the average


class WaitCredit:
    def __init__(self) -> None:
        self.seconds = FIRST_S
        self._search_s: float | None = None
        self._try_s = FIRST_TRY_S
        self._answered_at: float | None = None

    def called(self, now: float, *, nominated: bool, nodes: int) -> None:
        """kube-scheduler calls for the next pod. It was nominated as far as kube-scheduler knows, or all nodes were searched."""
        took_s = now - self._answered_at if self._answered_at is not None else LONGEST_POD_S
        self._answered_at = None
        if took_s >= LONGEST_POD_S:
            return
        if nominated:
            self._try_s += (took_s - self._try_s) * NEW_WEIGHT
        else:
            known_s = self._expected_search_s(nodes)
            self._search_s = known_s + (took_s - known_s) * NEW_WEIGHT

    def answered(self, now: float) -> None:
        """It has its answer, and goes on."""
        self._answered_at = now

    def idle(self) -> None:
        """kube-scheduler may have had nothing to do."""
        self._answered_at = None

    def saved(self, nodes: int) -> None:
        """It has tried a nominated node alone, and has not searched."""
        self.seconds = min(MOST_S, self.seconds + max(0.0, self._expected_search_s(nodes) - self._try_s))

    def waited(self, seconds: float) -> None:
        self.seconds -= seconds

    def reset(self) -> None:
        """Promises were paused, and begin again."""
        self.seconds = FIRST_S

    def _expected_search_s(self, nodes: int) -> float:
        return self._search_s if self._search_s is not None else nodes * NODE_S
