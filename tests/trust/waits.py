"""How long no pod is bound although one fits, and which faults struck meanwhile.

Belongs here: the measure. Never: who fits (history.py), when to look (control_plane_run.py).
"""

from collections.abc import Sequence


class Waits:
    def __init__(self) -> None:
        self.longest_s = 0.0
        self.longest_faults: tuple[str, ...] = ()  # all that struck during it
        self.longest_quiet_s = 0.0  # the longest part of a wait after its last fault
        self._binds = 0
        self._since: float | None = None
        self._last_fault_s = float("-inf")
        self._faults: dict[str, None] = {}  # during the wait that goes on

    def look(self, now: float, *, fits: bool, binds: int, active: Sequence[str]) -> None:
        """`fits`: whether a pending pod would; `binds`: until now; `active`: the faults that are at work."""
        if not fits or binds != self._binds:
            self._since, self._binds = None, binds
            self._faults.clear()
        if active:
            self._last_fault_s = now
        if not fits:
            return
        self._faults.update(dict.fromkeys(active))
        self._since = now if self._since is None else self._since
        self.longest_quiet_s = max(self.longest_quiet_s, now - max(self._since, self._last_fault_s))
        if now - self._since > self.longest_s:
            self.longest_s, self.longest_faults = now - self._since, tuple(self._faults)
