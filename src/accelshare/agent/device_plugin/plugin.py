"""One resource as a device plugin: the device list that kubelet watches, preferences and allocations.

Belongs here: translating kubelet's messages for the allocator and back. A request that cannot be served fails the call.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Container, Iterable
from pathlib import Path
from typing import Any, Final

import grpc

from accelshare.agent.device_plugin.allocator import AllocationError, Allocator, WrongPodError
from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as api
from accelshare.agent.device_plugin.checkpoint import Allocation
from accelshare.agent.device_plugin.device_ids import by_card, current
from accelshare.agent.device_plugin.pod_queue import NoWaitingPodError
from accelshare.agent.discovery.device_inventory import DeviceInventory, ListedCard
from accelshare.agent.repairs import Repairs
from accelshare.terminal import visible
from accelshare.vendors.container_edits import ContainerEdits
from accelshare.vendors.problems import VendorError
from accelshare.wire.node_pods import NodePod

log = logging.getLogger(__name__)
SERVICE: Final = "v1beta1.DevicePlugin"
LARGEST_MESSAGE: Final = 64 * 2**20  # kubelet sends every free id with a request for a preference


class DevicePlugin:
    """Serves one (kind, whole or shared) under its resource name, on its own socket."""

    def __init__(
        self,
        resource: str,
        kind: str,
        *,
        whole: bool,
        allocator: Allocator,
        devices: DeviceInventory,
        repairs: Repairs,
        on_stream: Callable[[], None],
    ) -> None:
        self.resource = resource
        self.kind = kind
        self.whole = whole
        self.streams = 0  # open ListAndWatch streams; normally one
        self.was_watched = False  # kubelet has opened a stream since the start
        self._allocator = allocator
        self._devices = devices
        self._repairs = repairs
        self._on_stream = on_stream
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._server: grpc.aio.Server | None = None
        self._held: dict[int, list[str]] = {}  # by card: ids of living pods when kubelet started
        self._stale: set[str] = set()  # ids of ended pods that kubelet still kept then
        self._renumbered: dict[frozenset[str], tuple[NodePod, str]] = {}  # containers that must not restart with their answer

    @property
    def socket(self) -> str:
        return f"accelshare-{self.kind}-{'whole' if self.whole else 'shared'}.sock"

    def load_checkpoint(self, allocations: Collection[Allocation], alive: Container[str]) -> None:
        """The allocations in a starting kubelet's checkpoint. For its first pods it also counts those of ended pods."""
        self._held = by_card(i for one in allocations if one.uid in alive for i in one.ids)
        self._stale = {i for one in allocations if one.uid not in alive for i in one.ids}
        self._renumbered = self._allocator.renumbered(self.kind, whole=self.whole, allocations=allocations)
        for pod, container in self._renumbered.values():
            problem = "kubelet keeps an answer that names another card now; the pod will be replaced when this container restarts"
            log.warning("renumbered resource=%s pod=%s container=%s problem=%r", self.resource, pod.name, container, problem)

    def is_stale(self, allocations: Collection[Allocation]) -> bool:
        """Whether the containers that must not restart have changed since the last registration."""
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
        """End the stream first: kubelet would mistake the end of an old stream for the end of the new one."""
        self._ended.set()
        if self._server is not None:
            await self._server.stop(grace=1.0)
            self._server = None
        (directory / self.socket).unlink(missing_ok=True)

    def update_list(self) -> None:
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
        # PreStart only while there is something to refuse: otherwise every container restart would need the agent.
        return api.DevicePluginOptions(get_preferred_allocation_available=True, pre_start_required=bool(self._renumbered))

    async def _options(self, _request: api.Empty, _context: Any) -> api.DevicePluginOptions:
        return self.options

    async def _list_and_watch(self, _request: api.Empty, _context: Any) -> AsyncIterator[api.ListAndWatchResponse]:
        counted = False
        ended = asyncio.create_task(self._ended.wait())
        try:
            sent: tuple[ListedCard, ...] | None = None
            while not self._ended.is_set():
                self._changed.clear()
                cards = self._devices.listed_cards(self.kind, closed=self._allocator.closed(self.kind, whole=self.whole))
                if cards != sent:
                    sent = cards
                    yield self._list(cards)
                if not counted:  # kubelet rejects pods until it has the list
                    counted = self.was_watched = True
                    self.streams += 1
                    self._on_stream()
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait([changed, ended], return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        finally:
            ended.cancel()
            self.streams -= counted
            self.was_watched = True  # kubelet may have ended the stream before it had the list
            self._on_stream()

    def _list(self, cards: Iterable[ListedCard]) -> api.ListAndWatchResponse:
        answer = api.ListAndWatchResponse()
        for card in cards:
            health = "Healthy" if card.usable else "Unhealthy"
            usual = card.device_ids(whole=self.whole)
            for name in current(card.slot, usual, held=self._held.get(card.slot, []), stale=self._stale):
                answer.devices.add(id=name, health=health)
        return answer

    async def _prefer(self, request: api.PreferredAllocationRequest, context: Any) -> api.PreferredAllocationResponse:
        answer = api.PreferredAllocationResponse()
        for container in request.container_requests:
            try:
                chosen = await self._allocator.prefer(
                    self.kind,
                    whole=self.whole,
                    available=container.available_device_ids,
                    must=container.must_include_device_ids,
                    size=container.allocation_size,
                )
            except (NoWaitingPodError, AllocationError, ValueError) as error:
                await self._fail(context, "prefer", error)
            else:
                answer.container_responses.append(api.ContainerPreferredAllocationResponse(device_ids=chosen))
        return answer

    async def _allocate(self, request: api.AllocateRequest, context: Any) -> api.AllocateResponse:
        answer = api.AllocateResponse()
        for container in request.container_requests:
            try:
                edits = await self._allocator.allocate(self.kind, whole=self.whole, device_ids=list(container.device_ids))
            except (NoWaitingPodError, AllocationError, VendorError, ValueError) as error:
                await self._fail(context, "allocate", error)
            else:
                self._renumbered.pop(
                    frozenset(container.device_ids), None
                )  # their former holder is gone, and this answer is right
                log.info(
                    "allocate resource=%s ids=%d env=%s outcome=allocated",
                    self.resource,
                    len(container.device_ids),
                    dict(edits.env),
                )
                answer.container_responses.append(_response(edits))
        return answer

    async def _pre_start(self, request: api.PreStartContainerRequest, context: Any) -> api.PreStartContainerResponse:
        """kubelet is about to start a container, perhaps with an answer that it kept from before a restart."""
        stale = self._renumbered.get(frozenset(request.device_ids))
        if stale is not None:
            pod, container = stale
            self._repairs.replace_renumbered(pod, container)
            problem = f"card numbers have changed, and container {container} of pod {pod.name} would get another card"
            await self._fail(context, "pre-start", AllocationError(f"{problem}; the pod will be replaced"))
        return api.PreStartContainerResponse()

    async def _fail(self, context: Any, verb: str, error: Exception) -> None:
        log.warning("%s resource=%s outcome=failed error=%r", verb, self.resource, str(error))
        # The extender reads the code (wire/pods.py): it pauses a node whose pods fail, unless the pod itself is wrong.
        code = grpc.StatusCode.INVALID_ARGUMENT if isinstance(error, WrongPodError) else grpc.StatusCode.FAILED_PRECONDITION
        await context.abort(code, visible(f"accelshare: {self.resource}: {error}"))


def _response(edits: ContainerEdits) -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(
        envs=dict(edits.env),
        mounts=[api.Mount(container_path=m.container_path, host_path=m.host_path, read_only=m.read_only) for m in edits.mounts],
        devices=[
            api.DeviceSpec(container_path=node.container_path, host_path=node.host_path, permissions=node.permissions)
            for node in edits.device_nodes
        ],
        annotations=dict(edits.annotations),
        cdi_devices=[api.CdiDevice(name=name) for name in edits.cdi_devices],
    )
