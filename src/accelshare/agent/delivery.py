"""The seam between what this node has and how it reaches a container.

Belongs here: what every way of delivery has in common. A way is told of the shelf and the desk when it is made; it says by
`on_state` for which kinds it can deliver now, and runs until it is cancelled.
"""

from collections.abc import Callable
from typing import Protocol


class Delivery(Protocol):
    """One way to hand cards to containers."""

    name: str

    async def run(self, on_state: Callable[[str, bool], None]) -> None:
        """Deliver; `on_state(kind, delivers)` is called whenever that changes."""
        ...

    def show(self) -> None:
        """The shelf, or the manner in which a card is used, has changed."""
        ...
