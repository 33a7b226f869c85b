"""One socket between plugin and runtime: both sides call and answer.

Belongs here: reading and writing the socket, matching packets to calls, answering in time. Never: what is answered.

The peer's calls are answered one after the other, each with one write, in the step of the event loop that reads them. A handler
that takes too long therefore blocks the thread that reads the socket. A second thread, the deadline's, then sends an error for
that call, and the late answer is dropped.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Final, cast

from accelshare.agent.nri.protocol import mux
from accelshare.agent.nri.protocol.errors import GoneError, LateError, StatusError, WireError
from accelshare.agent.nri.protocol.ttrpc import (
    Packet,
    Packets,
    PacketType,
    PendingCalls,
    RequestHandler,
    error_packet,
    packet,
    response_packet,
)
from accelshare.agent.nri.protocol.ttrpc_pb2 import Request

POLL_S: Final = 0.2  # far less than the quarter of its timeout that a runtime still waits after our limit


class Deadline:
    """Sends an error for a call that is not answered in time. The answering thread calls `begin` and `end`."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._lock = threading.Lock()  # its holder decides which thread answers
        self._open: tuple[float, Callable[[], bytes]] | None = None  # the time limit of the open call, and its error
        self._expired = False  # the error of the open call was sent
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nri-deadline", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Do not wait for the thread: no call is open that it could answer."""
        self._stopped.set()

    def begin(self, limit_s: float, error: Callable[[], bytes]) -> None:
        """A call begins; if it does not end within the limit, this error is sent."""
        with self._lock:
            self._open = (time.monotonic() + limit_s, error)

    def end(self) -> bool:
        """The call ends; whether its answer may still be sent."""
        with self._lock:
            self._open = None
            expired, self._expired = self._expired, False
            return not expired

    def _watch(self) -> None:
        while not self._stopped.wait(POLL_S):
            with self._lock:
                if self._open is not None and time.monotonic() >= self._open[0]:
                    _, error = self._open
                    self._open, self._expired = None, True
                    self._send(error())


TimeLimit = Callable[[Request], tuple[float, StatusError]]  # how long this call may take, and the error to send after that


class Link(asyncio.Protocol):
    """Answers calls on stream `serves` and makes calls on stream `calls`, for as long as its connection lives."""

    def __init__(self, *, serves: int, calls: int, handler: RequestHandler, time_limit: TimeLimit | None = None) -> None:
        self._serves = serves
        self._calls = calls
        self._handler = handler
        self._time_limit = time_limit
        self._deadline = Deadline(self._send_past_loop) if time_limit is not None else None
        self._frames = mux.Frames()
        self._packets = {serves: Packets(), calls: Packets()}
        self._pending = PendingCalls()
        self._transport: asyncio.Transport | None = None
        self._write_paused = False  # the peer does not read our responses
        self._error: Exception | None = None  # why the connection ended
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Wait until the connection ends; WireError if the peer broke the protocol."""
        await self._ended.wait()
        if isinstance(self._error, WireError):
            raise self._error

    async def call(self, service: str, method: str, message: bytes, *, timeout_s: float) -> bytes:
        """Call the peer and return the response's payload. Raises StatusError, LateError or GoneError."""
        if self._error is not None:
            raise self._error
        number, future = self._pending.begin()
        try:
            request = Request(service=service, method=method, payload=message, timeout_nano=int(timeout_s * 1e9))
            async with asyncio.timeout(timeout_s):
                self._send(self._calls, packet(number, PacketType.REQUEST, request.SerializeToString()))
                return await future
        except TimeoutError as error:
            raise LateError(f"{method}: no answer within {timeout_s:g} s") from error
        finally:
            self._pending.forget(number)

    def close(self) -> None:
        """Close the connection at once; `run` returns."""
        if self._deadline is not None:
            self._deadline.stop()
        if self._transport is not None:
            self._transport.abort()

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._deadline is not None:
            self._deadline.start()

    def data_received(self, data: bytes) -> None:
        try:
            for stream, payload in self._frames.feed(data):
                if stream in self._packets:  # frames of other streams are dropped, as the runtime does
                    for received in self._packets[stream].feed(payload):
                        self._take(stream, received)
                if self._write_paused:
                    return  # the rest stays in `_frames`
        except WireError as error:
            self._end(error)

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not read our responses."""
        assert self._transport is not None
        self._write_paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        assert self._transport is not None
        self._write_paused = False
        self._transport.resume_reading()
        self.data_received(b"")

    def connection_lost(self, error: Exception | None) -> None:
        self._end(GoneError(f"the connection was closed: {error}" if error is not None else "the connection was closed"))

    def _end(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
            self._pending.fail(error)
            self.close()
            self._ended.set()

    # Packets.

    def _take(self, stream: int, received: Packet) -> None:
        expected = PacketType.REQUEST if stream == self._serves else PacketType.RESPONSE
        if received.type != expected:
            raise WireError(f"packet of type {received.type} on stream {stream}; only {expected} ({expected.name}) is allowed")
        if expected is PacketType.RESPONSE:
            self._pending.finish(received)
        else:
            self._serve(received)

    def _serve(self, received: Packet) -> None:
        response = response_packet(received.call, received.data, lambda request: self._handle(received.call, request))
        if self._deadline is None or self._deadline.end():
            self._send(self._serves, response)

    def _handle(self, call: int, request: Request) -> bytes:
        if self._deadline is not None and self._time_limit is not None:
            limit_s, error = self._time_limit(request)
            self._deadline.begin(limit_s, lambda: mux.frames(self._serves, error_packet(call, error)))
        return self._handler(request)

    def _send(self, stream: int, content: bytes) -> None:
        assert self._transport is not None
        self._transport.write(mux.frames(stream, content))

    def _send_past_loop(self, frames: bytes) -> None:
        """Write from the deadline's thread. The event loop is blocked in a call: it neither writes to nor closes the socket."""
        assert self._transport is not None
        if self._transport.get_write_buffer_size():
            return  # the peer does not read; another write would mix with the rest of the last one
        try:
            os.write(self._transport.get_extra_info("socket").fileno(), frames)
        except OSError:
            pass  # the connection is lost; the event loop will notice
