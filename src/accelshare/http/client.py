"""An HTTP client for one server: keep-alive connections, one request at a time on each, as many as are needed.

Belongs here: the grammar of responses (llhttp's, through httptools), which connection a request uses, when a connection is
closed. Never: how the server is reached (route.py), what a request or a response means.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, cast

import msgspec
from httptools import HttpParserError, HttpResponseParser

from accelshare.http.route import ConnectError, Route

# kube-apiserver closes an idle connection after 90 s. We close it earlier, so as not to write into a closing one.
KEEP_ALIVE_S: Final = 60.0
# A reader that falls this far behind makes the server wait, rather than fill our memory. Larger pieces would leave the
# processor's cache before they are read.
MAX_BUFFERED_BYTES: Final = 128 << 10


class IncompleteResponseError(ConnectionError):
    """The connection ended before the response did, or what came is not HTTP."""


class ClientResponse:
    """One response as it arrives. `feed`, `end` and `fail` bring it in; `head`, `piece` and `read` wait, one reader at a time."""

    def __init__(self, resume: Callable[[], None]) -> None:
        """`resume` is called when the reader has caught up after `is_full`."""
        self.status = 0
        self.headers: dict[str, str] = {}  # names in lower case
        self.begun = False  # at least one byte has come
        self.complete = False
        self.keeps_connection = False
        self._resume: Callable[[], None] | None = resume
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._head_complete = False
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._failure: Exception | None = None
        self._change: asyncio.Future[None] | None = None

    @property
    def is_full(self) -> bool:
        return self._buffered > MAX_BUFFERED_BYTES

    # What comes in.

    def feed(self, data: bytes) -> None:
        self.begun = True
        if self._parser is None:
            return
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self.keeps_connection = False
            self.fail(IncompleteResponseError(f"not an HTTP response: {error}"))
        self._notify()

    def end(self, error: Exception | None) -> None:
        """The connection is closed, which completes a body without a length and breaks off any other."""
        if self._head_complete and error is None and self.headers.keys().isdisjoint(("content-length", "transfer-encoding")):
            self.complete = True
            self._notify()
        elif error is not None:
            self.fail(error)
        else:
            text = "the response broke off" if self.begun else "the connection was closed without a response"
            self.fail(IncompleteResponseError(text))

    def fail(self, error: Exception) -> None:
        """Nothing more will come. What came before can still be read."""
        if not self.complete and self._failure is None:
            self._failure = error
            self._notify()

    def close(self) -> None:
        """End the use of it: without the references that would keep it and its connection in memory until garbage is collected.

        A TLS connection has a quarter of a megabyte of buffers, and the extender's garbage collector seldom runs.
        """
        self._parser = None  # refers to this object
        self._resume = None  # refers to the connection
        self._failure = None  # its traceback refers to this object

    def _notify(self) -> None:
        change, self._change = self._change, None
        if change is not None and not change.done():
            change.set_result(None)

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self.complete:
            raise IncompleteResponseError("a second response to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        assert self._parser is not None  # it calls this
        self.status = self._parser.get_status_code()
        self._head_complete = self.status >= 200  # 100 Continue and its like precede the response

    def on_body(self, data: bytes) -> None:
        self._chunks.append(data)
        self._buffered += len(data)

    def on_message_complete(self) -> None:
        assert self._parser is not None  # it calls this
        if self._head_complete:
            self.complete = True
            self.keeps_connection = self._parser.should_keep_alive()
        else:
            self.headers.clear()

    # What a reader waits for.

    async def head(self) -> None:
        """Wait until `status` and `headers` are known."""
        while not self._head_complete:
            if self._failure is not None:
                raise self._failure
            await self._more()

    async def piece(self, *, silence_s: float | None = None) -> bytes:
        """What has come of the body since the last piece, or comes next; empty at its end.

        Raises TimeoutError if nothing comes for `silence_s`.
        """
        while not self._chunks:
            if self.complete:
                return b""
            if self._failure is not None:
                raise self._failure
            if silence_s is None:
                await self._more()
            else:
                async with asyncio.timeout(silence_s):
                    await self._more()
        return b"".join(self._take())

    async def read(self) -> bytes:
        """The whole body."""
        chunks: list[bytes] = []
        while not self.complete:
            if self._chunks:
                chunks += self._take()
            elif self._failure is not None:
                raise self._failure
            else:
                await self._more()
        return b"".join(chunks + self._take())

    def _take(self) -> list[bytes]:
        """What has come of the body and was not taken. Joined once, at its end: a page of a list has megabytes."""
        chunks, self._chunks = self._chunks, []
        was_full, self._buffered = self.is_full, 0
        if was_full and self._resume is not None:
            self._resume()
        return chunks

    async def _more(self) -> None:
        self._change = asyncio.get_running_loop().create_future()
        await self._change


class ClientLimits(msgspec.Struct, frozen=True):
    """How long a request may take in total, and how long a new connection for it may take."""

    total_s: float
    connect_s: float


class ClientConnection(asyncio.Protocol):
    """One connection. A response that is not read to its end makes it useless."""

    def __init__(self) -> None:
        self.context: ssl.SSLContext | None = None  # the TLS context that it was opened with
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._response: ClientResponse | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes) -> ClientResponse:
        assert self._transport is not None
        self._response = ClientResponse(self._transport.resume_reading)
        self._transport.write(request)
        return self._response

    def abort(self) -> None:
        """Close it now; nothing that could still come is needed."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._response is None or self._response.complete:
            self.abort()  # there was no request for this; it must not be taken for the next response
            return
        self._response.feed(data)
        if self._response.is_full and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._response is not None:
            self._response.end(error)


