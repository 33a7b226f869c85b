"""What kubelet really gave: its PodResources interface, read.

Belongs here: one call and its translation. Never: what follows from it (reconcile.py).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

import grpc

from accelshare.agent.device_plugin.api import kubelet_pod_resources_pb2 as api
from accelshare.vendors.catalog import Catalog

SOCKET: Final = "pod-resources/kubelet.sock"
TIMEOUT_S: Final = 10.0
LARGEST_ANSWER: Final = 256 * 2**20

# For each pod by "namespace/name" and each container that holds something, the ids it holds of each (kind, whole).
Books: TypeAlias = dict[str, dict[str, dict[tuple[str, bool], set[str]]]]


class NotToldError(Exception):
    """kubelet did not say who holds what: it is away, or it has trouble."""


class BusyError(NotToldError):
    """kubelet was asked more often than it likes; in a moment it answers again."""


class NoSuchInterfaceError(NotToldError):
    """kubelet cannot say it at all: before 1.20 it has no such interface, or an older version of it."""


async def held(kubelet: Path, catalog: Catalog) -> Books:
    """Every pod that kubelet has taken up, and what it holds. One that is being admitted is there without what it lacks."""
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
            raise _kind(error, kubelet)(f"kubelet did not list its devices: {error.code().name} {error.details()}") from error
    return read(answer, roles(catalog))


def _kind(error: grpc.aio.AioRpcError, kubelet: Path) -> type[NotToldError]:
    if error.code() is grpc.StatusCode.UNIMPLEMENTED or _is_there_without(kubelet):
        return NoSuchInterfaceError
    return BusyError if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED else NotToldError


def _is_there_without(kubelet: Path) -> bool:
    return (kubelet / "device-plugins/kubelet.sock").exists() and not (kubelet / SOCKET).exists()


def read(answer: api.ListPodResourcesResponse, roles: Mapping[str, tuple[str, bool]]) -> Books:
    """kubelet repeats a device for each of its NUMA nodes; a set does not."""
    told: Books = {}
    for pod in answer.pod_resources:
        containers = told.setdefault(f"{pod.namespace}/{pod.name}", {})
        for container in pod.containers:
            for devices in container.devices:
                role = roles.get(devices.resource_name)
                if role is not None:
                    containers.setdefault(container.name, {}).setdefault(role, set()).update(devices.device_ids)
    return told


def roles(catalog: Catalog) -> dict[str, tuple[str, bool]]:
    """By resource name: its kind, and whether it counts whole cards."""
    found: dict[str, tuple[str, bool]] = {}
    for profile in catalog:
        for name, whole in ((profile.resources.memory, False), (profile.resources.whole, True)):
            if name is not None:
                found[name] = (profile.name, whole)
    return found
