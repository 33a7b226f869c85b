"""All callers of one port: who must go when there are too many, or when too much is kept for them.

Belongs here: counting and choosing. Never: sockets (port.py), requests (caller.py).
"""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelshare.extender.caller import Caller


class Callers(set["Caller"]):
    """Everybody from the moment of being accepted until nothing is left to do for them."""

    def __init__(self, *, most_bytes: int) -> None:
        """`most_bytes` is for all together: bodies that have begun, answers that were not taken."""
        super().__init__()
        self._most_bytes = most_bytes
        self._bytes = 0
        self.aborted = 0  # since somebody last looked

    def keep(self, caller: "Caller", size: int) -> None:
        """So many bytes are kept for this caller from now on. If all together are too many, the slowest is aborted."""
        if size and not caller.kept_bytes:
            caller.kept_since = asyncio.get_running_loop().time()
        self._bytes += size - caller.kept_bytes
        caller.kept_bytes = size
        while self._bytes > self._most_bytes:
            self.abort(min((other for other in self if other.kept_bytes), key=lambda other: other.kept_since))

    def drop_one(self) -> bool:
        """Abort one for whom nothing is being decided: rather in the handshake, then of the address with most callers."""
        idle = [caller for caller in self if caller.deciding is None]
        if not idle:
            return False
        crowd = Counter(caller.address for caller in self)
        self.abort(max(idle, key=lambda caller: (not caller.connected, crowd[caller.address], -caller.idle_since)))
        return True

    def abort(self, caller: "Caller") -> None:
        self.aborted += 1
        self.forget(caller)
        caller.abort()

    def forget(self, caller: "Caller") -> None:
        self.discard(caller)
        self._bytes -= caller.kept_bytes
        caller.kept_bytes = 0
