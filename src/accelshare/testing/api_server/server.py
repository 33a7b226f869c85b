"""The in-memory API server on a loopback port, inside the running event loop.

Belongs here: starting, stopping, the kubeconfig that leads to it. Never: what it answers.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import uvicorn
import yaml
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from accelshare.testing.api_server.app import ABORT, App
from accelshare.testing.api_server.faults import Faults
from accelshare.testing.api_server.store import Store
from accelshare.testing.api_server.streaming import Streams

_GOODBYE_S: Final = 1


class FakeApiServer:
    """`async with FakeApiServer() as api:` serves `api.store` at `api.url`, and fails as `api.faults` says."""

    def __init__(self, store: Store | None = None, *, token: str = "", port: int = 0) -> None:
        self.store = Store() if store is None else store
        self.faults = Faults()
        self.token = token
        self.url = ""
        self._port = port
        self._streams = Streams()
        self._stopping = asyncio.Event()
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        listening = socket.create_server(("127.0.0.1", self._port))
        # asyncio sets this only on sockets whose protocol it is told, and without it each answer waits 40 ms for an ACK.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        app = App(self.store, self.faults, self._streams, self._stopping, self.token)
        config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_GOODBYE_S,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve([listening]))
        await self._server.ready.wait()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        assert self._serving is not None
        self._server.should_exit = True
        self._stopping.set()
        self.end_watches()
        await self._serving

    @property
    def open_watches(self) -> int:
        return len(self._streams)

    def end_watches(self) -> None:
        """End every open watch, as a server does that restarts."""
        self._streams.end_all()

    def write_kubeconfig(self, path: Path) -> Path:
        """A kubeconfig that leads here."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "memory", "cluster": {"server": self.url}}],
            "users": [{"name": "memory", "user": {"token": self.token} if self.token else {}}],
            "contexts": [{"name": "memory", "context": {"cluster": "memory", "user": "memory"}}],
            "current-context": "memory",
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path


class _Server(uvicorn.Server):
    """A server that is a guest in its loop: signals stay its host's, and it says when it is ready."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Protocol(HttpToolsProtocol):
    """HTTP as ever, with a way for a fault to break the connection."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: {"call": self.transport.abort}}
