"""How much of each card is really in use, as a by-product of looking at its health.

Belongs here: keeping the last look's numbers. Never: asking for them; a driver that does not see them tells none.
"""

from collections.abc import Mapping

from accelshare.vendors.drivers.driver import Health


class LastUse:
    def __init__(self) -> None:
        self.mib: dict[str, int] = {}

    def noted(self, seen: Mapping[str, Health]) -> Mapping[str, Health]:
        """The same look, of which the numbers are kept. What it does not tell is not known any more."""
        self.mib = {id: health.used_mib for id, health in seen.items() if health.used_mib is not None}
        return seen
