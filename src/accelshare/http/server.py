"""An HTTP server on one port: accepts connections, bounds what they may cost, and finishes their requests when it stops.

Belongs here: listening, accepting, limits on connections, memory and time, the order of stopping. Never: the requests of one
connection (server_connection.py).
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from accelshare.http.http2_connection import Http2Connection
from accelshare.http.messages import HttpHandler
from accelshare.http.open_connections import OpenConnections
from accelshare.http.server_connection import MAX_HEAD_BYTES, ServerConnection

log = logging.getLogger(__name__)
# kube-scheduler keeps idle connections for 90 s and does not send a POST again when we close one under it.
KEEP_ALIVE_S: Final = 120.0
HANDSHAKE_S: Final = 10.0
UNREAD_S: Final = 30.0  # while the client reads nothing of its response
CHECK_EVERY_S: Final = 5.0
DRAIN_S: Final = 30.0
CLOSE_S: Final = 1.0
BACKLOG: Final = 2048
HTTP_2: Final = "h2"  # its name in TLS (ALPN)
MAX_CONNECTIONS: Final = 1000
MAX_UNREAD_BYTES: Final = 64 << 20  # responses to all clients that they have not read: a few /metrics pages of 5,000 nodes


class ListenError(Exception):
    """The port cannot be opened; the message has the address and the cause."""


class Server:
    """Serves while it is open: `async with Server(…)`, or `start` and `stop`. `stop` finishes requests in flight for DRAIN_S.

    A client that does not answer the shutdown of its connection, as a dead one does not over TLS, is aborted after CLOSE_S.
    `tls` returns the context of each new connection. If it offers HTTP/2 (`h2`) and the client takes it, that is spoken.
    """

    def __init__(
        self,
        handler: HttpHandler,
        listening: socket.socket,
        *,
        max_body_bytes: int,
        max_head_bytes: int = MAX_HEAD_BYTES,
        max_connections: int = MAX_CONNECTIONS,
        keep_alive_s: float | None = None,
        unread_s: float | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._handler = handler
        self._listening = listening
        self._tls = tls
        self._max_body_bytes = max_body_bytes
        self._max_head_bytes = max_head_bytes
        self._max_connections = max_connections
        self._keep_alive_s = KEEP_ALIVE_S if keep_alive_s is None else keep_alive_s
        self._unread_s = UNREAD_S if unread_s is None else unread_s
        self._connections = OpenConnections(max_bytes=2 * max_body_bytes + MAX_UNREAD_BYTES)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        loop.add_reader(self._listening, self._accept)
        self._accept_again: asyncio.TimerHandle | None = None
        self._closing_idle = loop.create_task(self._close_idle())

    async def stop(self) -> None:
        if self._accept_again is not None:
            self._accept_again.cancel()
        asyncio.get_running_loop().remove_reader(self._listening)
        self._closing_idle.cancel()
        await asyncio.gather(self._closing_idle, return_exceptions=True)
        self._listening.close()
        for connection in tuple(self._connections):
            connection.close_when_idle()
        await _wait_all([each.handling for each in self._connections if each.handling is not None], DRAIN_S)
        await _wait_all([each.closed for each in self._connections], CLOSE_S)
        for connection in tuple(self._connections):
            connection.abort()
        await _wait_all([task for each in self._connections for task in each.tasks], CLOSE_S)

    def _accept(self) -> None:
        """Accept one connection that waits; the event loop calls again for the next one, so that dropped ones are closed before.

        A callback, not a task: cancelling a task can lose a connection that it has just accepted.
        """
        loop = asyncio.get_running_loop()
        try:
            accepted, address = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # above all: too many open files
            log.warning("accept outcome=failed connections=%d error=%r", len(self._connections), str(error))
            self._connections.drop_one()
            loop.remove_reader(self._listening)
            self._accept_again = loop.call_later(CLOSE_S, loop.add_reader, self._listening, self._accept)
            return
        accepted.setblocking(False)
        self._serve(accepted, str(address[0]))

    def _serve(self, accepted: socket.socket, address: str) -> None:
        if len(self._connections) >= self._max_connections and not self._connections.drop_one():
            self._connections.dropped += 1
            accepted.close()
            return
        connection = HandshakingConnection(self._connections, address, self._protocol)
        self._connections.add(connection)
        connection.connect(accepted, self._tls() if self._tls is not None else None)

    def _protocol(self, name: str | None, address: str) -> ServerConnection | Http2Connection:
        kind = Http2Connection if name == HTTP_2 else ServerConnection
        return kind(
            self._handler,
            self._connections,
            address=address,
            max_body_bytes=self._max_body_bytes,
            max_head_bytes=self._max_head_bytes,
        )

    async def _close_idle(self) -> None:
        """Close idle connections, those whose request does not end, and those whose client does not read its response."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            now = asyncio.get_running_loop().time()
            for connection in tuple(self._connections):
                if connection.unread_since is not None:
                    if connection.unread_since < now - self._unread_s:
                        self._connections.drop(connection)
                elif not connection.tasks and connection.connected and connection.idle_since < now - self._keep_alive_s:
                    connection.close_when_idle()
            if self._connections.dropped:
                log.warning("connections dropped=%d open=%d", self._connections.dropped, len(self._connections))
                self._connections.dropped = 0


