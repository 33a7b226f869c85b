"""A server's connections, what is held in memory for them, and which of them is dropped when that is too much.

Belongs here: counting and choosing. Never: reading or writing.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from accelshare.http.idle_connections import IdleConnections


class OpenConnection(Protocol):
    """A connection of any protocol, or one whose TLS handshake is not complete."""

    address: str
    idle_since: float
    unread_since: float | None  # the client has read nothing of its response since then
    held_bytes: int
    held_since: float
    handling: asyncio.Future[None] | None  # until all responses are known, though not yet read
    closed: asyncio.Future[None]

    @property
    def connected(self) -> bool:
        """Whether the transport was made, over TLS after a complete handshake."""

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """What goes on for this connection, and may outlive it."""

    def close_when_idle(self) -> None:
        """Respond to the requests that were read, then close."""

    def abort(self) -> None:
        """Close now, without a TLS shutdown."""

    def reset(self) -> None:
        """Close now; the kernel, too, discards what the client has not read."""


class OpenConnections(set[OpenConnection]):
    """A server's connections from accept until they are closed and handled, and what is held in memory for them."""

    def __init__(self, *, max_bytes: int) -> None:
        """`max_bytes` is for all of them together: bodies that are incomplete, responses that are not read."""
        super().__init__()
        self._max_bytes = max_bytes
        self._bytes = 0
        self.idle = IdleConnections()
        self.dropped = 0  # since it was last logged

    def hold(self, connection: OpenConnection, size: int) -> None:
        """Count the bytes held for this connection. If all of them exceed the limit, drop the slowest clients."""
        if size and not connection.held_bytes:
            connection.held_since = asyncio.get_running_loop().time()
        self._bytes += size - connection.held_bytes
        connection.held_bytes = size
        while self._bytes > self._max_bytes:
            self.drop(min((other for other in self if other.held_bytes), key=lambda other: other.held_since))

    def drop_one(self) -> bool:
        """Drop one that no handler works for: first one in its handshake, then one of the address with most connections."""
        idle = [connection for connection in self if connection.handling is None]
        if not idle:
            return False
        count = Counter(connection.address for connection in self)
        self.drop(max(idle, key=lambda each: (not each.connected, count[each.address], -each.idle_since)))
        return True

    def drop(self, connection: OpenConnection) -> None:
        self.dropped += 1
        self.forget(connection)
        connection.reset()

    def forget(self, connection: OpenConnection) -> None:
        self.discard(connection)
        self._bytes -= connection.held_bytes
        connection.held_bytes = 0
