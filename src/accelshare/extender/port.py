"""A port that is served: callers come, are answered, and are let go in order when it ends.

Belongs here: accepting, the patience with silent callers, the order of ending. Never: a caller's requests (caller.py).
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from accelshare.extender.caller import Caller, Handle

# kube-scheduler keeps idle connections for 90 s and does not send a POST again when we close one under it.
KEEP_ALIVE_S: Final = 120.0
LOOK_EVERY_S: Final = 5.0
DRAIN_S: Final = 30.0
GOODBYE_S: Final = 1.0
BACKLOG: Final = 2048


class Port:
    """Served from `async with` on. At its end what is in flight is finished, for at most DRAIN_S.

    A peer that does not answer our goodbye, as a dead one does not over TLS, is left alone after GOODBYE_S.
    """

    def __init__(self, handle: Handle, listening: socket.socket, *, largest_body: int, tls: ssl.SSLContext | None = None) -> None:
        self._handle = handle
        self._listening = listening
        self._tls = tls
        self._largest_body = largest_body
        self._callers: set[Caller] = set()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._caller, sock=self._listening, ssl=self._tls, backlog=BACKLOG)
        self._looking = loop.create_task(self._let_go_of_the_silent())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._looking.cancel()
        self._server.close()
        for caller in tuple(self._callers):
            caller.leave()
        await _all([caller.answering for caller in self._callers if caller.answering is not None], DRAIN_S)
        await _all([caller.closed for caller in self._callers], GOODBYE_S)
        for caller in tuple(self._callers):
            caller.abort()

    def _caller(self) -> Caller:
        return Caller(self._handle, self._callers, largest_body=self._largest_body)

    async def _let_go_of_the_silent(self) -> None:
        """Also of those who have begun a request and do not end it."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            oldest = asyncio.get_running_loop().time() - KEEP_ALIVE_S
            for caller in [caller for caller in self._callers if caller.answering is None and caller.idle_since < oldest]:
                caller.leave()


async def _all(futures: Sequence[asyncio.Future[None]], limit_s: float) -> None:
    """Until all of them are done, or the time is over."""
    if futures:
        await asyncio.wait(futures, timeout=limit_s)