class ConnectionPool:
    """The connections to one server."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._idle: list[ClientConnection] = []
        self._closed = False
        self._busy: dict[ClientResponse, tuple[ClientConnection, asyncio.TimerHandle]] = {}

    async def send(self, request: bytes, context: ssl.SSLContext | None, limits: ClientLimits) -> ClientResponse:
        """Send the request and return its response, which still arrives and must be passed to `release` in the end.

        Raises ConnectError if nothing was sent because there is no connection. A response that is not complete in time fails
        with a TimeoutError.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + limits.total_s
        connection = self._take_idle(context)
        if connection is None:
            connection = await self._route.open(ClientConnection, context, within_s=limits.connect_s)
            connection.context = context
        if self._closed:
            connection.abort()
            raise ConnectError("the client is closed")
        response = connection.send(request)
        late = TimeoutError(f"no response within {limits.total_s:g} s")
        self._busy[response] = connection, loop.call_at(ends, response.fail, late)
        return response

    def release(self, response: ClientResponse) -> None:
        """End the use of this response. Its connection is kept if the response was read completely."""
        connection, timer = self._busy.pop(response)
        timer.cancel()
        if response.complete and response.keeps_connection and not response.is_full and connection.is_open:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
            self._close_unused(connection.idle_since - KEEP_ALIVE_S)
        else:
            connection.abort()
        response.close()

    async def close(self) -> None:
        """Close all connections, also those in use, and open no others."""
        self._closed = True
        for connection in (*self._idle, *(busy for busy, _ in self._busy.values())):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # the loop's turn, in which transports close their sockets

    def _close_unused(self, oldest: float) -> None:
        """Close those that a rush has left: they are never used again while a few are enough. The oldest come first."""
        while self._idle[0].idle_since <= oldest or not self._idle[0].is_open:
            self._idle.pop(0).abort()

    def _take_idle(self, context: ssl.SSLContext | None) -> ClientConnection | None:
        """The connection that was used last, if it is still usable."""
        oldest = asyncio.get_running_loop().time() - KEEP_ALIVE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.context is context and connection.idle_since > oldest:
                return connection
            connection.abort()
        return None


class LineTooLongError(ValueError):
    """A line is longer than the reader is ready to keep in memory."""


class Lines:
    """Splits pieces of a body into lines without their line breaks; skips blank ones."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []  # of the incomplete line; joined once, so that a long line costs its length, not its square
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes."""
        first, *others = piece.split(b"\n")
        self._parts.append(first)
        self._size += len(first)
        if self._size > self._max_bytes:
            raise LineTooLongError(f"a line of more than {self._max_bytes} bytes")
        if not others:
            return []
        lines = [b"".join(self._parts), *others]
        self._parts = [lines.pop()]
        self._size = len(self._parts[0])
        return [line for line in lines if line.strip()]

    def rest(self) -> bytes:
        """The last line, if it has no line break; empty if it has."""
        return b"".join(self._parts).strip()
