"""A TCP proxy that can cut, stall, slow or tear connections between a program and its server.

Belongs here: forwarding bytes, and not forwarding them. Never: what they mean.
"""

import asyncio
import contextlib
from types import TracebackType
from typing import Self


class Proxy:
    """`async with Proxy(host, port) as proxy:` listens on 127.0.0.1 at `proxy.port`."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._flows = asyncio.Event()
        self._flows.set()
        self._cut = False
        self._delay_s = 0.0
        self._tears = 0
        self._callers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        await close_server(self._server)
        await self._end_all()

    async def cut(self) -> None:
        """End every connection, and each new one as soon as it comes."""
        self._cut = True
        await self._end_all()

    def stall(self) -> None:
        """Keep every connection, and forward nothing."""
        self._flows.clear()

    def slow(self, delay_s: float) -> None:
        """Forward each piece only after this time."""
        self._delay_s = delay_s

    def tear(self, answers: int) -> None:
        """Of each of the next answers, forward half of a piece, then end the connection."""
        self._tears = answers

    def restore(self) -> None:
        """New connections are forwarded. What stalled before is dead and stays so."""
        self._cut = False
        self._delay_s = 0.0
        self._tears = 0
        self._flows = asyncio.Event()
        self._flows.set()

    async def _end_all(self) -> None:
        for caller in list(self._callers):
            caller.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._forward(reader, writer))
        self._callers.add(task)
        task.add_done_callback(self._callers.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flows = self._flows
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.closing(writer):
            if self._cut:
                return
            await flows.wait()
            there, back = await asyncio.open_connection(*self._to)
            with contextlib.closing(back):
                await asyncio.gather(self._copy(reader, back, flows), self._copy(there, writer, flows, answers=True))

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event, *, answers: bool = False
    ) -> None:
        while piece := await reader.read(65536):
            await flows.wait()
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            if answers and self._tears:
                self._tears -= 1
                writer.write(piece[: len(piece) // 2])
                await writer.drain()
                raise ConnectionError("torn")
            writer.write(piece)
            await writer.drain()
        writer.close()


async def close_server(server: asyncio.Server) -> None:
    """Python 3.11 never closes a connection that is accepted in the moment in which its server closes: first accept no more."""
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())
    await asyncio.sleep(0)  # what was accepted belongs to the server now
    server.close()
