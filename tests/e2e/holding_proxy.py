"""A proxy before the API server that holds requests until the test releases them.

Belongs here: forwarding, keeping back, and what the API server answered to what was kept back. Never: expectations.
"""

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import aiohttp
import yaml
from aiohttp import web

FORWARDED = ("Content-Type", "Accept")


@dataclass(slots=True)
class Held:
    """A request that is kept back. It is sent when it is released, whether its sender still lives or not."""

    method: str
    path: str
    status: asyncio.Future[int]
    released: asyncio.Event = field(default_factory=asyncio.Event)


class HoldingProxy:
    """Plain HTTP in front, the API server behind it, under the identity of this TLS context."""

    def __init__(self, server: str, tls: ssl.SSLContext | None, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._tls = tls
        self._session = session
        self._pattern: re.Pattern[str] | None = None
        self._ended = False
        self.held: list[Held] = []
        self.url = ""

    def hold(self, pattern: str) -> None:
        """Keep back what matches "METHOD path" from now on; an empty pattern matches nothing. What is held stays held."""
        self._pattern = re.compile(pattern) if pattern else None

    async def release(self) -> list[int]:
        """Let everything through that is held, and give the API server's answers."""
        for held in self.held:
            held.released.set()
        return list(await asyncio.gather(*(held.status for held in self.held)))

    def write_kubeconfig(self, file: Path) -> Path:
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "held", "cluster": {"server": self.url}}],
            "contexts": [{"name": "held", "context": {"cluster": "held", "user": "held"}}],
            "users": [{"name": "held", "user": {}}],
            "current-context": "held",
        }
        file.write_text(yaml.safe_dump(content))
        return file

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if self._pattern is not None and self._pattern.search(f"{request.method} {request.path}"):
            held = Held(request.method, request.path, asyncio.get_running_loop().create_future())
            self.held.append(held)
            await held.released.wait()
            if self._ended:
                return web.Response(status=503)
            return await self._forwarded(request, body, held)
        return await self._forwarded(request, body)

    async def _forwarded(self, request: web.BaseRequest, body: bytes, held: Held | None = None) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in FORWARDED if name in request.headers}
        url = self._server + request.path_qs
        asked = self._session.request(request.method, url, data=body or None, headers=headers, ssl=self._tls or True)
        async with asked as answer:
            if held is not None:
                held.status.set_result(answer.status)
            if request.query.get("watch") != "true":
                return web.Response(
                    status=answer.status, body=await answer.read(), headers={"Content-Type": answer.headers["Content-Type"]}
                )
            stream = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]})
            await stream.prepare(request)
            with contextlib.suppress(ConnectionError):
                await self._relay(answer.content, stream)
            return stream

    async def _relay(self, events: aiohttp.StreamReader, stream: web.StreamResponse) -> None:
        """The events of a watch."""
        async for piece in events.iter_any():
            await stream.write(piece)

    def end(self) -> None:
        self._ended = True
        for held in self.held:
            held.released.set()


P = TypeVar("P", bound=HoldingProxy)


@contextlib.asynccontextmanager
async def open_proxy(server: str, tls: ssl.SSLContext | None) -> AsyncIterator[HoldingProxy]:
    async with open_proxy_of(HoldingProxy, server, tls) as proxy:
        yield proxy


@contextlib.asynccontextmanager
async def open_proxy_of(kind: type[P], server: str, tls: ssl.SSLContext | None) -> AsyncIterator[P]:
    """A proxy of this class."""
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=True) as session:
        proxy = kind(server, tls, session)
        runner = web.ServerRunner(web.Server(proxy.answer), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield proxy
        finally:
            proxy.end()
            await runner.cleanup()
