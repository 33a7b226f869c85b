"""The client of one API server: requests, lists in pages, watches.

Belongs here: credentials on each request, retries, time limits, translation of every library error.
Never: sockets (http/), what an object means, or when to list again (watch.py).
"""

import asyncio
import gzip
import random as _random
import ssl
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from accelshare.http.client import ClientLimits, ClientResponse, ConnectionPool, Lines, LineTooLongError
from accelshare.http.route import ConnectError, Route
from accelshare.kube.config import Cluster
from accelshare.kube.credentials import Presented
from accelshare.kube.errors import (
    ApiError,
    BadAnswer,
    KubeError,
    NotFound,
    TooManyRequests,
    Unreachable,
    from_answer,
)
from accelshare.wire.decoding import PROTOBUF_MAGIC, Decoder, ListDecoder, ListPage, UnreadableError

T = TypeVar("T")

GET_ATTEMPTS: Final = 4
FIRST_RETRY_S: Final = 0.1
MAX_RETRY_S: Final = 5.0
PAGE: Final = 1_000  # objects
FIRST_PAGE: Final = 100  # objects; a list that has no more is one request, a longer one comes as one response
STREAM_S: Final = 300.0  # for a list in one response; API servers give it 60 s unless they are told otherwise
SILENT_STREAM_S: Final = 60.0
PAGES_AHEAD: Final = 2  # of a list, kept for the reader
UNAUTHORIZED: Final = 401
IDEMPOTENT: Final = frozenset({"GET", "PUT", "DELETE"})

# etcd takes objects of 1.5 MiB, which can double as JSON. More than this is not an event.
MAX_EVENT_BYTES: Final = 32 << 20


JSON: Final = "application/json"
# An API server that is not kube-apiserver may not have protobuf; it answers in JSON then.
PROTOBUF: Final = f"application/vnd.kubernetes.protobuf, {JSON}"


class Page(msgspec.Struct, frozen=True):
    """A part of a list. The items are messages, or undecoded JSON, so that one malformed object cannot fail its neighbours."""

    items: Sequence[Any]
    resource_version: str
    restarted: bool = False  # the list begins again here, with another version: what came before is no part of it


