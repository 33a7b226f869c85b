"""What happened to containers, carried from the thread that answers the runtime to the agent's main loop.

Belongs here: the outcomes and their queue. Never: what follows from an outcome.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final, Literal, TypeAlias

from accelshare.agent.nri.protocol.nri_pb2 import PodSandbox
from accelshare.wire.node_pods import NodePod

# The runtime validates a container within a millisecond after its adjustment. Two threads that work at the same time delay each
# other, so the main loop handles outcomes only after that.
DELAY_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Delivered:
    """A container of this pod got its cards."""

    pod: NodePod


@dataclass(frozen=True, slots=True)
class Corrected:
    """Variables of a container of this pod were made equal to the pod's record."""

    pod: NodePod


@dataclass(frozen=True, slots=True)
class Refused:
    """A container was refused."""


@dataclass(frozen=True, slots=True)
class Unentitled:
    """A container requests no card of a kind and would have got one; `what` names what it had."""

    outcome: Literal["withheld", "refused", "found"]
    sandbox: PodSandbox
    container: str
    noun: str
    what: str


Outcome: TypeAlias = Delivered | Corrected | Refused | Unentitled


class OutcomeQueue:
    """Any thread puts outcomes; the main loop takes them in the same order."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Outcome] = SimpleQueue()
        self._arrived = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def put(self, outcome: Outcome) -> None:
        self._queue.put(outcome)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the main loop has ended
                self._loop.call_soon_threadsafe(self._arrived.set)

    def take_all(self) -> list[Outcome]:
        taken = []
        with contextlib.suppress(Empty):
            while True:
                taken.append(self._queue.get_nowait())
        return taken

    async def run(self, handle: Callable[[Outcome], None]) -> None:
        """Pass each outcome to `handle` on this loop, until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            for outcome in self.take_all():
                handle(outcome)
            await self._arrived.wait()
            await asyncio.sleep(DELAY_S)
            self._arrived.clear()
