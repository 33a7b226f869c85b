"""One API server, asked over HTTP: a request, a list in pages, a watch.

Belongs here: connections, credentials on each request, time limits, translation of every library error.
Never: what an object means, or when to list again (that is `watch`).
"""

import asyncio
import random as _random
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, Literal, Self

import aiohttp
import msgspec
from yarl import URL

from accelshare.kube.config import Cluster
from accelshare.kube.credentials import Presented
from accelshare.kube.errors import (
    ApiError,
    BadAnswer,
    KubeError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    from_answer,
)
from accelshare.kube.lines import LineTooLongError, split_lines

GET_ATTEMPTS: Final = 4
FIRST_RETRY_S: Final = 0.1
LONGEST_RETRY_S: Final = 5.0

# kube-apiserver closes an idle connection after 90 s. Letting go earlier means that we do not send into a closing door.
KEEP_ALIVE_S: Final = 60.0

# etcd takes objects of 1.5 MiB, which can double as JSON. More than this is not an event.
LONGEST_EVENT_BYTES: Final = 32 << 20


class Page(msgspec.Struct, frozen=True):
    """A part of a list. The items are undecoded, so that one malformed object cannot fail its neighbours."""

    items: list[msgspec.Raw]
    resource_version: str


class WatchEvent(msgspec.Struct, frozen=True):
    """One change, as the API server tells it."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: msgspec.Raw


class Client:
    """A pool of kept-alive connections to one API server. It asks as often as it is told to: there is no rate limit here."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        user_agent: str,
        timeout_s: float = 15.0,
        on_retry: Callable[[str], None] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._cluster = cluster
        self._user_agent = user_agent
        self._timeout_s = timeout_s
        self._on_retry = on_retry
        self._sleep = sleep
        self._random = random
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._asking = asyncio.Lock()
        self._context: ssl.SSLContext | None = None
        self._context_for: Presented | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Give up every connection; watches in progress end as Unreachable."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """The body of a successful answer. Every failure is a KubeError.

        A GET that was not answered, or put off with 429 or 503, is asked again a few times. Nothing else is: only the caller
        knows whether a write may happen twice (aiohttp itself repeats a PUT or DELETE once if the connection is closed under
        it, which an idempotent write survives). `timeout_s` is for each attempt.
        """
        total_s = self._timeout_s if timeout_s is None else timeout_s
        # A connection that takes nearly all the time gives up first, which proves that the request was never sent.
        limit = aiohttp.ClientTimeout(total=total_s, sock_connect=total_s * 0.75)
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        if body is not None:
            headers["Content-Type"] = content_type
        attempts = GET_ATTEMPTS if method == "GET" else 1
        for attempt in range(1, attempts + 1):
            try:
                async with self._answer(method, path, params=params, headers=headers, body=body, limit=limit) as response:
                    return await response.read()
            except (Unreachable, ApiError) as error:
                wait_s = self._retry_in_s(error, attempt)
                if wait_s is None or attempt == attempts:
                    raise
                if self._on_retry is not None:
                    self._on_retry(str(error))
            await self._sleep(wait_s)
        raise AssertionError("the last attempt returns or raises")

    async def pages(
        self, path: str, *, params: Mapping[str, str] | None = None, limit: int = 500, timeout_s: float = 60.0
    ) -> AsyncGenerator[Page, None]:
        """The whole list, a page at a time. Raises Gone if the continue token has grown too old: list again from the start."""
        asked = {**(params or {}), "limit": str(limit)}
        asking = asyncio.ensure_future(self.request("GET", path, params=asked, timeout_s=timeout_s))
        while True:
            body = await asking
            try:
                page = msgspec.json.decode(body, type=_List)
            except ValueError as error:
                raise BadAnswer(f"GET {self._cluster.server}{path}: not a list: {error}") from error
            if not page.metadata.resource_version:
                raise BadAnswer(f"GET {self._cluster.server}{path}: a list without metadata.resourceVersion")
            found = Page(items=page.items or [], resource_version=page.metadata.resource_version)
            if not page.metadata.continue_:
                yield found
                return
            # The server works on the next page while this one is read, and everybody else on the loop has a turn.
            asked["continue"] = page.metadata.continue_
            asking = asyncio.ensure_future(self.request("GET", path, params=asked, timeout_s=timeout_s))
            try:
                await asyncio.sleep(0)
                yield found
            except BaseException:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                raise

    async def watch(
        self,
        path: str,
        *,
        resource_version: str,
        params: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        silence_s: float | None = None,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes after this version, until the server ends the watch, which it does every 5 to 10 minutes.

        An ERROR event raises what it stands for (Gone, for a version that is too old). A server that does not keep to the end
        it promised raises Unreachable, and so does `silence_s` without a byte; there is no such limit by default because an
        idle API server may send nothing for minutes, not even a bookmark, and a dead peer is noticed by the socket.
        `on_open` is called when the API server has accepted the watch, long before the first event may come.
        """
        # Many watchers that started together should not come back together.
        server_s = timeout_s if timeout_s is not None else 300.0 + 300.0 * self._random()
        asked = {
            **(params or {}),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, int(server_s))),
        }
        limit = aiohttp.ClientTimeout(total=server_s + self._timeout_s, sock_connect=self._timeout_s, sock_read=silence_s)
        # Not gzip: a compressor in between would hold events back.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        what = f"watch {self._cluster.server}{path}"
        async with self._answer("GET", path, params=asked, headers=headers, body=None, limit=limit) as response:
            if on_open is not None:
                on_open()
            try:
                # Not readline: it refuses lines longer than its buffer, and an event may be 2 MB.
                async for line in split_lines(response.content.iter_any(), longest=LONGEST_EVENT_BYTES):
                    yield _event(line, what)
            except LineTooLongError as error:
                raise BadAnswer(f"{what}: {error}") from error

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        body: bytes | None,
        limit: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful answer whose body is still to be read. A 401 renews the credentials, once."""
        what = f"{method} {self._cluster.server}{path}"
        for again in (True, False):
            presented, context = await self._credentials()
            shown = {"Authorization": presented.authorization} if presented.authorization is not None else {}
            try:
                async with self._connections().request(
                    method,
                    URL(self._cluster.server + path),
                    params=params,
                    headers={**headers, **shown},
                    data=body,
                    timeout=limit,
                    ssl=context if context is not None else True,
                    server_hostname=self._cluster.tls.server_name,
                    proxy=self._cluster.proxy_url,
                    allow_redirects=False,  # whoever redirects us must not be shown our token
                ) as response:
                    if response.status < 300:
                        yield response
                        return
                    said = await response.read()
                    error = from_answer(response.status, said, retry_after=response.headers.get("Retry-After", ""), request=what)
            except (aiohttp.ClientError, TimeoutError, OSError) as cause:
                if isinstance(cause, aiohttp.ClientSSLError | ssl.SSLError):
                    self._context_for = None  # certificates rotate: read the files again before the next handshake
                raise _unreachable(what, cause, limit) from cause
            if not again or not isinstance(error, Unauthorized):
                raise error
            self._cluster.credentials.refused(presented)
            self._context_for = None  # a certificate that has run out is a 401 too
        raise AssertionError("the second attempt returns or raises")

    async def _credentials(self) -> tuple[Presented, ssl.SSLContext | None]:
        """What to show, and the context to show it in. Files and exec plugins are waited for in a thread, one at a time."""
        credentials = self._cluster.credentials
        if credentials.at_hand and self._context_for == (presented := credentials.present()):
            return presented, self._context
        async with self._asking:
            presented = credentials.present() if credentials.at_hand else await asyncio.to_thread(credentials.present)
            fits = self._context_for is not None and self._context_for.certificate == presented.certificate
            if not fits:
                self._context = await asyncio.to_thread(self._cluster.ssl_context, presented.certificate)
            self._context_for = presented
            return presented, self._context

    def _connections(self) -> aiohttp.ClientSession:
        if self._closed:
            raise Unreachable("the client is closed", sent=False)
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, socket_factory=_socket)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": self._user_agent},
                trust_env=False,  # the proxy is decided in `proxy`, and .netrc is none of our business
            )
        return self._session

    def _retry_in_s(self, error: KubeError, attempt: int) -> float | None:
        """How long to wait before a GET is asked again, or None if asking again would not help."""
        backoff_s = FIRST_RETRY_S * 2.0 ** (attempt - 1) * (0.5 + 0.5 * self._random())
        if self._closed:
            return None
        match error:
            case Unreachable():
                return backoff_s
            case TooManyRequests() | ApiError(status=503):
                return min(LONGEST_RETRY_S, max(backoff_s, error.retry_after_s or 0.0))
        return None


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "continue_": "continue"}):
    resource_version: str = ""
    continue_: str = ""


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


_decode_event = msgspec.json.Decoder(_Event).decode


def _event(line: bytes, what: str) -> WatchEvent:
    try:
        event = _decode_event(line)
    except ValueError as error:
        raise BadAnswer(f"{what}: not a watch event: {error}") from error
    if event.type == "ERROR":
        raise from_answer(0, event.object, request=what)
    return WatchEvent(type=event.type, object=event.object)


def _unreachable(what: str, cause: Exception, limit: aiohttp.ClientTimeout) -> Unreachable:
    """In words, and whether the request can have reached the server at all."""
    unsent = isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.ClientHttpProxyError)
    match cause:
        case aiohttp.SocketTimeoutError():
            words = f"silent for {limit.sock_read:g} s" if limit.sock_read else "no answer in time"
        case TimeoutError() if limit.total:
            words = f"no answer within {limit.total:g} s"
        case _:
            words = str(cause) or type(cause).__name__
    return Unreachable(f"{what}: {words}", sent=not unsent)


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices within half a minute that its peer is gone; a watch may otherwise wait on a dead one."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        if hasattr(socket, option):  # Linux has them all, other systems some
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