class WatchEvent(msgspec.Struct, frozen=True):
    """One change of one object."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: msgspec.Raw


class Client:
    """Requests to one API server over keep-alive connections. There is no rate limit."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        user_agent: str,
        timeout_s: float = 15.0,
        compressed: bool = True,
        on_retry: Callable[[str], None] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = _random.random,
    ) -> None:
        """`compressed`: let the API server compress large responses. Near it, that takes longer than to send them as they are."""
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._accept_encoding = f"Accept-Encoding: {'gzip' if compressed else 'identity'}"
        self._on_retry = on_retry
        self._sleep = sleep
        self._random = random
        self._route = Route(cluster.server, server_name=cluster.tls.server_name, proxy_url=cluster.proxy_url)
        self._connections = ConnectionPool(self._route)
        self._headers = (
            f"Host: {self._route.host}",
            f"User-Agent: {user_agent}",
            *self._route.headers,
        )
        self._closed = False
        self._credentials_lock = asyncio.Lock()
        self._context: ssl.SSLContext | None = None
        self._context_for: Presented | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; watches in progress raise Unreachable."""
        self._closed = True
        await self._connections.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        params: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        most_bytes: int | None = None,
    ) -> bytes:
        """The body of a successful response. Every failure is a KubeError.

        A GET without a response, or with 429 or 503, is retried a few times. Nothing else is: only the caller knows whether a
        write may happen twice. (A PUT or DELETE is sent once more if its connection is closed, because it is idempotent.)
        `timeout_s` is for each attempt. `most_bytes`: a longer body is a BadAnswer. The API server's own are trusted, those that
        it forwards are not.
        """
        total_s = self._timeout_s if timeout_s is None else timeout_s
        # Connecting times out before the request does, which proves that the request was never sent.
        limits = ClientLimits(total_s, connect_s=total_s * 0.75)
        what = f"{method} {self._cluster.server}{path}"
        headers: tuple[str, ...] = (f"Accept: {accept}", self._accept_encoding)
        if body is not None:
            headers += (f"Content-Type: {content_type}",)
        request = self._request(method, path, params, headers, body)
        attempts = GET_ATTEMPTS if method == "GET" else 1
        for attempt in range(1, attempts + 1):
            try:
                return await self._read(request, limits, what, most_bytes)
            except (Unreachable, ApiError) as error:
                wait_s = self._retry_in_s(error, attempt)
                if wait_s is None or attempt == attempts:
                    raise
                if self._on_retry is not None:
                    self._on_retry(str(error))
            await self._sleep(wait_s)
        raise AssertionError("the last attempt returns or raises")

    async def read(self, path: str, decoder: Decoder[T]) -> T | None:
        """The object at this path; None if it does not exist."""
        try:
            return decoder.decode(await self.request("GET", path))
        except NotFound:
            return None
        except UnreadableError as error:
            raise BadAnswer(f"GET {self._cluster.server}{path}: {error}") from error

    async def pages(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        limit: int = PAGE,
        timeout_s: float = 60.0,
        messages: ListDecoder | None = None,
    ) -> AsyncGenerator[Page, None]:
        """The whole list, a page at a time. Raises Expired if the continue token has expired: list again from the start.

        The next pages are fetched while a page is read, if the reader gives the loop a turn now and then.
        `messages`: ask for protobuf, and read it with this. A page that it cannot read is asked for in JSON. A long list comes
        as one response if the API server can send it. If that ends too early, the list is restarted.
        """
        query = {**(params or {}), "limit": str(limit)}
        restarted = False
        if messages is not None:
            first = await self._fetch_page(path, {**query, "limit": str(min(limit, FIRST_PAGE))}, timeout_s, messages)
            beginning = self._page(path, first)
            if not first.continue_token:
                yield beginning
                return
            if first.binary:
                try:
                    async with aclosing(self._stream(path, params or {}, beginning.resource_version, messages)) as parts:
                        async for part in parts:
                            restarted = True
                            yield part
                except (KubeError, OSError, UnreadableError) as error:
                    if self._on_retry is not None:
                        self._on_retry(f"GET {self._cluster.server}{path}: {error}")
                else:
                    return
        pages: asyncio.Queue[Page | KubeError | None] = asyncio.Queue(PAGES_AHEAD)
        fetching = asyncio.ensure_future(self._fetch_pages(path, query, timeout_s, messages, pages))
        try:
            while (page := await pages.get()) is not None:
                if isinstance(page, KubeError):
                    raise page
                yield msgspec.structs.replace(page, restarted=True) if restarted else page
                restarted = False
        finally:
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)

    async def _stream(
        self, path: str, params: Mapping[str, str], version: str, messages: ListDecoder
    ) -> AsyncGenerator[Page, None]:
        """The whole list in one response, not older than this version. Raises if anything of it is missing or unreadable.

        The API server sends it from its cache, while pages after the first may come from etcd, which takes it more CPU. One whose
        cache is behind answers with an error.
        """
        query = {**params, "resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
        what = f"GET {self._cluster.server}{path}"
        request = self._request("GET", path, query, (f"Accept: {PROTOBUF}", "Accept-Encoding: identity"))
        listed = messages.stream()
        response = await self._respond(request, ClientLimits(STREAM_S, connect_s=self._timeout_s), what)
        try:
            while piece := await response.piece(silence_s=SILENT_STREAM_S):
                if items := listed.feed(piece):
                    yield self._page(path, ListPage(items, listed.resource_version, ""))
        finally:
            self._connections.release(response)
        if not listed.complete:
            raise BadAnswer(f"{what}: only a part of the list")
        yield self._page(path, ListPage((), listed.resource_version, ""))  # also of a list without objects

    async def _fetch_pages(
        self,
        path: str,
        query: dict[str, str],
        timeout_s: float,
        messages: ListDecoder | None,
        pages: "asyncio.Queue[Page | KubeError | None]",
    ) -> None:
        """Put every page, then None; or the error that ended it."""
        try:
            while True:
                part = await self._fetch_page(path, query, timeout_s, messages)
                await pages.put(self._page(path, part))
                if not part.continue_token:
                    return await pages.put(None)
                query["continue"] = part.continue_token
        except KubeError as error:
            await pages.put(error)

    def _page(self, path: str, part: ListPage) -> Page:
        if not part.resource_version:
            raise BadAnswer(f"GET {self._cluster.server}{path}: a list without metadata.resourceVersion")
        return Page(items=part.items, resource_version=part.resource_version)

    async def _fetch_page(
        self,
        path: str,
        query: dict[str, str],
        timeout_s: float,
        messages: ListDecoder | None,
    ) -> ListPage:
        if messages is not None:
            body = await self.request("GET", path, params=query, timeout_s=timeout_s, accept=PROTOBUF)
            if not body.startswith(PROTOBUF_MAGIC):
                return self._json_list(path, body)
            try:
                return messages.page(body)
            except UnreadableError:
                pass  # one object can be the cause; JSON has each by itself
        return self._json_list(path, await self.request("GET", path, params=query, timeout_s=timeout_s))

    def _json_list(self, path: str, body: bytes) -> ListPage:
        try:
            part = _lists.decode(body)
        except ValueError as error:
            raise BadAnswer(f"GET {self._cluster.server}{path}: not a list: {error}") from error
        return ListPage(part.items or [], part.metadata.resource_version, part.metadata.continue_)

    async def watch(
        self,
        path: str,
        *,
        resource_version: str,
        params: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        silence_s: float | None = None,
        on_open: Callable[[Callable[[str], None]], None] | None = None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes after this version, until the server ends the watch, which it does every 5 to 10 minutes.

        An ERROR event raises its error (Expired, for a version that is too old). A server that does not end the watch in time
        raises Unreachable, and so does `silence_s` without a byte; there is no such limit by default because an idle API server
        may send nothing for minutes, not even a bookmark, and the socket's keep-alive detects a dead peer.
        `on_open` is called when the API server has accepted the watch, which may be long before the first event, with a
        function that ends the watch as a broken connection would, for the reason that it is given.
        """
        # Watchers that started together should not reconnect together.
        server_s = timeout_s if timeout_s is not None else 300.0 + 300.0 * self._random()
        query = {
            **(params or {}),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, int(server_s))),
        }
        what = f"watch {self._cluster.server}{path}"
        # Not gzip: a compressor would delay events.
        request = self._request("GET", path, query, (f"Accept: {JSON}", "Accept-Encoding: identity"))
        # The server should end the watch after server_s; if it does not, we do.
        limits = ClientLimits(total_s=server_s + self._timeout_s, connect_s=self._timeout_s)
        lines = Lines(max_bytes=MAX_EVENT_BYTES)
        response = await self._respond(request, limits, what)
        try:
            if on_open is not None:
                on_open(lambda why: response.fail(ConnectionError(why)))
            while piece := await response.piece(silence_s=silence_s):
                for line in lines.feed(piece):
                    yield _event(line, what)
        except LineTooLongError as error:
            raise BadAnswer(f"{what}: {error}") from error
        except OSError as cause:
            raise self._unreachable(what, cause, f"silent for {silence_s or 0:g} s") from cause
        finally:
            self._connections.release(response)
        if last := lines.rest():
            yield _event(last, what)

    async def _read(self, request: "_Request", limits: ClientLimits, what: str, most_bytes: int | None) -> bytes:
        """The body of a successful response."""
        response = await self._respond(request, limits, what, most_bytes)
        try:
            body = await _body(response, what, most_bytes)
        except OSError as cause:
            raise self._unreachable(what, cause) from cause
        finally:
            self._connections.release(response)
        return _decompress(body, response.headers.get("content-encoding", ""), what, most_bytes)

    async def _respond(
        self, request: "_Request", limits: ClientLimits, what: str, most_bytes: int | None = None
    ) -> ClientResponse:
        """A successful response whose body is still to be read. A 401 renews the credentials, once."""
        for again in (True, False):
            presented, context = await self._credentials()
            try:
                response = await self._head(request, request.encode(presented), context, limits)
                if response.status < 300:
                    return response
                try:
                    body = await _body(response, what, most_bytes)
                finally:
                    self._connections.release(response)
            except OSError as cause:
                raise self._unreachable(what, cause) from cause
            body = _decompress(body, response.headers.get("content-encoding", ""), what, most_bytes)
            # A redirect is an error like any other: its target must not get our token.
            if not again or response.status != UNAUTHORIZED:
                # No variable for the error: it would stay in memory with its traceback until garbage is collected.
                raise from_answer(response.status, body, retry_after=response.headers.get("retry-after", ""), request=what)
            self._cluster.credentials.refused(presented)
            self._context_for = None  # an expired certificate is a 401 too
        raise AssertionError("the second attempt returns or raises")

    async def _head(
        self, request: "_Request", content: bytes, context: ssl.SSLContext | None, limits: ClientLimits
    ) -> ClientResponse:
        """A response whose head is complete. An idempotent request is sent again if its connection closes without a response."""
        for again in (request.method in IDEMPOTENT, False):
            response = await self._connections.send(content, context, limits)
            try:
                await response.head()
            except BaseException as cause:
                self._connections.release(response)
                if not again or response.begun or not isinstance(cause, ConnectionError):
                    raise
            else:
                return response
        raise AssertionError("the second attempt returns or raises")

    def _request(
        self, method: str, path: str, params: Mapping[str, str] | None, headers: tuple[str, ...], body: bytes | None = None
    ) -> "_Request":
        target = self._route.prefix + quote(path, safe=_PATH_SAFE) + (f"?{_query(tuple(params.items()))}" if params else "")
        lines = (f"{method} {target} HTTP/1.1", *self._headers, *headers)
        if body is not None or method != "GET":
            lines += (f"Content-Length: {len(body or b'')}",)
        return _Request(method, lines, body or b"")

    async def _credentials(self) -> tuple[Presented, ssl.SSLContext | None]:
        """The credentials and the TLS context to use. Files and exec plugins run in a thread, one at a time."""
        credentials = self._cluster.credentials
        if credentials.at_hand and self._context_for == (presented := credentials.present()):
            return presented, self._context
        async with self._credentials_lock:
            presented = credentials.present() if credentials.at_hand else await asyncio.to_thread(credentials.present)
            fits = self._context_for is not None and self._context_for.certificate == presented.certificate
            if not fits:
                self._context = await asyncio.to_thread(self._cluster.ssl_context, presented.certificate)
            self._context_for = presented
            return presented, self._context

    def _unreachable(self, what: str, cause: OSError, silent: str = "") -> Unreachable:
        """The error with its cause, and whether the request can have reached the server."""
        if isinstance(cause, ssl.SSLError) or isinstance(cause.__cause__, ssl.SSLError):
            self._context_for = None  # certificates rotate: read the files again before the next handshake
        text = str(cause) or silent or type(cause).__name__
        return Unreachable(f"{what}: {text}", sent=not isinstance(cause, ConnectError))

    def _retry_in_s(self, error: KubeError, attempt: int) -> float | None:
        """How long to wait before a GET is retried, or None if a retry would not help."""
        backoff_s = FIRST_RETRY_S * 2.0 ** (attempt - 1) * (0.5 + 0.5 * self._random())
        if self._closed:
            return None
        match error:
            case Unreachable():
                return backoff_s
            case TooManyRequests() | ApiError(status=503):
                return min(MAX_RETRY_S, max(backoff_s, error.retry_after_s or 0.0))
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


