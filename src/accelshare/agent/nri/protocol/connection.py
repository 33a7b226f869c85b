"""Keeps a plugin connected to the runtime, on an event loop of its own, and reconnects when the runtime comes back.

Belongs here: the loop's thread, dialling, registering, waiting for the first list, retrying. Never: what is answered (plugin.py).
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, Never, TypeVar

from accelshare.agent.nri.protocol import mux
from accelshare.agent.nri.protocol.errors import NriError
from accelshare.agent.nri.protocol.link import Link
from accelshare.agent.nri.protocol.messages import RUNTIME_SERVICE
from accelshare.agent.nri.protocol.nri_pb2 import RegisterPluginRequest
from accelshare.agent.nri.protocol.plugin import Handler, Plugin, Wants, creation_and_start

Answer = TypeVar("Answer")


@contextlib.asynccontextmanager
async def own_loop(name: str) -> AsyncIterator[asyncio.AbstractEventLoop]:
    """A running loop of its own; at the end its tasks are cancelled and waited for."""
    started: concurrent.futures.Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = concurrent.futures.Future()

    async def until_told() -> None:
        told = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), told))
        await told.wait()

    # asyncio.run cancels what is left when this returns.
    thread = threading.Thread(target=lambda: asyncio.run(until_told()), name=name, daemon=True)
    thread.start()
    loop, told = await asyncio.wrap_future(started)
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(told.set)
        # Its last tasks may still ask something of this loop, so this one has to go on meanwhile.
        await asyncio.shield(asyncio.to_thread(thread.join))


async def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Answer]) -> Answer:
    """What the work comes to on the other loop; cancelled here, it is cancelled there."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


log = logging.getLogger(__name__)
RETRY_S: Final = 0.2  # while we are away containers may be made without us, so this is short and stays so
# A runtime takes new plugins one after the other, and gives a silent one 5 s; who hangs up loses its place.
REGISTER_S: Final = 60.0
LONGEST_SOCKET_PATH: Final = 107  # the kernel's
# What follows from an answer has to wait until the runtime has asked whether the container is right, which it does within a
# millisecond: two threads that work at the same time hold each other up.
NEWS_S: Final = 0.02
_NAME: Final = re.compile(r"[a-zA-Z0-9_.+-]+")

OnConnected = Callable[[str, str], None]
OnDisconnected = Callable[[], None]


async def serve(
    socket_path: Path,
    name: str,
    index: int,
    handler: Handler,
    *,
    wants: Wants = creation_and_start,
    on_connected: OnConnected = lambda _runtime_name, _runtime_version: None,
    on_disconnected: OnDisconnected = lambda: None,
) -> None:
    """Be the plugin `name` of the runtime behind this socket, until cancelled.

    The runtime is answered on a thread of its own, however busy this loop is: `wants` and the handler are asked there. Should
    they not come to an answer in time, the runtime gets an error, and the container is refused instead of made without its
    cards. The other callbacks are called on this loop.
    """
    home = asyncio.get_running_loop()
    connection = NriConnection(
        socket_path,
        name,
        index,
        handler,
        wants=wants,
        on_connected=lambda *runtime: tell(home, on_connected, *runtime),
        on_disconnected=lambda: tell(home, on_disconnected),
    )
    async with own_loop("nri") as loop:
        await run_on(loop, connection.keep())


class NriConnection:
    """The plugin's connection, dialled again and again. All of it lives on one loop."""

    def __init__(
        self,
        socket_path: Path,
        name: str,
        index: int,
        handler: Handler,
        *,
        wants: Wants,
        on_connected: OnConnected,
        on_disconnected: OnDisconnected,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"the NRI plugin name is {name!r}; it may have letters, digits and _ . + -")
        if not 0 <= index <= 99:
            raise ValueError(f"the NRI plugin index is {index}; it must be 0 to 99")
        if len(bytes(socket_path)) > LONGEST_SOCKET_PATH:
            raise ValueError(f"the NRI socket path {socket_path} is longer than {LONGEST_SOCKET_PATH} bytes")
        self._socket_path = socket_path
        self._name = name
        self._index = index
        self._handler = handler
        self._wants = wants
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._said = ""

    async def keep(self) -> Never:
        """For ever: a runtime that is away may come back at any time."""
        while True:
            try:
                await self.once()
            except (NriError, OSError) as error:
                self._say(f"{type(error).__name__}: {error}")
            await asyncio.sleep(RETRY_S)

    async def once(self) -> None:
        """One connection from its first to its last byte."""
        plugin = Plugin(self._name, self._handler, self._wants)
        link = Link(serves=mux.PLUGIN, calls=mux.RUNTIME, answer=plugin.answer, patience=plugin.patience)
        await asyncio.get_running_loop().create_unix_connection(lambda: link, str(self._socket_path))
        running = asyncio.create_task(link.run())
        try:
            await self._join(link, plugin, running)
            log.info(
                "nri outcome=connected runtime=%s version=%s path=%s",
                plugin.runtime.runtime_name,
                plugin.runtime.runtime_version,
                self._socket_path,
            )
            self._said = ""
            self._on_connected(plugin.runtime.runtime_name, plugin.runtime.runtime_version)
            try:
                await asyncio.shield(running)
                self._say("the runtime has closed the connection")
            finally:
                self._on_disconnected()
        finally:
            link.close()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, NriError):
                await running

    async def _join(self, link: Link, plugin: Plugin, running: asyncio.Task[None]) -> None:
        """Register, and wait until the runtime has told us everything: only then do we count for it."""
        request = RegisterPluginRequest(plugin_name=self._name, plugin_idx=f"{self._index:02d}")
        await link.call(RUNTIME_SERVICE, "RegisterPlugin", request.SerializeToString(), timeout_s=REGISTER_S)
        synchronized = asyncio.create_task(plugin.synchronized.wait())
        try:
            await asyncio.wait([synchronized, running], timeout=REGISTER_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            synchronized.cancel()
        if plugin.synchronized.is_set():
            return
        if running.done():
            running.result()  # raises if the runtime sent garbage
            raise NriError("the runtime closed the connection before it had told us of its containers")
        raise NriError(f"the runtime has not told us of its containers within {REGISTER_S:g} s")

    def _say(self, problem: str) -> None:
        """Once, however often it comes again."""
        if problem != self._said:
            self._said = problem
            log.warning("nri outcome=disconnected path=%s error=%r", self._socket_path, problem)


def tell_soon(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *words: Any) -> None:
    """For handlers: what happened, told when the runtime has all of its answer."""
    asyncio.get_running_loop().call_later(NEWS_S, tell, loop, callback, *words)


def tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *words: Any) -> None:
    """Called there, in the order of telling, and not waited for. At the very end nobody may listen any more."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *words)
