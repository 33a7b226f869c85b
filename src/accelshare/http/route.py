"""The way to one server: directly or through a proxy, with or without TLS.

Belongs here: resolving, connecting, proxy tunnels, TLS handshakes, socket options. Never: which proxy, which certificates, or
our own requests.
"""

import asyncio
import base64
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeVar, cast
from urllib.parse import SplitResult, quote, unquote, urlsplit

from httptools import HttpParserError, HttpResponseParser

P = TypeVar("P", bound=asyncio.Protocol)

# With these options a dead peer is detected within half a minute; a watch could otherwise wait on it for ever.
_KEEP_ALIVE_OPTIONS: Final = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000))


class ConnectError(OSError):
    """There is no connection, so nothing was sent; the message has the address and the cause."""


class Route:
    def __init__(self, server: str, *, server_name: str | None, proxy_url: str | None) -> None:
        """`server_name` is the name in the server's certificate, if it is not its host name."""
        self._server = urlsplit(server)
        self._server_name = server_name
        self._proxy = urlsplit(proxy_url) if proxy_url is not None else None
        self.host = _address(self._server)
        # A plain proxy gets the whole URL and forwards the request. A tunnel is invisible to requests.
        forwards = self._proxy is not None and self._server.scheme == "http"
        path = quote(self._server.path, safe="/%")
        self.prefix = f"http://{self.host}{path}" if forwards else path
        self.headers = self._proxy_authorization() if forwards else ()

    async def open(self, protocol: Callable[[], P], context: ssl.SSLContext | None, *, within_s: float) -> P:
        """A new connection to the server. Raises ConnectError."""
        place = f"{self.host} through the proxy {_address(self._proxy)}" if self._proxy is not None else self.host
        try:
            async with asyncio.timeout(within_s):
                return await self._open(protocol, context, within_s)
        except TimeoutError as error:
            raise ConnectError(f"no connection to {place} within {within_s:g} s") from error
        except (OSError, UnicodeError) as error:  # the latter: a host name that cannot be one
            raise ConnectError(f"cannot connect to {place}: {error}") from error

    async def _open(self, protocol: Callable[[], P], context: ssl.SSLContext | None, within_s: float) -> P:
        loop = asyncio.get_running_loop()
        if self._proxy is None:
            connected = await _connect(self._server, within_s)
            name = (self._server_name or self._server.hostname) if context is not None else None
            return (await loop.create_connection(protocol, sock=connected, ssl=context, server_hostname=name))[1]
        connected = await _connect(self._proxy, within_s)
        # As Go: a proxy with TLS of its own is verified like the server.
        outer = (context or ssl.create_default_context()) if self._proxy.scheme == "https" else None
        name = self._proxy.hostname if outer is not None else None
        if context is None:
            return (await loop.create_connection(protocol, sock=connected, ssl=outer, server_hostname=name))[1]
        transport, tunnel = await loop.create_connection(_Tunnel, sock=connected, ssl=outer, server_hostname=name)
        try:
            await tunnel.open(self.host, self._proxy_authorization())
            inner = protocol()
            name = self._server_name or self._server.hostname
            secured = await loop.start_tls(transport, inner, context, server_hostname=name)
        except BaseException:
            transport.abort()
            raise
        assert secured is not None
        inner.connection_made(secured)
        return inner

    def _proxy_authorization(self) -> tuple[str, ...]:
        if self._proxy is None or self._proxy.username is None:
            return ()
        pair = f"{unquote(self._proxy.username)}:{unquote(self._proxy.password or '')}"
        return (f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode('ascii')}",)


class _Tunnel(asyncio.Protocol):
    """The CONNECT exchange with a proxy, which afterwards only forwards bytes."""

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def open(self, host: str, authorization: tuple[str, ...]) -> None:
        lines = (f"CONNECT {host} HTTP/1.1", f"Host: {host}", *authorization, "\r\n")
        self._transport.write("\r\n".join(lines).encode("latin-1"))
        if (status := await self._status) != 200:
            raise ConnectionError(f"the proxy responded with {status}")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._fail(ConnectionError(f"the proxy's response is not HTTP: {error}"))

    def on_headers_complete(self) -> None:
        if not self._status.done():
            self._status.set_result(self._parser.get_status_code())

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or ConnectionError("the proxy closed the connection without a response"))

    def _fail(self, error: Exception) -> None:
        if not self._status.done():
            self._status.set_exception(error)


def _address(url: SplitResult) -> str:
    """Host and port, as they stand in a Host header and in a CONNECT."""
    host = url.hostname or ""
    name = host if host.isascii() else host.encode("idna").decode("ascii")
    return f"[{name}]:{_port(url)}" if ":" in name else f"{name}:{_port(url)}"


def _port(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


async def _connect(url: SplitResult, within_s: float) -> socket.socket:
    """A socket to the first of the host's addresses that accepts; each address gets its share of the time."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + within_s
    addresses = await loop.getaddrinfo(url.hostname, _port(url), type=socket.SOCK_STREAM)
    for left, (family, kind, protocol, _, address) in zip(range(len(addresses), 0, -1), addresses, strict=True):
        connected = socket.socket(family, kind, protocol)
        try:
            connected.setblocking(False)
            _set_options(connected)
            async with asyncio.timeout((ends - loop.time()) / left):
                await loop.sock_connect(connected, address)
        except BaseException as error:
            connected.close()
            if left == 1 or not isinstance(error, OSError):
                raise
        else:
            return connected
    raise OSError(f"{url.hostname} has no address")


def _set_options(connected: socket.socket) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE_OPTIONS:
        if hasattr(socket, option):  # Linux has them all, other systems some
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