_lists = Decoder(_List)
_decode_event = Decoder(_Event).decode


def _event(line: bytes, what: str) -> WatchEvent:
    try:
        event = _decode_event(line)
    except ValueError as error:
        raise BadAnswer(f"{what}: not a watch event: {error}") from error
    if event.type == "ERROR":
        raise from_answer(0, event.object, request=what)
    return WatchEvent(type=event.type, object=event.object)


# What may stand in a path as it is (RFC 3986, pchar). A percent sign is the caller's own escape.
_PATH_SAFE: Final = "/:@!$&'()*+,;=~%"


@lru_cache(maxsize=64)
def _query(params: tuple[tuple[str, str], ...]) -> str:
    return urlencode(params)


class _Request(msgspec.Struct, frozen=True):
    """A request without its credentials."""

    method: str
    lines: tuple[str, ...]
    body: bytes

    def encode(self, presented: Presented) -> bytes:
        """All of it, as it is sent."""
        authorization = (f"Authorization: {presented.authorization}",) if presented.authorization is not None else ()
        return "\r\n".join((*self.lines, *authorization, "\r\n")).encode("latin-1") + self.body


async def _body(response: ClientResponse, what: str, most_bytes: int | None) -> bytes:
    if most_bytes is None:
        return await response.read()
    pieces: list[bytes] = []
    left = most_bytes
    while piece := await response.piece():
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            raise BadAnswer(f"{what}: the response is longer than {most_bytes} bytes")
    return b"".join(pieces)


def _decompress(body: bytes, encoding: str, what: str, most_bytes: int | None = None) -> bytes:
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise BadAnswer(f"{what}: the body's content-encoding is {encoding!r}; it must be gzip or none")
    try:
        # In one pass; gzip.decompress computes the checksum in a second one.
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        content = unpacker.decompress(body, 0 if most_bytes is None else most_bytes + 1)
        if most_bytes is not None:
            if not unpacker.eof or unpacker.unused_data or len(content) > most_bytes:
                raise BadAnswer(f"{what}: the response is longer than {most_bytes} bytes, or not gzip as announced")
            return content
        return content if unpacker.eof and not unpacker.unused_data else gzip.decompress(body)
    except (OSError, EOFError, zlib.error) as error:
        raise BadAnswer(f"{what}: the body is not gzip as announced: {error}") from error
