"""Counts each client's idle connections, and delays a response after which the client would close one.

Belongs here: when a response that is ready may be written. Never: writing it (server_connection.py).

Go's HTTP client, which kube-scheduler uses, keeps two idle connections to a server and closes every further one. While binds
overlap, it therefore opened a connection for every second pod, and a TLS handshake takes more CPU than the calls of a pod.
If a bind's response waits until another bind begins, the client always finds a connection and never has too many.
"""

import asyncio
from collections.abc import Hashable
from typing import Final

KEPT_IDLE: Final = 2  # net/http: DefaultMaxIdleConnsPerHost
LONGEST_DELAY_S: Final = 0.25


class IdleConnections:
    def __init__(self, *, kept: int = KEPT_IDLE, longest_delay_s: float = LONGEST_DELAY_S) -> None:
        self._kept = kept
        self._longest_delay_s = longest_delay_s
        self._idle: dict[str, set[Hashable]] = {}  # by the client's address
        self._delayed: dict[str, dict[asyncio.Future[None], Hashable]] = {}  # likewise: connections by their turn, oldest first

    def idle(self, address: str, connection: Hashable) -> None:
        """The connection's last response is written."""
        self._idle.setdefault(address, set()).add(connection)

    def busy(self, address: str, connection: Hashable) -> None:
        """The connection has a request whose response takes time, so another connection may become idle."""
        self._discard(address, connection)
        delayed = self._delayed.get(address)
        while delayed and self._has_room(address):
            turn = next(iter(delayed))
            self.idle(address, delayed.pop(turn))
            _end(turn)

    def closed(self, address: str, connection: Hashable) -> None:
        for turn, waiting in list(self._delayed.get(address, {}).items()):
            if waiting == connection:
                del self._delayed[address][turn]
                _end(turn)
        self.busy(address, connection)

    async def wait_for_room(self, address: str, connection: Hashable) -> None:
        """Wait, at most for the longest delay, until the client will keep this connection after the response."""
        if not self._delayed.get(address) and self._has_room(address):
            self.idle(address, connection)
            return
        delayed = self._delayed.setdefault(address, {})
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        delayed[turn] = connection
        timer = loop.call_later(self._longest_delay_s, _end, turn)
        try:
            await turn
        finally:
            timer.cancel()
            delayed.pop(turn, None)
            if not delayed and self._delayed.get(address) is delayed:
                del self._delayed[address]

    def _has_room(self, address: str) -> bool:
        return len(self._idle.get(address, ())) < self._kept

    def _discard(self, address: str, connection: Hashable) -> None:
        idle = self._idle.get(address)
        if idle is not None:
            idle.discard(connection)
            if not idle:
                del self._idle[address]


def _end(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
