"""The way to one server: directly, or through a proxy, and with or without TLS at its end.

Belongs here: resolving, connecting, tunnelling, handshakes, and the options of the socket. Never: which proxy (`proxy`), which
certificates (`tls`), requests of our own.
"""

import asyncio
import base64
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeVar, cast
from urllib.parse import SplitResult, quote, unquote, urlsplit

from accelshare.kube.answer import Answer, BrokenOffError

P = TypeVar("P", bound=asyncio.Protocol)

# A socket with these notices within half a minute that its peer is gone; a watch may otherwise wait on a dead one.
_NOTICE_DEATH: Final = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000))


class NotConnectedError(OSError):
    """There is no connection, so nothing was sent; the message says where to and why."""


class Route:
    def __init__(self, server: str, *, server_name: str | None, proxy_url: str | None) -> None:
        """`server_name` is what the server's certificate must say, if not its host name."""
        self._server = urlsplit(server)
        self._server_name = server_name
        self._proxy = urlsplit(proxy_url) if proxy_url is not None else None
        self.host = _address(self._server)
        # A plain proxy is told the whole address and passes the request on. Through a tunnel it is as if it were not there.
        forwards = self._proxy is not None and self._server.scheme == "http"
        path = quote(self._server.path, safe="/%")
        self.prefix = f"http://{self.host}{path}" if forwards else path
        self.headers = self._proxy_authorization() if forwards else ()

    async def open(self, protocol: Callable[[], P], context: ssl.SSLContext | None, *, within_s: float) -> P:
        """A new connection to the server. Raises NotConnectedError."""
        place = f"{self.host} through the proxy {_address(self._proxy)}" if self._proxy is not None else self.host
        try:
            async with asyncio.timeout(within_s):
                return await self._open(protocol, context, within_s)
        except TimeoutError as error:
            raise NotConnectedError(f"no connection to {place} within {within_s:g} s") from error
        except (OSError, UnicodeError) as error:  # the latter: a host name that cannot be one
            raise NotConnectedError(f"cannot connect to {place}: {error}") from error

    async def _open(self, protocol: Callable[[], P], context: ssl.SSLContext | None, within_s: float) -> P:
        loop = asyncio.get_running_loop()
        if self._proxy is None:
            connected = await _connected(self._server, within_s)
            name = (self._server_name or self._server.hostname) if context is not None else None
            return (await loop.create_connection(protocol, sock=connected, ssl=context, server_hostname=name))[1]
        connected = await _connected(self._proxy, within_s)
        # As Go does it: a proxy that speaks TLS itself is trusted as the server would be.
        outer = (context or ssl.create_default_context()) if self._proxy.scheme == "https" else None
        name = self._proxy.hostname if outer is not None else None
        if context is None:
            return (await loop.create_connection(protocol, sock=connected, ssl=outer, server_hostname=name))[1]
        transport, tunnel = await loop.create_connection(_Tunnel, sock=connected, ssl=outer, server_hostname=name)
        try:
            await tunnel.dig(self.host, self._proxy_authorization())
            ours = protocol()
            name = self._server_name or self._server.hostname
            secured = await loop.start_tls(transport, ours, context, server_hostname=name)
        except BaseException:
            transport.abort()
            raise
        assert secured is not None
        ours.connection_made(secured)
        return ours

    def _proxy_authorization(self) -> tuple[str, ...]:
        if self._proxy is None or self._proxy.username is None:
            return ()
        pair = f"{unquote(self._proxy.username)}:{unquote(self._proxy.password or '')}"
        return (f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode('ascii')}",)


class _Tunnel(asyncio.Protocol):
    """The first words with a proxy; after them it only passes bytes on."""

    def __init__(self) -> None:
        self._answer = Answer(lambda: None)

    async def dig(self, host: str, authorization: tuple[str, ...]) -> None:
        lines = (f"CONNECT {host} HTTP/1.1", f"Host: {host}", *authorization, "\r\n")
        self._transport.write("\r\n".join(lines).encode("latin-1"))
        await self._answer.head()
        if self._answer.status != 200:
            raise BrokenOffError(f"the proxy answered {self._answer.status}")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._answer.feed(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._answer.ended(error)


def _address(url: SplitResult) -> str:
    """Host and port, as they stand in a Host header and in a CONNECT."""
    host = url.hostname or ""
    name = host if host.isascii() else host.encode("idna").decode("ascii")
    return f"[{name}]:{_port(url)}" if ":" in name else f"{name}:{_port(url)}"


def _port(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


async def _connected(url: SplitResult, within_s: float) -> socket.socket:
    """A socket to the first of the host's addresses that takes it; each of them gets its share of the time."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + within_s
    found = await loop.getaddrinfo(url.hostname, _port(url), type=socket.SOCK_STREAM)
    for left, (family, kind, protocol, _, address) in zip(range(len(found), 0, -1), found, strict=True):
        made = socket.socket(family, kind, protocol)
        try:
            made.setblocking(False)
            _set_options(made)
            async with asyncio.timeout((ends - loop.time()) / left):
                await loop.sock_connect(made, address)
        except BaseException as error:
            made.close()
            if left == 1 or not isinstance(error, OSError):
                raise
        else:
            return made
    raise OSError(f"{url.hostname} has no address")


def _set_options(made: socket.socket) -> None:
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _NOTICE_DEATH:
        if hasattr(socket, option):  # Linux has them all, other systems some
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
