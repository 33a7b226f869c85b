"""One resource as a device plugin: the list kubelet watches, its questions, its allocations.

Belongs here: kubelet's messages to the desk and back. An answer that cannot be given is an error of the call, never a success.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Container, Iterable
from pathlib import Path
from typing import Any, Final

import grpc

from accelshare.agent.device_plugin.allocator import Allocator, NoRoomError, WrongPodError
from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as api
from accelshare.agent.device_plugin.checkpoint import Allocation
from accelshare.agent.device_plugin.device_ids import by_card, current
from accelshare.agent.device_plugin.pod_queue import NobodyWaitsError
from accelshare.agent.discovery.device_inventory import DeviceInventory, Shown
from accelshare.terminal import visible
from accelshare.vendors.container_edits import ContainerEdits
from accelshare.vendors.problems import VendorError
from accelshare.wire.node_pods import NodePod

log = logging.getLogger(__name__)
SERVICE: Final = "v1beta1.DevicePlugin"
LARGEST_MESSAGE: Final = 64 * 2**20  # kubelet sends every free id with a question


class Plugin:
    """Serves one (kind, whole or shared) under its resource name, on a socket of its own."""

    def __init__(
        self,
        resource: str,
        kind: str,
        *,
        whole: bool,
        allocator: Allocator,
        devices: DeviceInventory,
        on_stream: Callable[[], None],
    ) -> None:
        self.resource = resource
        self.kind = kind
        self.whole = whole
        self.streams = 0  # how many lists kubelet watches; one, when all is well
        self.was_watched = False  # since it was started
        self._allocator = allocator
        self._devices = devices
        self._on_stream = on_stream
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._server: grpc.aio.Server | None = None
        self._held: dict[int, list[str]] = {}  # when kubelet began
        self._lost: set[str] = set()
        self._renumbered: dict[frozenset[str], tuple[NodePod, str]] = {}  # containers that must not restart with their answer

    @property
    def socket(self) -> str:
        return f"accelshare-{self.kind}-{'whole' if self.whole else 'shared'}.sock"

    def kubelet_remembers(self, allocations: Collection[Allocation], alive: Container[str]) -> None:
        """What a kubelet that starts believes about each pod's ids. For its first pods it counts the dead among the living."""
        self._held = by_card(i for one in allocations if one.uid in alive for i in one.ids)
        self._lost = {i for one in allocations if one.uid not in alive for i in one.ids}
        self._renumbered = self._allocator.renumbered(self.kind, whole=self.whole, allocations=allocations)
        for pod, container in self._renumbered.values():
            problem = "kubelet keeps an answer that names another card now; the pod is replaced when this container restarts"
            log.warning("renumbered resource=%s pod=%s container=%s problem=%r", self.resource, pod.name, container, problem)

    def is_stale(self, allocations: Collection[Allocation]) -> bool:
        """Whether other containers must not restart now than those that kubelet is to ask about."""
        now = self._allocator.renumbered(self.kind, whole=self.whole, allocations=allocations)
        return now.keys() != self._renumbered.keys()

    async def start(self, directory: Path) -> None:
        path = directory / self.socket
        path.unlink(missing_ok=True)
        self._ended = asyncio.Event()
        self.was_watched = False
        options = [("grpc.max_receive_message_length", LARGEST_MESSAGE), ("grpc.max_send_message_length", LARGEST_MESSAGE)]
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, self._methods()),))
        self._server.add_insecure_port(f"unix://{path}")
        await self._server.start()

    async def stop(self, directory: Path) -> None:
        """End the list first: kubelet would take the end of an old one for the end of a new one."""
        self._ended.set()
        if self._server is not None:
            await self._server.stop(grace=1.0)
            self._server = None
        (directory / self.socket).unlink(missing_ok=True)

    def show(self) -> None:
        self._changed.set()

    def _methods(self) -> dict[str, Any]:
        def unary(handle: Any, request: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                handle, request_deserializer=request.FromString, response_serializer=lambda message: message.SerializeToString()
            )

        return {
            "GetDevicePluginOptions": unary(self._options, api.Empty),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self._list_and_watch,
                request_deserializer=api.Empty.FromString,
                response_serializer=lambda message: message.SerializeToString(),
            ),
            "GetPreferredAllocation": unary(self._prefer, api.PreferredAllocationRequest),
            "Allocate": unary(self._allocate, api.AllocateRequest),
            "PreStartContainer": unary(self._pre_start, api.PreStartContainerRequest),
        }

    @property
    def options(self) -> api.DevicePluginOptions:
        # Only while there is something to refuse: a container that restarts would need us each time.
        return api.DevicePluginOptions(get_preferred_allocation_available=True, pre_start_required=bool(self._renumbered))

    async def _options(self, _request: api.Empty, _context: Any) -> api.DevicePluginOptions:
        return self.options

    async def _list_and_watch(self, _request: api.Empty, _context: Any) -> AsyncIterator[api.ListAndWatchResponse]:
        counted = False
        ended = asyncio.create_task(self._ended.wait())
        try:
            sent: tuple[Shown, ...] | None = None
            while not self._ended.is_set():
                self._changed.clear()
                shown = self._devices.shown(self.kind, closed=self._allocator.closed(self.kind, whole=self.whole))
                if shown != sent:
                    sent = shown
                    yield self._list(shown)
                if not counted:  # before it has the list, kubelet would reject whoever asks
                    counted = self.was_watched = True
                    self.streams += 1
                    self._on_stream()
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait([changed, ended], return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        finally:
            ended.cancel()
            self.streams -= counted
            self.was_watched = True  # kubelet may have ended it before it had the list
            self._on_stream()

    def _list(self, shown: Iterable[Shown]) -> api.ListAndWatchResponse:
        answer = api.ListAndWatchResponse()
        for card in shown:
            health = "Healthy" if card.open else "Unhealthy"
            usual = card.device_ids(whole=self.whole)
            for name in current(card.card, usual, held=self._held.get(card.card, []), lost=self._lost):
                answer.devices.add(id=name, health=health)
        return answer

    async def _prefer(self, request: api.PreferredAllocationRequest, context: Any) -> api.PreferredAllocationResponse:
        answer = api.PreferredAllocationResponse()
        for asked in request.container_requests:
            try:
                chosen = await self._allocator.prefer(
                    self.kind,
                    whole=self.whole,
                    available=asked.available_device_ids,
                    must=asked.must_include_device_ids,
                    size=asked.allocation_size,
                )
            except (NobodyWaitsError, NoRoomError, ValueError) as error:
                await self._fail(context, "prefer", error)
            else:
                answer.container_responses.append(api.ContainerPreferredAllocationResponse(device_ids=chosen))
        return answer

    async def _allocate(self, request: api.AllocateRequest, context: Any) -> api.AllocateResponse:
        answer = api.AllocateResponse()
        for asked in request.container_requests:
            try:
                given = await self._allocator.allocate(self.kind, whole=self.whole, device_ids=list(asked.device_ids))
            except (NobodyWaitsError, NoRoomError, VendorError, ValueError) as error:
                await self._fail(context, "allocate", error)
            else:
                self._renumbered.pop(frozenset(asked.device_ids), None)  # whoever had them is gone, and this answer is right
                log.info(
                    "allocate resource=%s ids=%d env=%s outcome=given", self.resource, len(asked.device_ids), dict(given.env)
                )
                answer.container_responses.append(_response(given))
        return answer

    async def _pre_start(self, request: api.PreStartContainerRequest, context: Any) -> api.PreStartContainerResponse:
        """kubelet is about to start a container, perhaps with an answer that it has kept."""
        stale = self._renumbered.get(frozenset(request.device_ids))
        if stale is not None:
            pod, container = stale
            self._allocator.must_be_replaced(pod, container)
            problem = f"cards were numbered anew, and container {container} of pod {pod.name} would get another one"
            await self._fail(context, "pre-start", NoRoomError(f"{problem}; the pod is replaced"))
        return api.PreStartContainerResponse()

    async def _fail(self, context: Any, verb: str, error: Exception) -> None:
        log.warning("%s resource=%s outcome=failed error=%r", verb, self.resource, str(error))
        # The extender knows by the code whose fault it is (wire/pods.py): it pauses a node that kills pods, not one that is well.
        code = grpc.StatusCode.INVALID_ARGUMENT if isinstance(error, WrongPodError) else grpc.StatusCode.FAILED_PRECONDITION
        await context.abort(code, visible(f"accelshare: {self.resource}: {error}"))


def _response(given: ContainerEdits) -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(
        envs=dict(given.env),
        mounts=[api.Mount(container_path=m.container_path, host_path=m.host_path, read_only=m.read_only) for m in given.mounts],
        devices=[
            api.DeviceSpec(container_path=node.container_path, host_path=node.host_path, permissions=node.permissions)
            for node in given.device_nodes
        ],
        annotations=dict(given.annotations),
        cdi_devices=[api.CdiDevice(name=name) for name in given.cdi_devices],
    )
