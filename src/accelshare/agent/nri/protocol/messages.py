"""Helpers for the generated NRI and ttrpc messages: decode them, read a container, build an adjustment.

The messages are generated from nri.proto and ttrpc.proto by `make protos`. They cross threads, so no code changes a message after
it was decoded or handed over.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from accelshare.agent.nri.protocol.errors import WireError
from accelshare.agent.nri.protocol.nri_pb2 import (
    CDIDevice,
    Container,
    ContainerAdjustment,
    KeyValue,
    LinuxContainerAdjustment,
    LinuxDevice,
    LinuxDeviceCgroup,
    LinuxResources,
    Mount,
)

PLUGIN_SERVICE: Final = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE: Final = "nri.pkg.api.v1alpha1.Runtime"
AnyMessage = TypeVar("AnyMessage", bound=Message)


def decode(kind: type[AnyMessage], data: bytes) -> AnyMessage:
    """The message in these bytes; WireError if they are not one."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise WireError(f"{len(data)} bytes are not a {kind.__name__}: {error}") from error


def event_mask(events: Iterable[int]) -> int:
    """Events as ConfigureResponse has them: bit n-1 for event n."""
    return sum(1 << event - 1 for event in set(events))


def environment(container: Container) -> dict[str, str]:
    """The container's variables by name; of two with the same name the later one, which is the one that programs read."""
    return {name: value for name, _, value in (line.partition("=") for line in container.env)}


def is_privileged(container: Container) -> bool:
    """Whether the container may use every device of the host."""
    return any(rule.allow and _is_about_every_device(rule) for rule in container.linux.resources.devices)


def _is_about_every_device(rule: LinuxDeviceCgroup) -> bool:
    return rule.type in ("", "a") and not rule.HasField("major") and not rule.HasField("minor")


def adjustment(
    *,
    env: Mapping[str, str] | None = None,
    devices: Iterable[LinuxDevice] = (),
    mounts: Iterable[Mount] = (),
    cdi_devices: Iterable[str] = (),
    annotations: Mapping[str, str] | None = None,
    unified: Mapping[str, str] | None = None,
) -> ContainerAdjustment:
    """An adjustment from plain values; `unified`: what the runtime writes into files of the container's cgroup."""
    nodes = list(devices)
    resources = LinuxResources(unified=unified) if unified else None
    return ContainerAdjustment(
        annotations=annotations,
        mounts=mounts,
        env=[KeyValue(key=key, value=value) for key, value in (env or {}).items()],
        linux=LinuxContainerAdjustment(devices=nodes, resources=resources) if nodes or resources else None,
        cdi_devices=[CDIDevice(name=name) for name in cdi_devices],
    )
