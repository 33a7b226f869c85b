"""One client's HTTP/2 connection to a server: concurrent requests on one connection, within limits (RFC 9113).

Belongs here: the state of the connection and its streams, flow control, what a client may cost. Never: the spelling of frames
(http2_frames.py), accepting (server.py), what a path means.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Final, cast

from accelshare.http import http2_frames as frames
from accelshare.http.http2_frames import ErrorCode, Frame, Http2Error, RequestHead
from accelshare.http.messages import AbortConnection, HttpHandler, HttpRequest, Response, error_response, failure
from accelshare.http.open_connections import OpenConnections
from accelshare.http.transports import discard_unread

log = logging.getLogger(__name__)
# Requests at once. kube-scheduler has one filter and any number of binds; one that is refused it repeats after a second.
MAX_STREAMS: Final = 1000
# A call that names 5,000 nodes has 224 kB: larger frames cost less than the usual 16 kB.
OUR_MAX_FRAME_BYTES: Final = 64 << 10
MAX_OUTPUT_BYTES: Final = 64 << 10  # before the transport is asked whether it takes more
GOODBYE_S: Final = 0.2  # after GOAWAY, for requests that are on their way
LONGEST_WAIT_S: Final = 0.01  # of a response that can wait, for another with which it is written
MAX_EMPTY_FRAMES: Final = 1000  # in a row; they cost CPU and nothing bounds them else


class _Stream:
    """One request and its response."""

    __slots__ = ("body", "cost", "head", "is_complete", "size", "unsent", "unsent_bytes", "window")

    def __init__(self, head: RequestHead) -> None:
        self.head = head
        self.cost = head.cost
        self.body = bytearray()
        self.size = 0
        self.is_complete = False  # the request
        self.window = 0  # how much the client wants to get of the response, beyond what it wants of every response
        self.unsent: deque[bytes] | None = None
        self.unsent_bytes = 0


class Http2Connection(asyncio.Protocol):
    def __init__(
        self, handler: HttpHandler, connections: OpenConnections, *, address: str, max_body_bytes: int, max_head_bytes: int
    ) -> None:
        """`connections` has this one until it is closed and its last request is handled."""
        self._handler = handler
        self._connections = connections
        self._max_body_bytes = max_body_bytes
        self._max_head_bytes = max_head_bytes
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = frames.FrameReader(max_frame_bytes=OUR_MAX_FRAME_BYTES)
        self._heads = frames.HeadReader(max_bytes=max_head_bytes)
        self._streams: dict[int, _Stream] = {}
        self._sending: dict[int, _Stream] = {}  # those of them whose response is not sent completely
        self._last_stream = 0
        self._begun: tuple[int, int] | None = None  # stream and flags of HEADERS that CONTINUATION frames go on
        self._block = b""  # of those HEADERS
        self._settings_seen = False
        self._empty_frames = 0
        self._unacknowledged = 0  # bytes of bodies since the last WINDOW_UPDATE of the connection
        self._window = frames.DEFAULT_WINDOW  # how much the client wants to get of all responses
        self._stream_window = frames.DEFAULT_WINDOW
        self._max_frame_bytes = frames.DEFAULT_FRAME_BYTES
        self._table_update = b""  # what the next response's head must begin with
        self._body_bytes = 0  # of requests that are not complete, with their heads
        self._handled_bytes = 0  # of requests that are being handled
        self._unsent_bytes = 0
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._output_can_wait = True  # all of it
        self._flush_later: asyncio.TimerHandle | None = None
        self._reading = False  # frames are being handled; what they cause is written together
        self._writable = True
        self._closing = False  # new requests get no response
        self._said_goodbye = False
        self._goodbye: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = address
        self.idle_since = self._loop.time()
        self.unread_since: float | None = None
        self.held_bytes = 0
        self.held_since = 0.0
        self.handling: asyncio.Future[None] | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._on_frame: dict[int, Callable[[Frame], None]] = {
            frames.DATA: self._on_data,
            frames.HEADERS: self._on_headers,
            frames.RST_STREAM: self._on_reset,
            frames.SETTINGS: self._on_settings,
            frames.PUSH_PROMISE: self._on_push,
            frames.PING: self._on_ping,
            frames.WINDOW_UPDATE: self._on_window_update,
            frames.CONTINUATION: self._on_continuation,
        }

    @property
    def connected(self) -> bool:
        return self._transport is not None

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        return tuple(self._tasks)

    def close_when_idle(self) -> None:
        """The client sends requests that come later over another connection."""
        if not self._closing:
            self._closing = True
            self._said_goodbye = True
            self._write(frames.go_away(self._last_stream, ErrorCode.NO_ERROR))
            for stream_id in [each for each, stream in self._streams.items() if not stream.is_complete]:
                self._reset(stream_id, ErrorCode.REFUSED_STREAM)
            self._count_held()
        self._close_if_idle()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def reset(self) -> None:
        discard_unread(self._transport)
        self.abort()

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        ours = {
            frames.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
            # A whole body may come at once: what is held for all clients is bounded by OpenConnections.
            frames.INITIAL_WINDOW_SIZE: min(frames.MAX_WINDOW, self._max_body_bytes + OUR_MAX_FRAME_BYTES),
            frames.MAX_FRAME_SIZE: OUR_MAX_FRAME_BYTES,
            frames.MAX_HEADER_LIST_SIZE: self._max_head_bytes,
        }
        self._write(frames.settings(ours) + frames.window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW))

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(None)
        self._transport = None
        self._streams.clear()
        self._sending.clear()
        self._connections.hold(self, 0)
        self.unread_since = None
        for timer in (self._goodbye, self._flush_later):
            if timer is not None:
                timer.cancel()
        self._forget_if_done()

    def data_received(self, data: bytes) -> None:
        self._reading = True
        try:
            for received in self._reader.feed(data):
                self._receive(received)
                if self._transport is None:
                    return
            self._send_all_unsent()  # once, however many windows these frames have enlarged
        except Http2Error as error:
            log.info("connection outcome=refused address=%s protocol=h2 error=%r", self.address, str(error))
            self._write(frames.go_away(self._last_stream, error.code, str(error)))
            self._streams.clear()
            self._sending.clear()
            self._body_bytes = self._unsent_bytes = 0
            self._closing, self._said_goodbye = True, False
        finally:
            self._reading = False
            if not self._output_can_wait:
                self._flush()
        self._count_held()
        self._close_if_idle()

    def eof_received(self) -> bool:
        self._closing = True
        self._flush()
        return False

    def pause_writing(self) -> None:
        """The client does not read. Nothing more is read of it, because nearly every frame has an answer."""
        self._writable = False
        self.unread_since = self._loop.time()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._writable = True
        self.unread_since = None
        self._send_all_unsent()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # Frames.

    def _receive(self, received: Frame) -> None:
        if self._closing and received.stream > self._last_stream and received.kind not in (frames.HEADERS, frames.CONTINUATION):
            return  # of a request that the client, since it got GOAWAY, repeats elsewhere; its head still changes the table
        if self._begun is not None and received.kind != frames.CONTINUATION:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "HEADERS that do not end, followed by another frame")
        if not self._settings_seen and received.kind != frames.SETTINGS:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        self._empty_frames = 0 if received.payload else self._empty_frames + 1
        if self._empty_frames > MAX_EMPTY_FRAMES:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "too many empty frames")
        handle = self._on_frame.get(received.kind)
        if handle is not None:  # RFC 9113, section 4.1: others are ignored
            handle(received)

    def _on_headers(self, received: Frame) -> None:
        self._block = frames.content(received)
        self._head_may_end(received.stream, received.flags, received.flags)

    def _on_continuation(self, received: Frame) -> None:
        if self._begun is None or self._begun[0] != received.stream:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._block += received.payload
        self._head_may_end(*self._begun, received.flags)

    def _head_may_end(self, stream_id: int, head_flags: int, flags: int) -> None:
        if len(self._block) > self._max_head_bytes:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, f"the request's head is longer than {self._max_head_bytes} bytes")
        if not flags & frames.END_HEADERS:
            self._begun = stream_id, head_flags
            return
        self._begun = None
        head = self._heads.read(self._block)
        self._head_ended(stream_id, head, is_last=bool(head_flags & frames.END_STREAM))

    def _head_ended(self, stream_id: int, head: RequestHead, *, is_last: bool) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None:  # trailers
            if not is_last or stream.is_complete:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a second head of one request")
            self._request_ended(stream_id, stream)
            return
        if not stream_id % 2:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id}; a client's ids are odd")
        if stream_id <= self._last_stream:
            return  # trailers, sent before the client saw that the stream is closed
        if self._closing:
            return  # the client knows from GOAWAY that this one was not handled
        self._last_stream = stream_id
        if max(len(self._streams), len(self._tasks)) >= MAX_STREAMS:  # a handler outlives a request that is reset
            self._write(frames.reset(stream_id, ErrorCode.REFUSED_STREAM))
            return
        stream = self._streams[stream_id] = _Stream(head)
        self._body_bytes += stream.cost
        if not head.method:
            self._reset(stream_id, ErrorCode.PROTOCOL_ERROR)
        elif head.length is not None and head.length > self._max_body_bytes:
            self._refuse_body(stream_id, stream)
        elif is_last:
            self._request_ended(stream_id, stream)

    def _on_data(self, received: Frame) -> None:
        self._unacknowledged += len(received.payload)
        if self._unacknowledged > self._max_body_bytes // 2 or self._unacknowledged > frames.MAX_WINDOW // 2:
            self._write(frames.window_update(0, self._unacknowledged))
            self._unacknowledged = 0
        stream = self._streams.get(received.stream)
        if stream is None:
            if received.stream > self._last_stream:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "DATA without HEADERS")
            return  # sent before the client saw that the stream is closed
        if stream.is_complete:
            return  # the rest of a body that was refused
        data = frames.content(received)
        stream.body += data
        stream.size += len(data)
        self._body_bytes += len(data)
        if stream.size > self._max_body_bytes:
            self._refuse_body(received.stream, stream)
        elif received.flags & frames.END_STREAM:
            self._request_ended(received.stream, stream)

    def _on_reset(self, received: Frame) -> None:
        """The client no longer waits. A handler that has begun goes on, as it does when a connection is closed."""
        frames.read_number(received.payload, "RST_STREAM")
        if not received.stream or received.stream > self._last_stream:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "RST_STREAM of a stream that does not exist")
        self._forget_stream(received.stream)

    def _on_settings(self, received: Frame) -> None:
        if received.stream:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "SETTINGS of a stream")
        self._settings_seen = True
        if received.flags & frames.ACK:
            return
        for name, value in frames.read_settings(received.payload):
            if name == frames.INITIAL_WINDOW_SIZE:
                if value > frames.MAX_WINDOW:
                    raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {value} bytes")
                self._stream_window = value
            elif name == frames.HEADER_TABLE_SIZE:
                self._table_update = frames.NO_TABLE
            elif name == frames.MAX_FRAME_SIZE:
                if not frames.DEFAULT_FRAME_BYTES <= value <= frames.MAX_FRAME_BYTES:
                    raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"frames of {value} bytes")
                self._max_frame_bytes = min(value, OUR_MAX_FRAME_BYTES)
        self._write(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _on_push(self, _received: Frame) -> None:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE of a client")

    def _on_ping(self, received: Frame) -> None:
        if len(received.payload) != 8 or received.stream:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a PING that has not 8 bytes, or a stream")
        if not received.flags & frames.ACK:
            self._write(frames.frame(frames.PING, frames.ACK, 0, received.payload))

    def _on_window_update(self, received: Frame) -> None:
        size = frames.read_number(received.payload, "WINDOW_UPDATE")
        stream = self._streams.get(received.stream)
        if not size:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0 bytes")
        if not received.stream:
            self._window += size
        elif stream is not None:
            stream.window += size
        elif received.stream > self._last_stream:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of a stream that does not exist")
        if max(self._window, self._stream_window + stream.window if stream is not None else 0) > frames.MAX_WINDOW:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "a window of more than 2^31 - 1 bytes")

    # Requests and responses.

    def _refuse_body(self, stream_id: int, stream: _Stream) -> None:
        text = f"the request's body is larger than {self._max_body_bytes} bytes, the limit set by --max-body-mib"
        self._take_request(stream)
        self._respond(stream_id, stream, error_response(413, text), is_head=False)
        if stream_id not in self._streams:
            self._write(frames.reset(stream_id, ErrorCode.NO_ERROR))  # RFC 9113, section 8.1: the client need not send the rest

    def _take_request(self, stream: _Stream) -> None:
        """Nothing more of it is wanted, and it is no longer held here."""
        stream.is_complete = True
        self._body_bytes -= stream.size + stream.cost
        stream.body, stream.head = bytearray(), frames.NO_HEAD

    def _request_ended(self, stream_id: int, stream: _Stream) -> None:
        """Handle it: at once if the handler returns a response, else in a task that outlives the connection."""
        head = stream.head
        if head.length is not None and head.length != stream.size:
            self._reset(stream_id, ErrorCode.PROTOCOL_ERROR)
            return
        request = HttpRequest(head.method, head.target, bytes(stream.body), head.headers)
        self._take_request(stream)
        try:
            response = self._handler(request)
        except AbortConnection:
            self._reset(stream_id, ErrorCode.INTERNAL_ERROR)
            return
        except Exception:
            response = failure(request)
        if isinstance(response, Response):
            self._respond(stream_id, stream, response, is_head=request.method == "HEAD")
            return
        if self.handling is None:
            self.handling = self._loop.create_future()
        task = self._loop.create_task(self._respond_later(stream_id, request, response))
        self._tasks.add(task)
        self._handled_bytes += stream.size
        task.add_done_callback(partial(self._handled, stream.size))

    async def _respond_later(self, stream_id: int, request: HttpRequest, coming: Awaitable[Response]) -> None:
        if stream_id not in self._streams and isinstance(coming, Coroutine):
            coming.close()  # no client waits for it, and its handler has not begun
            return
        try:
            response = await coming
        except AbortConnection:
            self._reset(stream_id, ErrorCode.INTERNAL_ERROR)
            return
        except Exception:
            response = failure(request)
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._respond(stream_id, stream, response, is_head=request.method == "HEAD")

    def _handled(self, size: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._handled_bytes -= size
        self._count_held()
        self._close_if_idle()
        if self._tasks:
            return
        if self.handling is not None:
            self.handling.set_result(None)
            self.handling = None
        self._forget_if_done()

    def _respond(self, stream_id: int, stream: _Stream, response: Response, *, is_head: bool) -> None:
        self.idle_since = self._loop.time()
        if response.stream is not None:
            closing = self._loop.create_task(_close_stream(response))
            self._tasks.add(closing)
            closing.add_done_callback(partial(self._handled, 0))
            self._reset(stream_id, ErrorCode.HTTP_1_1_REQUIRED)
            return
        head, self._table_update = self._table_update + frames.response_head(response), b""
        size = response.size
        if is_head or not size:
            self._write(frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream_id, head))
            self._forget_stream(stream_id)
        elif not response.more and size <= min(self._window_of(stream), self._max_frame_bytes) and self._writable:
            self._window -= size
            self._write(
                frames.frame(frames.HEADERS, frames.END_HEADERS, stream_id, head)
                + frames.frame(frames.DATA, frames.END_STREAM, stream_id, response.body),
                can_wait=response.can_wait,
            )
            self._forget_stream(stream_id)
        else:
            self._write(frames.frame(frames.HEADERS, frames.END_HEADERS, stream_id, head))
            stream.unsent = deque(piece for piece in (response.body, *response.more) if piece)
            stream.unsent_bytes = size
            self._unsent_bytes += size
            self._sending[stream_id] = stream
            if not self._reading:  # else data_received does, once
                self._send_all_unsent()
        if response.close:
            self.close_when_idle()
        self._close_if_idle()

    def _send_all_unsent(self) -> None:
        """Send as much of the responses as the client wants to get, and as the transport takes."""
        if not self._unsent_bytes:
            return
        before = self._unsent_bytes
        for stream_id, stream in tuple(self._sending.items()):
            while stream.unsent and self._writable and self._window_of(stream) > 0:
                self._send_piece(stream_id, stream, stream.unsent)
        if self._unsent_bytes != before or self.unread_since is None:
            self.unread_since = self._loop.time() if self._unsent_bytes or not self._writable else None
        self._count_held()
        self._close_if_idle()

    def _window_of(self, stream: _Stream) -> int:
        """How much of this response the client wants to get now."""
        return min(self._window, self._stream_window + stream.window)

    def _send_piece(self, stream_id: int, stream: _Stream, unsent: deque[bytes]) -> None:
        piece = unsent.popleft()
        size = min(len(piece), self._window_of(stream), self._max_frame_bytes)
        if size < len(piece):
            unsent.appendleft(piece[size:])
            piece = piece[:size]
        self._window -= size
        stream.window -= size
        stream.unsent_bytes -= size
        self._unsent_bytes -= size
        self._write(frames.frame(frames.DATA, 0 if unsent else frames.END_STREAM, stream_id, piece))
        if not unsent:
            self._forget_stream(stream_id)

    # The connection.

    def _reset(self, stream_id: int, code: ErrorCode) -> None:
        if stream_id in self._streams:
            self._forget_stream(stream_id)
            self._write(frames.reset(stream_id, code))

    def _forget_stream(self, stream_id: int) -> None:
        stream = self._streams.pop(stream_id, None)
        self._sending.pop(stream_id, None)
        if stream is None:
            return
        self._unsent_bytes -= stream.unsent_bytes
        if not self._unsent_bytes and self._writable:
            self.unread_since = None
        if not stream.is_complete:
            self._take_request(stream)

    def _write(self, data: bytes, *, can_wait: bool = False) -> None:
        """Write it now, after the frames that are being handled or, if it can wait, together with what is written next."""
        self._output.append(data)
        self._output_bytes += len(data)
        self._output_can_wait = self._output_can_wait and can_wait and not self._closing
        if self._output_bytes > MAX_OUTPUT_BYTES or not (self._reading or self._output_can_wait):
            self._flush()
        elif self._output_can_wait and self._flush_later is None:
            self._flush_later = self._loop.call_later(LONGEST_WAIT_S, self._flush)

    def _flush(self) -> None:
        if self._flush_later is not None:
            self._flush_later.cancel()
            self._flush_later = None
        output, self._output, self._output_bytes, self._output_can_wait = self._output, [], 0, True
        if output and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(output))

    def _count_held(self) -> None:
        size = self._body_bytes + self._handled_bytes + self._unsent_bytes
        if size != self.held_bytes and not self.closed.done() and self in self._connections:
            self._connections.hold(self, size)

    def _close_if_idle(self) -> None:
        """Close when all requests have their responses. A client that was told so by GOAWAY closes earlier: if we did, a request
        that is on its way would fail, where GOAWAY lets the client repeat it."""
        if not self._closing or self._streams or self._reading or self._transport is None:
            return
        if not self._said_goodbye:
            self._transport.close()
        elif self._goodbye is None:
            self._goodbye = self._loop.call_later(GOODBYE_S, self._transport.close)

    def _forget_if_done(self) -> None:
        if self.closed.done() and not self._tasks:
            self._connections.forget(self)


async def _close_stream(response: Response) -> None:
    if response.stream is not None:
        await response.stream.aclose()
