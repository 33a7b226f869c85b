"""What a pod requests, in few words: the same on a terminal and on the dashboard.

Belongs here: the text of a request. Never: the sentence of `explain` (explain.py).
"""

from accelshare.ledger.nouns import Ask, Request
from accelshare.report.cluster_state import ClusterState
from accelshare.report.units import amount, cards


class RequestTexts:
    """The texts of one moment: the unit of a vendor is that of its first node."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._units: dict[str, str] = {}

    def text(self, request: Request) -> str:
        """`7000 MiB NPU`, `2 × 8 GiB NPU`, `1 whole NPU`."""
        return " + ".join(map(self._ask, request))

    def _ask(self, ask: Ask) -> str:
        profile = self._state.catalog[ask.kind]
        if ask.whole:
            return cards(ask.cards, f"whole {profile.noun}")
        unit = self._units.get(ask.kind)
        if unit is None:
            first = next(self._state.cards(ask.kind), None)
            unit = self._state.unit(profile, first[0]) if first is not None else profile.unit.label(profile.unit.default)
            self._units[ask.kind] = unit
        count = f"{ask.cards} × " if ask.cards > 1 else ""
        return f"{count}{amount(ask.share, unit)} {profile.noun}"
