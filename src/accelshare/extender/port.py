"""A port that is served: callers come, are answered, and are let go in order when it ends.

Belongs here: accepting, how many callers there may be and what they may hold together, the order of ending. Never: a caller's
requests (caller.py).
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Self

from accelshare.extender.caller import LONGEST_HEAD_BYTES, Caller, Handle
from accelshare.extender.callers import Callers

log = logging.getLogger(__name__)
# kube-scheduler keeps idle connections for 90 s and does not send a POST again when we close one under it.
KEEP_ALIVE_S: Final = 120.0
HANDSHAKE_S: Final = 10.0
UNREAD_S: Final = 30.0  # without a byte taken of an answer
LOOK_EVERY_S: Final = 5.0
DRAIN_S: Final = 30.0
GOODBYE_S: Final = 1.0
BACKLOG: Final = 2048
MOST_CALLERS: Final = 1000
MOST_UNREAD_BYTES: Final = 64 << 20  # answers of all callers that they have not taken yet: a few pages of metrics of 5,000 nodes


class Port:
    """Served from `async with` on. At its end what is in flight is finished, for at most DRAIN_S.

    A peer that does not answer our goodbye, as a dead one does not over TLS, is left alone after GOODBYE_S. `tls` gives each new
    connection its context.
    """

    def __init__(
        self,
        handle: Handle,
        listening: socket.socket,
        *,
        largest_body: int,
        longest_head: int = LONGEST_HEAD_BYTES,
        most_callers: int = MOST_CALLERS,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._handle = handle
        self._listening = listening
        self._tls = tls
        self._largest_body = largest_body
        self._longest_head = longest_head
        self._most_callers = most_callers
        self._callers = Callers(most_bytes=2 * largest_body + MOST_UNREAD_BYTES)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        self._tasks = [loop.create_task(self._accept()), loop.create_task(self._let_go_of_the_silent())]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._listening.close()
        for caller in tuple(self._callers):
            caller.leave()
        await _all([caller.deciding for caller in self._callers if caller.deciding is not None], DRAIN_S)
        await _all([caller.closed for caller in self._callers], GOODBYE_S)
        for caller in tuple(self._callers):
            caller.abort()
        await _all([caller.connecting for caller in self._callers if caller.connecting is not None], GOODBYE_S)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._listening)
            except OSError as error:  # above all: too many open files
                log.warning("accept outcome=failed callers=%d error=%r", len(self._callers), str(error))
                self._callers.drop_one()
                await asyncio.sleep(GOODBYE_S)
                continue
            if len(self._callers) >= self._most_callers and not self._callers.drop_one():
                self._callers.aborted += 1
                connection.close()
                continue
            caller = Caller(
                self._handle,
                self._callers,
                address=str(address[0]),
                largest_body=self._largest_body,
                longest_head=self._longest_head,
            )
            self._callers.add(caller)
            caller.connecting = loop.create_task(self._connect(caller, connection))

    async def _connect(self, caller: Caller, connection: socket.socket) -> None:
        """Hand the connection to its caller, over TLS after the handshake. It counts from the moment it was accepted."""
        loop = asyncio.get_running_loop()
        try:
            if self._tls is None:
                await loop.connect_accepted_socket(lambda: caller, connection)
            else:
                await loop.connect_accepted_socket(
                    lambda: caller,
                    connection,
                    ssl=self._tls(),
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=GOODBYE_S,
                )
        except OSError as error:  # ssl's errors and a TimeoutError are some
            log.debug("accept outcome=no-connection address=%s error=%r", caller.address, str(error))
        finally:
            caller.connecting = None
            if not caller.connected:
                connection.close()
                self._callers.forget(caller)

    async def _let_go_of_the_silent(self) -> None:
        """Also of those who have begun a request and do not end it, and of those who do not take their answers."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now = asyncio.get_running_loop().time()
            for caller in tuple(self._callers):
                if caller.unread_since is not None:
                    if caller.unread_since < now - UNREAD_S:
                        self._callers.abort(caller)
                elif caller.answering is None and caller.connected and caller.idle_since < now - KEEP_ALIVE_S:
                    caller.leave()
            if self._callers.aborted:
                log.warning("callers aborted=%d left=%d", self._callers.aborted, len(self._callers))
                self._callers.aborted = 0


async def _all(futures: Iterable[asyncio.Future[None]], limit_s: float) -> None:
    """Until all of them are done, or the time is over."""
    if waited := list(futures):
        await asyncio.wait(waited, timeout=limit_s)
