"""One API server, asked over HTTP: a request, a list in pages, a watch.

Belongs here: connections, credentials on each request, time limits, translation of every library error.
Never: what an object means, or when to list again (that is `watch`).
"""

import asyncio
import gzip
import random as _random
import ssl
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final, Literal, Self
from urllib.parse import quote, urlencode

import msgspec

from accelshare.kube.answer import Answer
from accelshare.kube.config import Cluster
from accelshare.kube.connection import Connections, Limits
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
from accelshare.kube.lines import Lines, LineTooLongError
from accelshare.kube.route import NotConnectedError, Route
from accelshare.wire.decoding import Decoder

GET_ATTEMPTS: Final = 4
FIRST_RETRY_S: Final = 0.1
LONGEST_RETRY_S: Final = 5.0
IDEMPOTENT: Final = frozenset({"GET", "PUT", "DELETE"})

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
        self._timeout_s = timeout_s
        self._on_retry = on_retry
        self._sleep = sleep
        self._random = random
        self._route = Route(cluster.server, server_name=cluster.tls.server_name, proxy_url=cluster.proxy_url)
        self._connections = Connections(self._route)
        self._headers = (
            f"Host: {self._route.host}",
            f"User-Agent: {user_agent}",
            "Accept: application/json",
            *self._route.headers,
        )
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
        await self._connections.close()

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
        knows whether a write may happen twice (but a PUT or DELETE is sent once more if the connection is closed under it,
        which an idempotent write survives). `timeout_s` is for each attempt.
        """
        total_s = self._timeout_s if timeout_s is None else timeout_s
        # A connection that takes nearly all the time gives up first, which proves that the request was never sent.
        limits = Limits(total_s, connect_s=total_s * 0.75)
        what = f"{method} {self._cluster.server}{path}"
        kinds = ("Accept-Encoding: gzip", f"Content-Type: {content_type}") if body is not None else ("Accept-Encoding: gzip",)
        request = self._request(method, path, params, kinds, body)
        attempts = GET_ATTEMPTS if method == "GET" else 1
        for attempt in range(1, attempts + 1):
            try:
                return await self._whole(request, limits, what)
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
                page = _lists.decode(body)
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
        what = f"watch {self._cluster.server}{path}"
        # Not gzip: a compressor in between would hold events back.
        request = self._request("GET", path, asked, ("Accept-Encoding: identity",))
        # A watch is as old as it may get when the server should have ended it and has not.
        limits = Limits(total_s=server_s + self._timeout_s, connect_s=self._timeout_s)
        lines = Lines(longest=LONGEST_EVENT_BYTES)
        answer = await self._answer(request, limits, what)
        try:
            if on_open is not None:
                on_open()
            while piece := await answer.piece(silence_s=silence_s):
                for line in lines.feed(piece):
                    yield _event(line, what)
        except LineTooLongError as error:
            raise BadAnswer(f"{what}: {error}") from error
        except OSError as cause:
            raise self._unreachable(what, cause, f"silent for {silence_s or 0:g} s") from cause
        finally:
            self._connections.done(answer)
        if last := lines.rest():
            yield _event(last, what)

    async def _whole(self, request: "_Request", limits: Limits, what: str) -> bytes:
        """The body of a successful answer."""
        answer = await self._answer(request, limits, what)
        try:
            said = await answer.read()
        except OSError as cause:
            raise self._unreachable(what, cause) from cause
        finally:
            self._connections.done(answer)
        return _plain(said, answer.headers.get("content-encoding", ""), what)

    async def _answer(self, request: "_Request", limits: Limits, what: str) -> Answer:
        """A successful answer whose body is still to be read. A 401 renews the credentials, once."""
        for again in (True, False):
            presented, context = await self._credentials()
            try:
                answer = await self._begun(request, request.shown(presented), context, limits)
                if answer.status < 300:
                    return answer
                try:
                    said = await answer.read()
                finally:
                    self._connections.done(answer)
            except OSError as cause:
                raise self._unreachable(what, cause) from cause
            said = _plain(said, answer.headers.get("content-encoding", ""), what)
            error = from_answer(answer.status, said, retry_after=answer.headers.get("retry-after", ""), request=what)
            # A redirect is refused like any other: whoever redirects us must not be shown our token.
            if not again or not isinstance(error, Unauthorized):
                raise error
            self._cluster.credentials.refused(presented)
            self._context_for = None  # a certificate that has run out is a 401 too
        raise AssertionError("the second attempt returns or raises")

    async def _begun(self, request: "_Request", shown: bytes, context: ssl.SSLContext | None, limits: Limits) -> Answer:
        """An answer of which the head is there. What may be sent twice is, if the connection is closed instead of an answer."""
        for again in (request.method in IDEMPOTENT, False):
            answer = await self._connections.ask(shown, context, limits)
            try:
                await answer.head()
            except BaseException as cause:
                self._connections.done(answer)
                if not again or answer.begun or not isinstance(cause, ConnectionError):
                    raise
            else:
                return answer
        raise AssertionError("the second attempt returns or raises")

    def _request(
        self, method: str, path: str, params: Mapping[str, str] | None, headers: tuple[str, ...], body: bytes | None = None
    ) -> "_Request":
        target = self._route.prefix + quote(path, safe=_PATH_SAFE) + (f"?{urlencode(params)}" if params else "")
        lines = (f"{method} {target} HTTP/1.1", *self._headers, *headers)
        if body is not None or method != "GET":
            lines += (f"Content-Length: {len(body or b'')}",)
        return _Request(method, lines, body or b"")

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

    def _unreachable(self, what: str, cause: OSError, silent: str = "") -> Unreachable:
        """In words, and whether the request can have reached the server at all."""
        if isinstance(cause, ssl.SSLError) or isinstance(cause.__cause__, ssl.SSLError):
            self._context_for = None  # certificates rotate: read the files again before the next handshake
        words = str(cause) or silent or type(cause).__name__
        return Unreachable(f"{what}: {words}", sent=not isinstance(cause, NotConnectedError))

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


class _Request(msgspec.Struct, frozen=True):
    """A request, but for the proof of who asks."""

    method: str
    lines: tuple[str, ...]
    body: bytes

    def shown(self, presented: Presented) -> bytes:
        """All of it, as it is sent."""
        proof = (f"Authorization: {presented.authorization}",) if presented.authorization is not None else ()
        return "\r\n".join((*self.lines, *proof, "\r\n")).encode("latin-1") + self.body


def _plain(said: bytes, encoding: str, what: str) -> bytes:
    """A body without its compression."""
    if encoding in ("", "identity"):
        return said
    if encoding != "gzip":
        raise BadAnswer(f"{what}: its body comes as {encoding!r}; it must be gzip or plain")
    try:
        return gzip.decompress(said)
    except (OSError, EOFError, zlib.error) as error:
        raise BadAnswer(f"{what}: {error}") from error
