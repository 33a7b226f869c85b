"""Small real servers on loopback, and helpers that the tests of kube/ share."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiohttp import web

from accelshare.kube.client import Client
from accelshare.kube.config import Cluster
from accelshare.kube.errors import KubeError

T = TypeVar("T")
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server on a free port; yields its URL."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def asking(handler: Handler, **options: Any) -> AsyncIterator[Client]:
    """A client of a server with this handler. It does not sleep between retries."""
    async with serving(handler) as url, client_of(Cluster(url), **options) as client:
        yield client


def client_of(cluster: Cluster, **options: Any) -> Client:
    return Client(cluster, **{"user_agent": "test", "sleep": Naps(), "random": lambda: 1.0, **options})


async def until_error(stream: AsyncIterator[T]) -> tuple[list[T], KubeError]:
    """The items, and the error that ended them."""
    came: list[T] = []
    try:
        async for each in stream:
            came.append(each)
    except KubeError as error:
        return came, error
    raise AssertionError(f"no error after {len(came)} items")


class Naps:
    """A sleep that does not sleep, and remembers how long it should have."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        await asyncio.sleep(0)


def refusal(code: int, reason: str = "", message: str = "no", **headers: str) -> web.Response:
    """An API server's refusal."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.json_response(status, status=code, headers={name.replace("_", "-"): value for name, value in headers.items()})


def hang_up(request: web.BaseRequest) -> web.Response:
    """Close the connection without a response."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def unused_url() -> str:
    """An address that refuses connections: the port of a closed socket."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"
