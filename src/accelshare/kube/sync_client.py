"""The blocking client of one API server, for short commands: reads only, on the standard library's http.client.

Belongs here: credentials on each request, retries, translation of every library error.
Never: a write, a watch (client.py), what an object means.
"""

import socket
import ssl
import time
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from types import TracebackType
from typing import Final, Self
from urllib.parse import unquote, urlencode, urlsplit

import msgspec

from accelshare.kube.config import Cluster
from accelshare.kube.credentials import Certificate, Presented
from accelshare.kube.errors import ApiError, BadAnswer, ConfigError, TooManyRequests, Unauthorized, Unreachable, from_answer
from accelshare.wire.decoding import Decoder, UnreadableError

ATTEMPTS: Final = 3
MAX_RETRY_S: Final = 5.0


class SyncClient:
    """One kept-alive connection. Every failure is a KubeError."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        user_agent: str,
        timeout_s: float = 30.0,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._user_agent = user_agent
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._sleep = sleep
        self._connection: HTTPConnection | None = None
        self._shown: Certificate | None = None  # the certificate that the connection was opened with

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def another(self, *, timeout_s: float) -> "SyncClient":
        """A client of the same cluster for another thread, which asks only once."""
        return SyncClient(self._cluster, user_agent=self._user_agent, timeout_s=timeout_s, attempts=1)

    def get(self, path: str, params: Mapping[str, str] | None = None, *, most_bytes: int | None = None) -> bytes:
        """The body of a successful response. A request without a response, or with 429 or 503, is retried.

        `most_bytes`: a longer body is a BadAnswer. The API server's own are trusted, those that it forwards are not.
        """
        for attempt in range(1, self._attempts + 1):
            try:
                return self._get(path, params or {}, most_bytes)
            except (Unreachable, ApiError) as error:
                wait_s = _retry_in_s(error, attempt)
                if wait_s is None or attempt == self._attempts:
                    raise
            self._sleep(wait_s)
        raise AssertionError("the last attempt returns or raises")

    def items(self, path: str, params: Mapping[str, str] | None = None, *, limit: int = 500) -> Iterator[msgspec.Raw]:
        """Every item of a list, read a page at a time; undecoded, so that a malformed one cannot fail its neighbours.

        Raises Expired if the list took so long that its continue token expired.
        """
        query = {**(params or {}), "limit": str(limit)}
        while True:
            try:
                page = _lists.decode(self.get(path, query))
            except UnreadableError as error:
                raise BadAnswer(f"GET {self._cluster.server}{path}: not a list: {error}") from error
            yield from page.items or ()
            if not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_

    def _get(self, path: str, params: Mapping[str, str], most_bytes: int | None) -> bytes:
        """One request. A 401 renews the credentials, once."""
        what = f"GET {self._cluster.server}{path}"
        for again in (True, False):
            presented = self._cluster.credentials.present()
            status, retry_after, body = self._send(what, path, params, presented, most_bytes)
            if status < 300:
                return body
            error = from_answer(status, body, retry_after=retry_after, request=what)
            if not again or not isinstance(error, Unauthorized):
                raise error
            self._cluster.credentials.refused(presented)
        raise AssertionError("the second attempt returns or raises")

    def _send(
        self, what: str, path: str, params: Mapping[str, str], presented: Presented, most_bytes: int | None
    ) -> tuple[int, str, bytes]:
        parts = urlsplit(self._cluster.server)
        # A proxy forwards plain HTTP and needs the whole URL; for HTTPS it opens a tunnel.
        forwarded = parts.scheme == "http" and self._cluster.proxy_url
        target = (self._cluster.server if forwarded else parts.path) + path + (f"?{urlencode(params)}" if params else "")
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": self._user_agent}
        if presented.authorization is not None:
            headers["Authorization"] = presented.authorization
        try:
            connection = self._open(presented.certificate)
            connection.request("GET", target, headers=headers)
            response = connection.getresponse()
            body = response.read() if most_bytes is None else response.read(most_bytes + 1)
        except (OSError, HTTPException) as error:
            self.close()
            raise Unreachable(f"{what}: {_cause(error, self._timeout_s)}") from error
        if response.headers.get("Content-Encoding") == "gzip":
            try:
                if most_bytes is None:
                    body = zlib.decompress(body, wbits=31)
                else:
                    body = zlib.decompressobj(wbits=31).decompress(body, most_bytes + 1)
            except zlib.error as error:
                raise BadAnswer(f"{what}: the response is not the gzip that it claims to be: {error}") from error
        if most_bytes is not None and len(body) > most_bytes:
            self.close()
            raise BadAnswer(f"{what}: the response is longer than {most_bytes} bytes")
        if response.will_close:
            self.close()
        return response.status, response.headers.get("Retry-After") or "", body

    def _open(self, certificate: Certificate | None) -> HTTPConnection:
        if self._connection is not None and self._shown == certificate:
            return self._connection
        self.close()
        self._connection, self._shown = _connection(self._cluster, certificate, self._timeout_s), certificate
        return self._connection


class _ListMeta(msgspec.Struct, rename={"continue_": "continue"}):
    continue_: str = ""


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_lists = Decoder(_List)


class _NamedHttpsConnection(HTTPSConnection):
    """HTTPS to a server whose certificate may have another name than its address."""

    server_name: str

    def connect(self) -> None:
        HTTPConnection.connect(self)  # TCP and, through a proxy, its CONNECT
        context: ssl.SSLContext = self._context  # type: ignore[attr-defined]  # the context passed to the constructor
        self.sock = context.wrap_socket(self.sock, server_hostname=self.server_name)


def _connection(cluster: Cluster, certificate: Certificate | None, timeout_s: float) -> HTTPConnection:
    parts = urlsplit(cluster.server)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    proxy = urlsplit(cluster.proxy_url) if cluster.proxy_url else None
    if proxy is not None and proxy.scheme != "http":
        raise ConfigError(
            f"{cluster.source}: the proxy {proxy.scheme}://{proxy.hostname} is reached over TLS; it must be http://"
        )
    near_host, near_port = (proxy.hostname or "", proxy.port or 80) if proxy else (host, port)
    context = cluster.ssl_context(certificate)
    if context is None:
        return HTTPConnection(near_host, near_port, timeout=timeout_s)
    connection = _NamedHttpsConnection(near_host, near_port, timeout=timeout_s, context=context)
    connection.server_name = cluster.tls.server_name or host
    if proxy is not None:
        pair = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}".encode()
        headers = {"Proxy-Authorization": f"Basic {b64encode(pair).decode()}"} if proxy.username else {}
        connection.set_tunnel(host, port, headers)
    return connection


def _retry_in_s(error: Unreachable | ApiError, attempt: int) -> float | None:
    """How long to wait before a retry, or None if a retry would not help a person who waits."""
    if isinstance(error, BadAnswer):
        return None
    if isinstance(error, Unreachable):
        # The server may have closed an idle connection; a server that is down will not be up in a second.
        return (
            0.0
            if attempt == 1 and not isinstance(error.__cause__, ConnectionRefusedError | socket.gaierror | TimeoutError)
            else None
        )
    if isinstance(error, TooManyRequests) or error.status == 503:
        return min(MAX_RETRY_S, max(0.2 * attempt, error.retry_after_s or 0.0))
    return None


def _cause(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no response within {timeout_s:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
