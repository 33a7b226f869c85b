"""What kubelet really gave: its PodResources interface, read.

Belongs here: one call and its translation. Never: what follows from it (reconcile.py).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import grpc

from accelshare.agent.kubelet_api import kubelet_pod_resources_pb2 as api
from accelshare.vendors.catalog import Catalog

SOCKET: Final = "pod-resources/kubelet.sock"
TIMEOUT_S: Final = 10.0
LARGEST_ANSWER: Final = 256 * 2**20


class NotToldError(Exception):
    """kubelet did not say who holds what: it is away, or it has trouble."""


class NoSuchInterfaceError(NotToldError):
    """kubelet cannot say it at all: before 1.20 it has no such interface, or an older version of it."""


async def held(kubelet: Path, catalog: Catalog) -> dict[str, dict[str, dict[tuple[str, bool], set[str]]]]:
    """For each pod by "namespace/name" and each container, the ids it holds of each (kind, whole)."""
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
            missing = error.code() is grpc.StatusCode.UNIMPLEMENTED or _is_there_without(kubelet)
            kind = NoSuchInterfaceError if missing else NotToldError
            raise kind(f"kubelet did not list its devices: {error.code().name} {error.details()}") from error
    return read(answer, _roles(catalog))


def _is_there_without(kubelet: Path) -> bool:
    return (kubelet / "device-plugins/kubelet.sock").exists() and not (kubelet / SOCKET).exists()


def read(
    answer: api.ListPodResourcesResponse, roles: Mapping[str, tuple[str, bool]]
) -> dict[str, dict[str, dict[tuple[str, bool], set[str]]]]:
    """kubelet repeats a device for each of its NUMA nodes; a set does not."""
    told: dict[str, dict[str, dict[tuple[str, bool], set[str]]]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                role = roles.get(devices.resource_name)
                if role is not None:
                    containers = told.setdefault(f"{pod.namespace}/{pod.name}", {})
                    containers.setdefault(container.name, {}).setdefault(role, set()).update(devices.device_ids)
    return told


def _roles(catalog: Catalog) -> dict[str, tuple[str, bool]]:
    roles: dict[str, tuple[str, bool]] = {}
    for profile in catalog:
        for name, whole in ((profile.resources.memory, False), (profile.resources.whole, True)):
            if name is not None:
                roles[name] = (profile.name, whole)
    return roles
