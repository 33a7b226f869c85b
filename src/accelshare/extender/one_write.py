"""An answer leaves in one write: its head waits for its body.

Belongs here: one small habit of the connection. uvicorn writes head and body apart, which is two system calls for us and wakes
kube-scheduler twice, the first time for half an answer, inside the one cycle that every pod of the cluster waits for.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class OneWriteProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Together(transport, self.loop))  # type: ignore[arg-type]


class _Together:
    """The transport, but a head is held until the next write, or until the loop's next turn if there is none."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1 ") and not self._head:
            self._head = data
            self._loop.call_soon(self._let_go)
            return
        head, self._head = self._head, b""
        self._transport.write(head + data)

    def close(self) -> None:
        self._let_go()
        self._transport.close()

    def _let_go(self) -> None:
        head, self._head = self._head, b""
        if head:
            self._transport.write(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
