"""Reads kubelet's PodResources interface: which device ids each pod and container holds.

Belongs here: the call, its translation, retrying, and what a missing answer means. Never: what follows from the ids
(pod_queue.py, reconcile.py).
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

import grpc

from accelshare.agent.device_plugin import checkpoint
from accelshare.agent.device_plugin.api import kubelet_pod_resources_pb2 as api
from accelshare.agent.device_plugin.pod_queue import PodQueue, holds_all
from accelshare.vendors.catalog import Catalog

log = logging.getLogger(__name__)
SOCKET: Final = "pod-resources/kubelet.sock"
TIMEOUT_S: Final = 10.0
LARGEST_ANSWER: Final = 256 * 2**20
BUSY_S: Final = 1.0  # how long to repeat a call that kubelet rejects because it was called too often
RETRY_S: Final = 0.01  # kubelet answers a hundred calls a second

# For each pod by "namespace/name" and each container that holds something, the ids it holds of each (kind, whole).
PodHoldings: TypeAlias = dict[str, dict[str, dict[tuple[str, bool], set[str]]]]


class PodResourcesError(Exception):
    """kubelet did not answer: it is away, or the call failed."""


class BusyError(PodResourcesError):
    """kubelet rejected the call because it was called too often; it answers again in a moment."""


class NoSuchInterfaceError(PodResourcesError):
    """kubelet has no such interface (before 1.20), or an older version of it."""


async def list_holdings(kubelet: Path, catalog: Catalog) -> PodHoldings:
    """Every pod that kubelet knows, with the ids it holds. A pod in admission is listed without the ids it still lacks."""
    options = [("grpc.max_receive_message_length", LARGEST_ANSWER), ("grpc.default_authority", "localhost")]
    async with grpc.aio.insecure_channel(f"unix://{kubelet / SOCKET}", options=options) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[api.ListPodResourcesRequest, api.ListPodResourcesResponse] = channel.unary_unary(
            "/v1.PodResourcesLister/List",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=api.ListPodResourcesResponse.FromString,
        )
        try:
            answer = await call(api.ListPodResourcesRequest(), timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise _error_type(error, kubelet)(
                f"kubelet did not list its devices: {error.code().name} {error.details()}"
            ) from error
    return read(answer, roles(catalog))


def _error_type(error: grpc.aio.AioRpcError, kubelet: Path) -> type[PodResourcesError]:
    if error.code() is grpc.StatusCode.UNIMPLEMENTED or _lacks_interface(kubelet):
        return NoSuchInterfaceError
    return BusyError if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED else PodResourcesError


def _lacks_interface(kubelet: Path) -> bool:
    return (kubelet / "device-plugins/kubelet.sock").exists() and not (kubelet / SOCKET).exists()


def read(answer: api.ListPodResourcesResponse, roles: Mapping[str, tuple[str, bool]]) -> PodHoldings:
    """kubelet repeats a device for each of its NUMA nodes; a set does not."""
    holdings: PodHoldings = {}
    for pod in answer.pod_resources:
        containers = holdings.setdefault(f"{pod.namespace}/{pod.name}", {})
        for container in pod.containers:
            for devices in container.devices:
                role = roles.get(devices.resource_name)
                if role is not None:
                    containers.setdefault(container.name, {}).setdefault(role, set()).update(devices.device_ids)
    return holdings


def roles(catalog: Catalog) -> dict[str, tuple[str, bool]]:
    """By resource name: its kind, and whether it counts whole cards."""
    by_resource: dict[str, tuple[str, bool]] = {}
    for profile in catalog:
        for name, whole in ((profile.resources.memory, False), (profile.resources.whole, True)):
            if name is not None:
                by_resource[name] = (profile.name, whole)
    return by_resource


class PodResourcesReader:
    """Reads PodResources on request, and passes each reading to the pod queue."""

    def __init__(self, kubelet: Path, catalog: Catalog, pod_queue: PodQueue) -> None:
        self._kubelet = kubelet
        self._catalog = catalog
        self._roles = roles(catalog)
        self._pod_queue = pod_queue
        self._lock = asyncio.Lock()  # so that an older reading never follows a newer one
        self._logged_error = ""
        self.unsupported = False  # this kubelet has no PodResources interface

    async def read(self) -> PodHoldings | None:
        """What pods hold now, or None if kubelet does not answer."""
        async with self._lock:
            try:
                holdings = await self._list()
            except PodResourcesError as error:
                if str(error) != self._logged_error:
                    log.warning("pod-resources outcome=failed error=%r", str(error))
                self._logged_error = str(error)
                self.unsupported = isinstance(error, NoSuchInterfaceError)
                if self.unsupported:
                    self._pod_queue.set_holdings_unavailable()
                return None
            self._logged_error = ""
            self.unsupported = False
            self._add_init_containers(holdings)
            self._pod_queue.set_holdings(holdings)
            return holdings

    def _add_init_containers(self, holdings: PodHoldings) -> None:
        """PodResources omits ordinary init containers. A pod whose cards are for those only would seem to wait for ever."""
        lacking = {
            pod.uid_at_kubelet: pod
            for pod in self._pod_queue.pods.values()
            if pod.parts and not pod.terminating and pod.name in holdings and not holds_all(pod, holdings[pod.name])
        }
        for one in checkpoint.allocations(self._kubelet / "device-plugins") if lacking else ():
            if one.uid in lacking and one.resource in self._roles:
                containers = holdings[lacking[one.uid].name]
                containers.setdefault(one.container, {}).setdefault(self._roles[one.resource], set()).update(one.ids)

    async def _list(self) -> PodHoldings:
        deadline = asyncio.get_running_loop().time() + BUSY_S
        while True:
            try:
                return await list_holdings(self._kubelet, self._catalog)
            except BusyError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(RETRY_S)
