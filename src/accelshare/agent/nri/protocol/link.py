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
from accelshare.agent.nri.protocol.ttrpc import Answer, Calls, Kind, Packet, Packets, answered, packet, refused
from accelshare.agent.nri.protocol.ttrpc_pb2 import Request

LOOK_S: Final = 0.2  # far less than what is left of a runtime's patience


class Deadline:
    """Minds one call after the other: the answering thread calls `begin` and `end`, the clock's thread `send`."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._lock = threading.Lock()  # whoever has it decides who answers
        self._open: tuple[float, Callable[[], bytes]] | None = None  # until when, and what is said then
        self._spoken = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nri-deadline", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Not waited for: there is no open call that it could still speak of."""
        self._over.set()

    def begin(self, limit_s: float, refusal: Callable[[], bytes]) -> None:
        """A call is open from now on."""
        self._open = (time.monotonic() + limit_s, refusal)

    def end(self) -> bool:
        """The call is not open any more; whether its answer is still wanted."""
        with self._lock:
            self._open = None
            spoken, self._spoken = self._spoken, False
            return not spoken

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            with self._lock:
                if self._open is not None and time.monotonic() >= self._open[0]:
                    _, refusal = self._open
                    self._open, self._spoken = None, True
                    self._send(refusal())


Patience = Callable[[Request], tuple[float, StatusError]]  # how long this call may take, and what is said when it took longer


class Link(asyncio.Protocol):
    """Answers calls on stream `serves` and makes calls on stream `calls`, for as long as its connection lives."""

    def __init__(self, *, serves: int, calls: int, answer: Answer, patience: Patience | None = None) -> None:
        self._serves = serves
        self._calls = calls
        self._answer = answer
        self._patience = patience
        self._deadline = Deadline(self._send_from_aside) if patience is not None else None
        self._frames = mux.Frames()
        self._packets = {serves: Packets(), calls: Packets()}
        self._waiting = Calls()
        self._transport: asyncio.Transport | None = None
        self._full = False  # of answers that the peer does not read
        self._ended: Exception | None = None
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Until the peer closes; WireError if it sends what it may not."""
        await self._over.wait()
        if isinstance(self._ended, WireError):
            raise self._ended

    async def call(self, service: str, method: str, message: bytes, *, timeout_s: float) -> bytes:
        """The answer's payload; StatusError, LateError or GoneError if there is none."""
        if self._ended is not None:
            raise self._ended
        number, future = self._waiting.begin()
        try:
            request = Request(service=service, method=method, payload=message, timeout_nano=int(timeout_s * 1e9))
            async with asyncio.timeout(timeout_s):
                self._send(self._calls, packet(number, Kind.REQUEST, request.SerializeToString()))
                return await future
        except TimeoutError as error:
            raise LateError(f"{method}: no answer within {timeout_s:g} s") from error
        finally:
            self._waiting.forget(number)

    def close(self) -> None:
        """Nothing more is sent, and `run` comes to its end."""
        if self._deadline is not None:
            self._deadline.stop()
        if self._transport is not None:
            self._transport.abort()

    # What the event loop says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._deadline is not None:
            self._deadline.start()

    def data_received(self, data: bytes) -> None:
        try:
            for stream, payload in self._frames.feed(data):
                if stream in self._packets:  # as the runtime does, frames of others are dropped
                    for received in self._packets[stream].feed(payload):
                        self._take(stream, received)
                if self._full:
                    return  # what is left waits in `_frames`
        except WireError as garbage:
            self._end(garbage)

    def pause_writing(self) -> None:
        """Who does not read our answers is not read either."""
        assert self._transport is not None
        self._full = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        assert self._transport is not None
        self._full = False
        self._transport.resume_reading()
        self.data_received(b"")

    def connection_lost(self, error: Exception | None) -> None:
        self._end(GoneError(f"the connection was closed: {error}" if error is not None else "the connection was closed"))

    def _end(self, error: Exception) -> None:
        if self._ended is None:
            self._ended = error
            self._waiting.end(error)
            self.close()
            self._over.set()

    # Packets.

    def _take(self, stream: int, received: Packet) -> None:
        expected = Kind.REQUEST if stream == self._serves else Kind.RESPONSE
        if received.kind != expected:
            raise WireError(f"a packet of kind {received.kind} on stream {stream}; only {expected} ({expected.name}) may come")
        if expected is Kind.RESPONSE:
            self._waiting.finish(received)
        else:
            self._serve(received)

    def _serve(self, received: Packet) -> None:
        answer = answered(received.call, received.data, lambda request: self._answered(received.call, request))
        if self._deadline is None or self._deadline.end():
            self._send(self._serves, answer)

    def _answered(self, call: int, request: Request) -> bytes:
        if self._deadline is not None and self._patience is not None:
            limit_s, error = self._patience(request)
            self._deadline.begin(limit_s, lambda: mux.frames(self._serves, refused(call, error)))
        return self._answer(request)

    def _send(self, stream: int, content: bytes) -> None:
        assert self._transport is not None
        self._transport.write(mux.frames(stream, content))

    def _send_from_aside(self, frames: bytes) -> None:
        """Past the event loop, which is held up in a call just now, and so neither writes nor closes the socket."""
        assert self._transport is not None
        if self._transport.get_write_buffer_size():
            return  # the peer does not even read what it was sent before
        try:
            os.write(self._transport.get_extra_info("socket").fileno(), frames)
        except OSError:
            pass  # the peer is gone, which the event loop notices
