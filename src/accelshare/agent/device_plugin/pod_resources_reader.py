"""kubelet's books, read whenever somebody needs to know; the waiting room hears of each reading.

Belongs here: asking again, and what it means when kubelet does not answer. Never: how the books are spelled (pod_resources.py),
what follows from them (waiting_room.py, reconcile.py).
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from accelshare.agent.device_plugin import checkpoint, pod_resources
from accelshare.agent.device_plugin.pod_queue import PodQueue, holds_all
from accelshare.vendors.catalog import Catalog

log = logging.getLogger(__name__)
BUSY_S: Final = 1.0  # for so long a kubelet that was asked too often is asked again
AGAIN_S: Final = 0.01  # it answers a hundred times in a second


class PodResourcesReader:
    def __init__(self, kubelet: Path, catalog: Catalog, pod_queue: PodQueue) -> None:
        self._kubelet = kubelet
        self._catalog = catalog
        self._roles = pod_resources.roles(catalog)
        self._pod_queue = pod_queue
        self._one_reader = asyncio.Lock()  # or an older reading could be told after a newer one
        self._silent = ""
        self.mute = False  # it has no way to tell
        self.heard: Callable[[], None] = lambda: None  # called when there is something new to know

    async def read(self) -> pod_resources.Books | None:
        """The books as they are now, or None if kubelet does not show them."""
        async with self._one_reader:
            try:
                told = await self._ask()
            except pod_resources.NotToldError as error:
                if str(error) != self._silent:
                    log.warning("books outcome=not-told error=%r", str(error))
                self._silent = str(error)
                self.mute = isinstance(error, pod_resources.NoSuchInterfaceError)
                if self.mute:
                    self._pod_queue.kubelet_is_mute()
                    self.heard()
                return None
            self._silent = ""
            self.mute = False
            self._add_init_containers(told)
            self._pod_queue.kubelet_says(told)
            self.heard()
            return told

    def _add_init_containers(self, told: pod_resources.Books) -> None:
        """PodResources hides ordinary init containers. A pod with cards for those only would seem to wait for ever."""
        lacking = {
            pod.uid_at_kubelet: pod
            for pod in self._pod_queue.pods.values()
            if pod.parts and not pod.terminating and pod.name in told and not holds_all(pod, told[pod.name])
        }
        for one in checkpoint.allocations(self._kubelet / "device-plugins") if lacking else ():
            if one.uid in lacking and one.resource in self._roles:
                containers = told[lacking[one.uid].name]
                containers.setdefault(one.container, {}).setdefault(self._roles[one.resource], set()).update(one.ids)

    async def _ask(self) -> pod_resources.Books:
        deadline = asyncio.get_running_loop().time() + BUSY_S
        while True:
            try:
                return await pod_resources.held(self._kubelet, self._catalog)
            except pod_resources.BusyError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(AGAIN_S)