class HandshakingConnection(asyncio.Protocol):
    """A connection from accept until its TLS handshake is complete; then one of the agreed protocol takes its place."""

    def __init__(
        self,
        connections: OpenConnections,
        address: str,
        protocol: Callable[[str | None, str], ServerConnection | Http2Connection],
    ) -> None:
        """`protocol` is called with the protocol's name, if TLS has negotiated one, and the client's address."""
        self._connections = connections
        self._protocol = protocol
        self._connecting: asyncio.Task[None] | None = None
        self._closing = False
        self.address = address
        self.idle_since = asyncio.get_running_loop().time()
        self.unread_since: float | None = None
        self.held_bytes = 0
        self.held_since = 0.0
        self.handling: asyncio.Future[None] | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def connected(self) -> bool:
        return False

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        return () if self._connecting is None else (self._connecting,)

    def connect(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        self._connecting = asyncio.get_running_loop().create_task(self._connect(accepted, tls))
        # A callback, not a finally: a task that is cancelled before its first step runs none of its code.
        self._connecting.add_done_callback(lambda _: self._end(accepted))

    def close_when_idle(self) -> None:
        self._closing = True

    def abort(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()

    def reset(self) -> None:
        self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tls = transport.get_extra_info("ssl_object")
        serving = self._protocol(tls.selected_alpn_protocol() if tls is not None else None, self.address)
        self._connections.add(serving)
        self._connections.forget(self)
        self.closed.set_result(None)
        transport.set_protocol(serving)
        serving.connection_made(transport)
        if self._closing:
            serving.close_when_idle()

    async def _connect(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Make the transport, over TLS after the handshake."""
        loop = asyncio.get_running_loop()
        limits = {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": CLOSE_S} if tls is not None else {}
        try:
            await loop.connect_accepted_socket(lambda: self, accepted, ssl=tls, **limits)
        except OSError as error:  # ssl's errors and a TimeoutError are some
            log.debug("accept outcome=no-connection address=%s error=%r", self.address, str(error))

    def _end(self, accepted: socket.socket) -> None:
        self._connecting = None
        if not self.closed.done():
            self.closed.set_result(None)
            accepted.close()
            self._connections.forget(self)


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to this host's address, or without a host to every address of the machine, IPv6 and IPv4."""
    try:
        everywhere = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if everywhere else socket.AF_UNSPEC
        addresses = socket.getaddrinfo(host or None, port, family, socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        return _bind(socket.socket(family, kind, protocol), address, everywhere=everywhere)
    except OSError as error:
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _bind(listening: socket.socket, address: Any, *, everywhere: bool) -> socket.socket:
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by each connection; without it a response can wait 40 ms for the peer's acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if everywhere:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    return listening


async def _wait_all(futures: Iterable[asyncio.Future[None]], limit_s: float) -> None:
    """Until all of them are done, or the time is over."""
    if waited := list(futures):
        await asyncio.wait(waited, timeout=limit_s)
