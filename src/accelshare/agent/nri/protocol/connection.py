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
from accelshare.agent.nri.protocol.plugin import EventSelector, Handler, NriPlugin, creation_and_start
from accelshare.agent.nri.protocol.updates import ContainerUpdates

log = logging.getLogger(__name__)
RETRY_S: Final = 0.2  # short and constant, because the runtime may create containers without us meanwhile
# A runtime registers plugins one after the other and waits 5 s for a silent one; hanging up loses our place in its queue.
REGISTER_S: Final = 60.0
LONGEST_SOCKET_PATH: Final = 107  # the kernel's limit
_NAME: Final = re.compile(r"[a-zA-Z0-9_.+-]+")

OnConnected = Callable[[str, str], None]
OnDisconnected = Callable[[], None]
Result = TypeVar("Result")


async def serve(
    socket_path: Path,
    name: str,
    index: int,
    handler: Handler,
    *,
    select_events: EventSelector = creation_and_start,
    on_connected: OnConnected = lambda _runtime_name, _runtime_version: None,
    on_disconnected: OnDisconnected = lambda: None,
    updates: ContainerUpdates | None = None,
) -> None:
    """Run the plugin `name` of the runtime behind this socket, until cancelled. `updates` uses the connection while it lasts.

    A thread of its own answers the runtime, however busy this loop is: `select_events` and the handler are called there. If they
    take too long, the runtime gets an error and refuses the container, instead of creating it without its cards. The other
    callbacks are called on this loop.
    """
    home = asyncio.get_running_loop()
    connection = NriConnection(
        socket_path,
        name,
        index,
        handler,
        select_events=select_events,
        on_connected=lambda *runtime: _call_on(home, on_connected, *runtime),
        on_disconnected=lambda: _call_on(home, on_disconnected),
        updates=updates or ContainerUpdates(),
    )
    async with own_loop("nri") as loop:
        await run_on(loop, connection.keep_connected())


class NriConnection:
    """The plugin's connection, redialled when it ends. Everything runs on one loop."""

    def __init__(
        self,
        socket_path: Path,
        name: str,
        index: int,
        handler: Handler,
        *,
        select_events: EventSelector,
        on_connected: OnConnected,
        on_disconnected: OnDisconnected,
        updates: ContainerUpdates,
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
        self._select_events = select_events
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._updates = updates
        self._logged = ""

    async def keep_connected(self) -> Never:
        """Connect, and connect again whenever the connection ends: a runtime may come back at any time."""
        while True:
            try:
                await self.connect_once()
            except (NriError, OSError) as error:
                self._log_once(f"{type(error).__name__}: {error}")
            await asyncio.sleep(RETRY_S)

    async def connect_once(self) -> None:
        """One connection, from dialling to its end."""
        plugin = NriPlugin(self._name, self._handler, self._select_events)
        link = Link(serves=mux.PLUGIN, calls=mux.RUNTIME, handler=plugin.answer, time_limit=plugin.time_limit)
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
            self._logged = ""
            self._updates.opened(link)
            self._on_connected(plugin.runtime.runtime_name, plugin.runtime.runtime_version)
            try:
                await asyncio.shield(running)
                self._log_once("the runtime has closed the connection")
            finally:
                self._updates.closed()
                self._on_disconnected()
        finally:
            link.close()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, NriError):
                await running

    async def _join(self, link: Link, plugin: NriPlugin, running: asyncio.Task[None]) -> None:
        """Register and wait for the end of Synchronize: only then does the runtime call us for containers."""
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
            running.result()  # raises if the runtime broke the protocol
            raise NriError("the runtime closed the connection before it had listed its containers")
        raise NriError(f"the runtime has not listed its containers within {REGISTER_S:g} s")

    def _log_once(self, problem: str) -> None:
        """Log a problem once, however often it repeats."""
        if problem != self._logged:
            self._logged = problem
            log.warning("nri outcome=disconnected path=%s error=%r", self._socket_path, problem)


def _call_on(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *arguments: Any) -> None:
    """Call a function on another loop, in the order of these calls, without waiting. Does nothing if that loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *arguments)


@contextlib.asynccontextmanager
async def own_loop(name: str) -> AsyncIterator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread of its own; at the end its tasks are cancelled and waited for."""
    started: concurrent.futures.Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = concurrent.futures.Future()

    async def until_stopped() -> None:
        stop = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()

    # asyncio.run cancels the tasks that are left when until_stopped returns.
    thread = threading.Thread(target=lambda: asyncio.run(until_stopped()), name=name, daemon=True)
    thread.start()
    loop, stop = await asyncio.wrap_future(started)
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(stop.set)
        # Its last tasks may still call this loop, so this loop must not block.
        await asyncio.shield(asyncio.to_thread(thread.join))


async def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of work that runs on another loop; if cancelled here, it is cancelled there."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
