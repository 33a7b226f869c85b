"""One socket between plugin and runtime: both call, both answer.

Belongs here: reading and writing the socket, and whose turn each packet is. Never: what is answered.
"""

import asyncio
from typing import Final

from accelshare.agent.nri import mux
from accelshare.agent.nri.errors import GoneError, LateError, WireError
from accelshare.agent.nri.protobuf import encode
from accelshare.agent.nri.ttrpc import Answer, Calls, Kind, Packet, Packets, Request, answered, packet

READ_BYTES: Final = 64 * 1024
MOST_CALLS: Final = 64  # that the peer may have open; a runtime calls one after the other


class Link:
    """Answers calls on stream `serves`, makes calls on stream `calls`, while `run` runs."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, serves: int, calls: int, answer: Answer
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._serves = serves
        self._calls = calls
        self._answer = answer
        self._waiting = Calls()
        self._answering: set[asyncio.Task[None]] = set()
        self._ended: Exception | None = None

    async def run(self) -> None:
        """Until the peer closes; WireError if it sends what it may not."""
        error: Exception = GoneError("the connection was closed")
        try:
            await self._read()
        except OSError as closed:
            error = GoneError(f"the connection was closed: {closed}")
        except WireError as garbage:
            error = garbage
            raise
        finally:
            self._ended = error
            self._waiting.end(error)
            for task in self._answering:
                task.cancel()
            self._writer.close()

    async def call(self, service: str, method: str, message: bytes, *, timeout_s: float) -> bytes:
        """The answer's payload; StatusError, LateError or GoneError if there is none."""
        if self._ended is not None:
            raise self._ended
        number, future = self._waiting.begin()
        try:
            request = Request(service, method, message, int(timeout_s * 1e9))
            async with asyncio.timeout(timeout_s):
                await self._send(self._calls, packet(number, Kind.REQUEST, encode(request)))
                return await future
        except TimeoutError as error:
            raise LateError(f"{method}: no answer within {timeout_s:g} s") from error
        except OSError as error:
            raise GoneError(f"{method}: {error}") from error
        finally:
            self._waiting.forget(number)

    def close(self) -> None:
        """Nothing more is sent, and `run` comes to its end."""
        self._writer.transport.abort()

    async def _read(self) -> None:
        frames, streams = mux.Frames(), {self._serves: Packets(), self._calls: Packets()}
        while data := await self._reader.read(READ_BYTES):
            for stream, payload in frames.feed(data):
                if stream in streams:  # as the runtime does, frames of others are dropped
                    for received in streams[stream].feed(payload):
                        self._take(stream, received)

    def _take(self, stream: int, received: Packet) -> None:
        expected = Kind.REQUEST if stream == self._serves else Kind.RESPONSE
        if received.kind != expected:
            raise WireError(f"a packet of kind {received.kind} on stream {stream}; only {expected} ({expected.name}) may come")
        if expected is Kind.RESPONSE:
            self._waiting.finish(received)
            return
        if len(self._answering) >= MOST_CALLS:
            raise WireError(f"more than {MOST_CALLS} calls at once")
        task = asyncio.create_task(self._serve(received))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _serve(self, received: Packet) -> None:
        answer = await answered(received.call, received.data, self._answer)
        try:
            await self._send(self._serves, answer)
        except OSError:
            pass  # the caller is gone, which `run` notices

    async def _send(self, stream: int, content: bytes) -> None:
        self._writer.write(mux.frames(stream, content))
        await self._writer.drain()
