"""Asks the container runtime to change containers that exist: NRI's UpdateContainers.

Belongs here: the call, and which connection it is made on. Never: which containers change, or why.

A runtime writes the new values to the container's cgroup and into the specification that it keeps, from which it would write the
old ones again at the next change of the container.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from accelshare.agent.nri.protocol.errors import GoneError, NriError
from accelshare.agent.nri.protocol.link import Link
from accelshare.agent.nri.protocol.messages import RUNTIME_SERVICE, decode
from accelshare.agent.nri.protocol.nri_pb2 import (
    ContainerUpdate,
    LinuxContainerUpdate,
    LinuxResources,
    UpdateContainersRequest,
    UpdateContainersResponse,
)

UPDATE_S: Final = 10.0
T = TypeVar("T")


class ContainerUpdates:
    """Used on any loop; the calls are made on the loop of the connection, which also answers the runtime."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # written on the connection's thread
        self._open: tuple[asyncio.AbstractEventLoop, Link] | None = None

    def opened(self, link: Link) -> None:
        """A connection has been established, on the running loop."""
        with self._lock:
            self._open = asyncio.get_running_loop(), link

    def closed(self) -> None:
        with self._lock:
            self._open = None

    @property
    def connected(self) -> bool:
        with self._lock:
            return self._open is not None

    async def set_files(self, container_id: str, unified: Mapping[str, str]) -> None:
        """Set these files of the container's cgroup; NriError if the runtime does not."""
        update = ContainerUpdate(
            container_id=container_id, linux=LinuxContainerUpdate(resources=LinuxResources(unified=dict(unified)))
        )
        response = await self._on_connection(lambda link: _update(link, UpdateContainersRequest(update=[update])))
        if response.failed:
            raise NriError(f"the container runtime could not update container {container_id}")

    async def wait_for_calls(self) -> None:
        """Wait until no call of the runtime is being answered that began before."""
        with contextlib.suppress(GoneError):  # nothing is answered without a connection
            await self._on_connection(_nothing)

    async def _on_connection(self, work: Callable[[Link], Coroutine[Any, Any, T]]) -> T:
        with self._lock:
            if self._open is None:
                raise GoneError("no container runtime is connected")
            loop, link = self._open
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(link), loop))
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise GoneError("the connection was closed") from None


async def _update(link: Link, request: UpdateContainersRequest) -> UpdateContainersResponse:
    response = await link.call(RUNTIME_SERVICE, "UpdateContainers", request.SerializeToString(), timeout_s=UPDATE_S)
    return decode(UpdateContainersResponse, response)


async def _nothing(_link: Link) -> None:
    return
