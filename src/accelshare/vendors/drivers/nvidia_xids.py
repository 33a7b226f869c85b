"""The rule for XIDs: which ones make a card unhealthy, and when it is healthy again.

Belongs here: the rule and its tables. Never: the library, the clock.

The rule: a critical XID makes a card unhealthy. It is healthy again when it answers, the driver requests no recovery action,
and no critical XID has come for `quiet_s`. Drivers that do not report a recovery action (before R560) recover like this only from
XIDs that need no reset; the others stay until the card has disappeared and come back, as after a reset.
"""

from collections.abc import Mapping
from typing import Final

# Faults of the program that ran, not of the card; the list of NVIDIA's own device plugin.
IGNORED: Final = frozenset({13, 31, 43, 45, 68, 109})

# XIDs after which the card must be reset, from NVIDIA's catalogue of them.
NEEDS_RESET: Final[Mapping[int, str]] = {
    48: "double-bit ECC error",
    62: "internal microcontroller halt",
    64: "row remapping failed",
    74: "NVLink error",
    79: "fell off the bus",
    95: "uncontained ECC error",
    119: "GSP did not answer",
    120: "GSP error",
    140: "unrecovered ECC error",
}

# nvmlDeviceGpuRecoveryAction: what the driver wants done; 0 is nothing.
RECOVERY_ACTIONS: Final[Mapping[int, str]] = {
    1: "a reset of the GPU",
    2: "a reboot of the node",
    3: "its peers to be drained",
    4: "it to be drained and reset",
    5: "a recovery of its IMEX domain",
    6: "a reset of its bus",
    7: "a reboot of the system",
}


def recovery_problem(action: int | None) -> str:
    """The problem of a card for which the driver requests this action; empty for none."""
    return f"the driver requests {RECOVERY_ACTIONS.get(action, f'recovery action {action}')}" if action else ""


class OpenXids:
    """The critical XIDs that still make their card unhealthy."""

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._open: dict[str, tuple[int, float]] = {}

    def note(self, id: str, xid: int, *, now: float) -> None:
        """This card has reported this XID."""
        if xid in IGNORED:
            return
        before = self._open.get(id)
        # A later XID must not replace one that needs a reset.
        self._open[id] = (before[0] if before and before[0] in NEEDS_RESET else xid, now)

    def away(self, id: str) -> None:
        """This card has disappeared: its former XIDs no longer count when it is back."""
        self._open.pop(id, None)

    def problem(self, id: str, *, recovery_action: int | None, now: float) -> str:
        """Why a card that answers is unhealthy, or nothing; `recovery_action` is None if the driver does not report it."""
        if recovery_action:
            return recovery_problem(recovery_action)
        if id not in self._open:
            return ""
        xid, at = self._open[id]
        if recovery_action is None and xid in NEEDS_RESET:
            return f"XID {xid}: {NEEDS_RESET[xid]}; it needs a reset"
        if now - at < self._quiet_s:
            return f"XID {xid}: {NEEDS_RESET[xid]}" if xid in NEEDS_RESET else f"XID {xid}"
        del self._open[id]
        return ""
