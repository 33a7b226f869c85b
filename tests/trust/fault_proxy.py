"""A proxy before the API server that answers with errors, tears answers, loses them, and disturbs watches.

Belongs here: what a request through it meets. Never: when (faults.py).
"""

import asyncio
import contextlib
import json
import re
import ssl
from typing import Final

import aiohttp
from aiohttp import web

from tests.e2e.holding_proxy import HoldingProxy

REASONS: Final = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}


class FaultProxy(HoldingProxy):
    def __init__(self, server: str, tls: ssl.SSLContext | None, session: aiohttp.ClientSession) -> None:
        super().__init__(server, tls, session)
        self._status = 0
        self._statuses: re.Pattern[str] | None = None
        self._cut = False
        self._delay_s = 0.0
        self._tears = False
        self._loses: re.Pattern[str] | None = None
        self._watches: set[asyncio.Task[None]] = set()
        self._watches_flow = asyncio.Event()
        self._watches_flow.set()
        self._expired: set[asyncio.Task[None]] = set()
        self.hits = 0  # requests and watches that met a fault

    # Faults, until restore().

    def respond(self, status: int, pattern: str) -> None:
        """Answer what matches "METHOD path" with this status, without asking the API server."""
        self._status, self._statuses = status, re.compile(pattern)

    def lose(self, pattern: str) -> None:
        """Carry out what matches "METHOD path" and end the connection instead of answering."""
        self._loses = re.compile(pattern)

    def tear(self) -> None:
        """Send half of each answer, then end the connection."""
        self._tears = True

    def slow(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def cut(self) -> None:
        """End every watch, and each request as soon as it comes."""
        self._cut = True
        self.close_watches()

    def stall_watches(self) -> None:
        """Keep every watch, and forward no event."""
        self._watches_flow.clear()
        self.hits += len(self._watches)

    def close_watches(self) -> None:
        self.hits += len(self._watches)
        for watch in self._watches:
            watch.cancel()

    def expire_watches(self) -> None:
        """Send each watch an ERROR event with code 410, then end it."""
        self._expired |= self._watches
        self.close_watches()

    def restore(self) -> None:
        self._status, self._statuses, self._loses = 0, None, None
        self._cut, self._tears, self._delay_s = False, False, 0.0
        self._watches_flow.set()
        self.hold("")

    def release_late(self) -> None:
        """Let everything through that is held; whoever sent it may have ended."""
        self.hits += len(self.held)
        for held in self.held:
            held.released.set()
        self.held.clear()

    # Forwarding.

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = f"{request.method} {request.path}"
        if self._cut:
            return self._ended_connection(request)
        if self._delay_s:
            self.hits += 1
            await asyncio.sleep(self._delay_s)
        if self._statuses is not None and self._statuses.search(asked):
            self.hits += 1
            return _status(self._status)
        loses = self._loses is not None and self._loses.search(asked) is not None
        try:
            answer = await super().answer(request)
        except (aiohttp.ClientError, OSError):  # the API server is down
            return self._ended_connection(request, hit=False)
        if isinstance(answer, web.Response):
            if loses:
                return self._ended_connection(request)
            if self._tears:
                return await self._torn(request, answer)
        return answer

    async def _relay(self, events: aiohttp.StreamReader, stream: web.StreamResponse) -> None:
        task = asyncio.ensure_future(self._relay_flowing(events, stream))
        self._watches.add(task)
        try:
            await asyncio.wait([task])
            if task in self._expired:
                self._expired.discard(task)
                gone = {"kind": "Status", "apiVersion": "v1", "status": "Failure", **_reason(410)}
                await stream.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._watches.discard(task)

    async def _relay_flowing(self, events: aiohttp.StreamReader, stream: web.StreamResponse) -> None:
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async for piece in events.iter_any():
                await self._watches_flow.wait()
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                await stream.write(piece)

    async def _torn(self, request: web.BaseRequest, answer: web.Response) -> web.StreamResponse:
        self.hits += 1
        body = answer.body if isinstance(answer.body, bytes) else b""
        half = web.StreamResponse(status=answer.status, headers={"Content-Type": "application/json"})
        half.content_length = len(body)
        with contextlib.suppress(ConnectionError):
            await half.prepare(request)
            await half.write(body[: len(body) // 2])
        return self._ended_connection(request, half, hit=False)

    def _ended_connection(
        self, request: web.BaseRequest, response: web.StreamResponse | None = None, *, hit: bool = True
    ) -> web.StreamResponse:
        self.hits += hit
        if request.transport is not None:
            request.transport.abort()
        return response or web.Response(status=503)


def _reason(status: int) -> dict[str, object]:
    return {"code": status, "reason": REASONS[status], "message": "a fault of the run"}


def _status(status: int) -> web.Response:
    content = {"kind": "Status", "apiVersion": "v1", "status": "Failure", **_reason(status)}
    return web.json_response(content, status=status, headers={"Retry-After": "1"} if status == 429 else {})
