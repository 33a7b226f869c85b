"""Kept-alive HTTP/1.1 connections to one server: one request at a time on each, as many as are needed.

Belongs here: which connection a request takes, and when a connection is given up. Never: how the server is reached (`route`),
what a request or an answer means (`client`).
"""

import asyncio
import ssl
from typing import Final, cast

import msgspec

from accelshare.kube.answer import Answer
from accelshare.kube.route import NotConnectedError, Route

# kube-apiserver closes an idle connection after 90 s. Letting go earlier means that we do not send into a closing door.
KEEP_ALIVE_S: Final = 60.0


class Limits(msgspec.Struct, frozen=True):
    """How long a request may take: all of it, and its connection if one must be made."""

    total_s: float
    connect_s: float


class Connection(asyncio.Protocol):
    """One connection. An answer that is not read to its end makes it useless."""

    def __init__(self) -> None:
        self.context: ssl.SSLContext | None = None  # whose certificates were shown when it was made
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, request: bytes) -> Answer:
        assert self._transport is not None
        self._answer = Answer(self._transport.resume_reading)
        self._transport.write(request)
        return self._answer

    def abort(self) -> None:
        """Close it without a goodbye: whatever is still to come is not wanted."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.complete:
            self.abort()  # nobody has asked for this; it must not be taken for the next answer
            return
        self._answer.feed(data)
        if self._answer.is_full and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._answer is not None:
            self._answer.ended(error)


class Connections:
    """The connections to one server."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._idle: list[Connection] = []
        self._closed = False
        self._busy: dict[Answer, tuple[Connection, asyncio.TimerHandle]] = {}

    async def ask(self, request: bytes, context: ssl.SSLContext | None, limits: Limits) -> Answer:
        """Send the request; its answer is on its way, and must be handed to `done` in the end.

        Raises NotConnectedError if nothing was sent because there is no connection. An answer that is not complete within its
        time fails with a TimeoutError.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + limits.total_s
        connection = self._kept(context)
        if connection is None:
            connection = await self._route.open(Connection, context, within_s=limits.connect_s)
            connection.context = context
        if self._closed:
            connection.abort()
            raise NotConnectedError("the client is closed")
        answer = connection.ask(request)
        late = TimeoutError(f"no answer within {limits.total_s:g} s")
        self._busy[answer] = connection, loop.call_at(ends, answer.fail, late)
        return answer

    def done(self, answer: Answer) -> None:
        """Nobody reads this answer any more. Its connection is kept if nothing of the answer is left."""
        connection, timer = self._busy.pop(answer)
        timer.cancel()
        if answer.complete and answer.keeps_connection and not answer.is_full and connection.is_open:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.abort()

    async def close(self) -> None:
        """End them all, also those in use, and make no others."""
        self._closed = True
        for connection in (*self._idle, *(busy for busy, _ in self._busy.values())):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # the loop's turn, in which transports let go of their sockets

    def _kept(self, context: ssl.SSLContext | None) -> Connection | None:
        """The connection that was used last, if it still can be."""
        oldest = asyncio.get_running_loop().time() - KEEP_ALIVE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.context is context and connection.idle_since > oldest:
                return connection
            connection.abort()
        return None
