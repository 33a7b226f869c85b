"""Real plugins of a test, and what each was told of its connection."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from accelshare.agent.nri.protocol.connection import serve
from accelshare.agent.nri.protocol.nri_pb2 import Event
from accelshare.agent.nri.protocol.plugin import Handler, Wants, creation_and_start

WAIT_S = 60.0


def creation_and_validation(_runtime: str, _version: str) -> tuple[Event, ...]:
    """What the agent wants of a runtime that insists on it."""
    return (Event.CREATE_CONTAINER, Event.VALIDATE_CONTAINER_ADJUSTMENT)


@dataclass(slots=True)
class Told:
    """`connected RUNTIME VERSION` and `disconnected`, in their order."""

    words: list[str] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, *words: str) -> None:
        self.words.append(" ".join(words))
        self._changed.set()

    async def first(self) -> str:
        """What was told first; it comes from another thread."""
        async with asyncio.timeout(WAIT_S):
            while not self.words:
                self._changed.clear()
                await self._changed.wait()
        return self.words[0]

    async def until(self, *words: str) -> None:
        """Exactly this was told."""
        async with asyncio.timeout(WAIT_S):
            while tuple(self.words) != words:
                self._changed.clear()
                await self._changed.wait()


class Plugins:
    """Starts plugins on one socket."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, handler: Handler, *, name: str = "accelshare", index: int = 10, wants: Wants = creation_and_start) -> Told:
        told = Told()
        work = serve(
            self._socket,
            name,
            index,
            handler,
            wants=wants,
            on_connected=lambda runtime, version: told.say("connected", runtime, version),
            on_disconnected=lambda: told.say("disconnected"),
        )
        self.tasks.append(asyncio.create_task(work))
        return told
