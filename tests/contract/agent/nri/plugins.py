"""Real plugins for tests, and the events of each connection."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from accelshare.agent.nri.protocol.connection import serve
from accelshare.agent.nri.protocol.nri_pb2 import Event
from accelshare.agent.nri.protocol.plugin import EventSelector, Handler, creation_and_start

WAIT_S = 60.0


def creation_and_validation(_runtime: str, _version: str) -> tuple[Event, ...]:
    """The events that the agent subscribes to where the runtime requires it."""
    return (Event.CREATE_CONTAINER, Event.VALIDATE_CONTAINER_ADJUSTMENT)


@dataclass(slots=True)
class ConnectionEvents:
    """`connected RUNTIME VERSION` and `disconnected`, in their order."""

    names: list[str] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, *words: str) -> None:
        self.names.append(" ".join(words))
        self._changed.set()

    async def first(self) -> str:
        """The first event; it comes from another thread."""
        async with asyncio.timeout(WAIT_S):
            while not self.names:
                self._changed.clear()
                await self._changed.wait()
        return self.names[0]

    async def until(self, *words: str) -> None:
        """Wait until exactly these events have come."""
        async with asyncio.timeout(WAIT_S):
            while tuple(self.names) != words:
                self._changed.clear()
                await self._changed.wait()


class Plugins:
    """Starts plugins on one socket."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.tasks: list[asyncio.Task[None]] = []

    def start(
        self, handler: Handler, *, name: str = "accelshare", index: int = 10, select_events: EventSelector = creation_and_start
    ) -> ConnectionEvents:
        events = ConnectionEvents()
        work = serve(
            self._socket,
            name,
            index,
            handler,
            select_events=select_events,
            on_connected=lambda runtime, version: events.add("connected", runtime, version),
            on_disconnected=lambda: events.add("disconnected"),
        )
        self.tasks.append(asyncio.create_task(work))
        return events
