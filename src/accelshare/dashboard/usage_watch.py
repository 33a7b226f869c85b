"""Who uses the cards, for the page: what the nodes' agents answered last.

Belongs here: when they are asked, and whether an answer is new. Never: asking (inspect_cli/usage_reader.py), showing.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

from msgspec.structs import replace

from accelshare.inspect_cli.usage_reader import ClusterUse
from accelshare.report.usage import NO_USES, Uses

EVERY_S: Final = 30.0  # agents sample every 15 s


class UsageWatch:
    def __init__(self, read: Callable[[Collection[str]], ClusterUse]) -> None:
        """`read` blocks, so it runs in a thread."""
        self._read = read
        self.uses: Uses = NO_USES
        self.notes: Sequence[str] = ()
        self.version = 0  # differs after every new answer

    async def ask(self, nodes: Collection[str]) -> None:
        """Ask the agents of these nodes."""
        found = await asyncio.to_thread(self._read, nodes)
        uses = {node: replace(use, age_s=0.0) for node, use in found.nodes.items()}
        if uses != self.uses or found.notes != self.notes:
            self.uses, self.notes = uses, found.notes
            self.version += 1
