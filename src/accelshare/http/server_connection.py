"""One client's HTTP/1.1 connection to a server: reads complete requests, writes complete responses, in order and within limits.

Belongs here: the order of requests and responses, what is held in memory for this client. Never: parsing (request_reader.py),
accepting (server.py), what a path means.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine, Sequence
from functools import partial
from typing import Final, cast

from accelshare.http.messages import AbortConnection, HttpHandler, Response, Stream, chunk, failure
from accelshare.http.open_connections import OpenConnections
from accelshare.http.request_reader import PendingRequest, RequestReader
from accelshare.http.transports import discard_unread

log = logging.getLogger(__name__)
MAX_HEAD_BYTES: Final = 64 << 10


class ServerConnection(asyncio.Protocol):
    def __init__(
        self, handler: HttpHandler, connections: OpenConnections, *, address: str, max_body_bytes: int, max_head_bytes: int
    ) -> None:
        """`connections` has this one until it is closed and its last request is handled."""
        self._handler = handler
        self._connections = connections
        self._reader = RequestReader(
            self._put, self._write_continue, max_body_bytes=max_body_bytes, max_head_bytes=max_head_bytes
        )
        self._transport: asyncio.Transport | None = None
        self._pending: deque[PendingRequest] = deque()
        self._closing = False  # requests that have not been read yet get no response
        self._writable = asyncio.Event()
        self._writable.set()
        self._written_bytes = 0  # of the last response
        self._unread_bytes = 0  # of the last response, at most
        self._streaming: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self.address = address
        self.responding: asyncio.Task[None] | None = None
        self.handling: asyncio.Future[None] | None = None  # until the response is known, though not yet read
        self.idle_since = self._loop.time()
        self.unread_since: float | None = None  # the client has read nothing of its response since then
        self.held_bytes = 0
        self.held_since = 0.0
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def connected(self) -> bool:
        return self._transport is not None

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        return () if self.responding is None else (self.responding,)

    def close_when_idle(self) -> None:
        self._closing = True
        if self.responding is None and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def reset(self) -> None:
        discard_unread(self._transport)
        self.abort()

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(None)
        self._connections.idle.closed(self.address, self)
        self._pending.clear()
        self._writable.set()
        self.unread_since = None
        self._connections.hold(self, 0)
        if self._streaming is not None:
            self._streaming.cancel()
        if self.responding is None:
            self._connections.forget(self)

    def data_received(self, data: bytes) -> None:
        if self._reader.refused or self._closing:
            return
        self._reader.feed(data)
        if self._reader.upgrade:
            self._closing = True  # the last request gets a response in HTTP/1.1
        self._count_held()

    def eof_received(self) -> bool:
        """The client sends no more but may still read, so pending requests get their responses. TLS has no half-open state."""
        self._closing = True
        over_tls = self._transport is not None and self._transport.get_extra_info("sslcontext") is not None
        if self._streaming is not None:
            return False  # a stream has no end of its own: a client that closes its half has left
        return not over_tls and (self.responding is not None or bool(self._pending))

    def pause_writing(self) -> None:
        self._writable.clear()
        self.unread_since = self._loop.time()
        self._unread_bytes = self._written_bytes
        self._count_held()

    def resume_writing(self) -> None:
        self._writable.set()
        self.unread_since = None
        if self.responding is None:
            self._response_read()
        self._next()
        self._resume_reading()

    # Responding.

    @property
    def _open(self) -> asyncio.Transport | None:
        """The transport, while it can be written to."""
        return self._transport if self._transport is not None and not self._transport.is_closing() else None

    def _count_held(self) -> None:
        size = self._reader.body_bytes + self._unread_bytes
        if self._pending:
            size += sum(len(pending.request.body) for pending in self._pending)
        if size != self.held_bytes and self in self._connections:
            self._connections.hold(self, size)

    def _response_read(self) -> None:
        """The client may have read all of the last response."""
        self._unread_bytes = 0
        self._count_held()

    def _write_continue(self) -> None:
        """After the responses that are due before it."""
        due = self._reader.expects_continue and not self._reader.refused and self.responding is None and not self._pending
        if due and self._open is not None:
            self._reader.expects_continue = False
            self._open.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _put(self, pending: PendingRequest) -> None:
        self._pending.append(pending)
        self._next()
        if self._pending and self._open is not None:
            self._open.pause_reading()

    def _next(self) -> None:
        """Handle pending requests: at once if the handler returns a response, else in a task that outlives the connection."""
        while self._pending and self.responding is None and self.unread_since is None and self._open is not None:
            pending = self._pending.popleft()
            try:
                response = pending.refusal or self._handler(pending.request)
            except AbortConnection:
                self.abort()
                return
            except Exception:
                response = failure(pending.request)
            if isinstance(response, Response) and not response.more and response.stream is None:
                self._write(pending, response)
            else:
                self._connections.idle.busy(self.address, self)
                self.handling = self._loop.create_future()
                self.responding = self._loop.create_task(self._respond(pending, response))

    async def _respond(self, pending: PendingRequest, coming: Response | Awaitable[Response]) -> None:
        response = await self._handle(pending, coming)
        if response is not None and response.can_wait and not self._closing and self._open is not None:
            written = self._loop.create_future()
            self._connections.idle.write_when_kept(self.address, self, partial(self._write_kept, pending, response, written))
            await written
            response = None
        self._handled()
        if response is not None:
            await self._write_all(pending, response)
        self.responding = None
        if self.closed.done():
            self._connections.forget(self)
        elif self._writable.is_set():
            self._response_read()
        self._next()
        self._resume_reading()

    def _handled(self) -> None:
        if self.handling is not None:
            self.handling.set_result(None)
            self.handling = None

    def _write_kept(self, pending: PendingRequest, response: Response, written: asyncio.Future[None]) -> None:
        """The client will keep this connection after the response."""
        self._handled()
        self._write(pending, response)
        if not written.done():
            written.set_result(None)

    async def _handle(self, pending: PendingRequest, coming: Response | Awaitable[Response]) -> Response | None:
        """The response, or None if the client disconnected before the handler began."""
        if isinstance(coming, Response):
            return coming
        if self._open is None and isinstance(coming, Coroutine):
            coming.close()
            return None
        try:
            return await coming
        except AbortConnection:
            self.abort()
            return None
        except Exception:
            return failure(pending.request)

    async def _write_all(self, pending: PendingRequest, response: Response) -> None:
        """Write as fast as the client reads. The server drops a client that reads nothing for too long."""
        last = self._write(pending, response, more=bool(response.more) or response.stream is not None)
        if response.stream is not None:
            self._streaming = self._loop.create_task(self._write_stream(response.stream))
            if self._open is None:
                self._streaming.cancel()
            await asyncio.wait([self._streaming])
            self._streaming = None
            await response.stream.aclose()
        for piece in response.more if pending.request.method != "HEAD" else ():
            await asyncio.sleep(0)
            await self._writable.wait()
            if self._open is None:
                return
            self._open.write(piece)
        if last and (response.more or response.stream is not None) and self._open is not None:
            self._open.close()

    async def _write_stream(self, stream: Stream) -> None:
        try:
            async for piece in stream:
                await self._writable.wait()
                self._write_chunk(piece)
            self._write_chunk(b"")
        except Exception:
            log.exception("stream outcome=failed address=%s", self.address)
            self.abort()

    def _write_chunk(self, piece: bytes) -> None:
        if self._open is not None:
            self._written_bytes = len(piece)
            self._open.write(chunk(piece))

    def _resume_reading(self) -> None:
        """Pending requests are handled before more is read, or before the connection closes."""
        if self._pending or self.responding is not None or self._open is None:
            return
        if self._closing:
            self._open.close()
        else:
            self._write_continue()
            self._open.resume_reading()

    def _write(self, pending: PendingRequest, response: Response, *, more: bool = False) -> bool:
        """Write head and body at once, so that the client wakes up once. Returns whether the connection closes after it."""
        last = pending.last or response.close or (self._closing and not self._pending)
        self.idle_since = self._loop.time()
        transport = self._open
        if transport is not None:
            self._written_bytes = response.size
            self._unread_bytes = self._written_bytes if more else 0
            transport.write(response.head(last=last) + (b"" if pending.request.method == "HEAD" else response.body))
            self._count_held()
            if last and not more:
                transport.close()
            elif not last:
                self._connections.idle.idle(self.address, self)
        return last
