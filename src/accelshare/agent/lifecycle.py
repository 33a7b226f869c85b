"""The agent's background tasks and its shutdown: stop receiving pods, serve the pods that are already bound, then end.

Belongs here: running tasks side by side, and the order and time limits of the shutdown. Never: what a task does.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from accelshare.agent.cdi_files import CdiFiles
from accelshare.agent.delivery import DeliveryState
from accelshare.agent.discovery.inventory_publisher import InventoryPublisher
from accelshare.agent.pod_store import PodStore

log = logging.getLogger(__name__)
LAST_BINDS_S: Final = 2.0  # for binds that were under way when the Node's inventory stopped showing delivery
LULL_S: Final = 4.0  # a runtime that creates containers one after the other calls more often than this
DRAIN_S: Final = 25.0  # kubelet gives a pod 30 s to end
POLL_S: Final = 0.1


class BackgroundTasks:
    """Tasks that run as long as the agent does: if one ends, the agent ends."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Future[None]] = []

    def start(self, work: Awaitable[None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def wait_for(self, work: Awaitable[object]) -> None:
        """Wait for this work; raise if a background task ends before it."""
        waiting: asyncio.Future[object] = asyncio.ensure_future(work)
        tasks: list[asyncio.Future[Any]] = [waiting, *self._tasks]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if waiting not in done:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        for task in done:
            task.result()
        if waiting not in done:
            raise RuntimeError("a background task of the agent ended by itself")

    async def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def finished_before(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether the work finished before `stop` was set; if not, it is cancelled."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


class Shutdown:
    def __init__(self, state: DeliveryState, publisher: InventoryPublisher, cdi: CdiFiles, pods: PodStore) -> None:
        self._state = state
        self._publisher = publisher
        self._cdi = cdi
        self._pods = pods
        self._last_delivery = 0.0

    def container_delivered(self) -> None:
        """The runtime has just received a container's cards."""
        self._last_delivery = time.monotonic()

    async def drain(self, waiting: Callable[[], int], *, by_nri: bool) -> None:
        """Wait until no bound pod waits for its cards, or until the time is up."""
        deadline = time.monotonic() + DRAIN_S
        self._state.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S / 2):
                await self._publisher.wait_until_published()
        log.info("drain waiting=%d", waiting())
        await asyncio.sleep(LAST_BINDS_S)
        self._cdi.remove_unused({ask.kind for pod in self._pods.values() if not pod.seen.ended for ask in pod.seen.request})
        while waiting() and time.monotonic() < self._limit(deadline, by_nri=by_nri):  # noqa: ASYNC110 – kubelet's pace
            await asyncio.sleep(POLL_S)

    def _limit(self, deadline: float, *, by_nri: bool) -> float:
        """With NRI a pod that is left, say one that pulls a large image, only loses time: kubelet tries again until the next
        agent answers. With device plugins it would fail for good.
        """
        return min(deadline, self._last_delivery + LULL_S) if by_nri else deadline
