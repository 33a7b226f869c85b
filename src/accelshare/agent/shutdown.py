"""The agent's end: the cluster hears that it goes, whoever is bound already is served, and only then it goes.

Belongs here: the order of the last things, and how long each may take. Never: starting.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Final

from accelshare.agent.cdi_files import CdiFiles
from accelshare.agent.device_plugin.pod_queue import PodQueue
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.discovery.inventory_publisher import InventoryPublisher

log = logging.getLogger(__name__)
LAST_BINDS_S: Final = 2.0  # binds that were under way when we said that we go
LULL_S: Final = 4.0  # a runtime that makes containers one after the other asks more often than this
DRAIN_S: Final = 25.0  # kubelet gives a pod 30 s to end
LOOK_S: Final = 0.1


class Shutdown:
    def __init__(self, devices: DeviceInventory, publisher: InventoryPublisher, cdi: CdiFiles, pod_queue: PodQueue) -> None:
        self._devices = devices
        self._publisher = publisher
        self._cdi = cdi
        self._pod_queue = pod_queue
        self._last_delivery = 0.0
        self.begun = False

    def delivered(self) -> None:
        """The runtime has just been given a container's cards."""
        self._last_delivery = time.monotonic()

    async def leave(self, waiting: Callable[[], int], *, by_runtime: bool) -> None:
        """Until nobody waits any more, or for as long as there is time."""
        self.begun = True
        deadline = time.monotonic() + DRAIN_S
        for kind in self._devices.kinds:
            self._devices.set_delivers(kind, False)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._publisher.flushed(), DRAIN_S / 2)
        log.info("leaving waiting=%d", waiting())
        await asyncio.sleep(LAST_BINDS_S)
        self._cdi.leave({ask.kind for pod in self._pod_queue.pods.values() if not pod.seen.ended for ask in pod.seen.request})
        while waiting() and time.monotonic() < self._patience(deadline, by_runtime=by_runtime):  # noqa: ASYNC110 – kubelet's pace
            await asyncio.sleep(LOOK_S)

    def _patience(self, deadline: float, *, by_runtime: bool) -> float:
        """By the runtime whoever is left, say behind a large image, loses nothing but time: kubelet asks again until our
        successor answers. By device plugins it would die.
        """
        return min(deadline, self._last_delivery + LULL_S) if by_runtime else deadline
