"""Counts each client's idle connections, and delays a response after which the client would close one.

Belongs here: when a response that is ready may be written. Never: writing it (server_connection.py).

Go's HTTP client, which kube-scheduler uses, keeps two idle connections to a server and closes every further one. While binds
overlap, it therefore opened a connection for every second pod, and a TLS handshake takes more CPU than the calls of a pod.
If a bind's response waits until another bind begins, the client always finds a connection and never has too many.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

KEPT_IDLE: Final = 2  # net/http: DefaultMaxIdleConnsPerHost
LONGEST_DELAY_S: Final = 0.25


class IdleConnections:
    def __init__(self, *, kept: int = KEPT_IDLE, longest_delay_s: float = LONGEST_DELAY_S) -> None:
        self._kept = kept
        self._longest_delay_s = longest_delay_s
        self._idle: dict[str, set[Hashable]] = {}  # by the client's address
        self._delayed: dict[str, dict[Hashable, _Delayed]] = {}  # likewise: by their connections, oldest first

    def idle(self, address: str, connection: Hashable) -> None:
        """The connection's last response is written."""
        self._idle.setdefault(address, set()).add(connection)

    def busy(self, address: str, connection: Hashable) -> None:
        """The connection has a request whose response takes time, so another connection may become idle."""
        self._discard(address, connection)
        # Written before this returns. A task would write it in the loop's next turn, when the client, which has got a response
        # to a filter meanwhile, already opens a connection for its next request.
        while self._delayed.get(address) and self._has_room(address):
            self._write_delayed(address, next(iter(self._delayed[address])))

    def closed(self, address: str, connection: Hashable) -> None:
        if connection in self._delayed.get(address, ()):
            self._write_delayed(address, connection)
        self.busy(address, connection)

    def write_when_kept(self, address: str, connection: Hashable, write: Callable[[], None]) -> None:
        """Call `write` when the client will keep this connection after the response: now, or within the longest delay."""
        if not self._delayed.get(address) and self._has_room(address):
            self.idle(address, connection)
            write()
            return
        timer = asyncio.get_running_loop().call_later(self._longest_delay_s, self._write_delayed, address, connection)
        self._delayed.setdefault(address, {})[connection] = _Delayed(write, timer)

    def _write_delayed(self, address: str, connection: Hashable) -> None:
        delayed = self._delayed[address].pop(connection)
        if not self._delayed[address]:
            del self._delayed[address]
        delayed.timer.cancel()
        self.idle(address, connection)
        delayed.write()

    def _has_room(self, address: str) -> bool:
        return len(self._idle.get(address, ())) < self._kept

    def _discard(self, address: str, connection: Hashable) -> None:
        idle = self._idle.get(address)
        if idle is not None:
            idle.discard(connection)
            if not idle:
                del self._idle[address]


class _Delayed(NamedTuple):
    """A response that is ready."""

    write: Callable[[], None]
    timer: asyncio.TimerHandle
