"""NRI's messages, as far as a plugin that hands out devices needs them. The numbers are those of v1alpha1.

Belongs here: names, numbers, and the shortest way to read or build a message. Never: bytes (protobuf.py), what to answer, fields
that nobody here reads: a container waits for each that is decoded.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Final

PLUGIN_SERVICE: Final = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE: Final = "nri.pkg.api.v1alpha1.Runtime"


class Event(IntEnum):
    """What a plugin can be told of."""

    RUN_POD_SANDBOX = 1
    STOP_POD_SANDBOX = 2
    REMOVE_POD_SANDBOX = 3
    CREATE_CONTAINER = 4
    POST_CREATE_CONTAINER = 5
    START_CONTAINER = 6
    POST_START_CONTAINER = 7
    UPDATE_CONTAINER = 8
    POST_UPDATE_CONTAINER = 9
    STOP_CONTAINER = 10
    REMOVE_CONTAINER = 11
    UPDATE_POD_SANDBOX = 12
    POST_UPDATE_POD_SANDBOX = 13
    VALIDATE_CONTAINER_ADJUSTMENT = 14


class State(IntEnum):
    """Of a container."""

    UNKNOWN = 0
    CREATED = 1
    PAUSED = 2
    RUNNING = 3
    STOPPED = 4


def mask(events: Iterable[Event]) -> int:
    """Events as the bits of a number."""
    return sum(1 << event - 1 for event in set(events))


# Registration.


@dataclass(frozen=True, slots=True)
class RegisterPluginRequest:
    """The plugin's first word: who it is, and its place among others as two digits."""

    plugin_name: Annotated[str, 1] = ""
    plugin_index: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True)
class ConfigureRequest:
    """The runtime's first word. Times are in milliseconds."""

    config: Annotated[str, 1] = ""
    runtime_name: Annotated[str, 2] = ""
    runtime_version: Annotated[str, 3] = ""
    registration_timeout_ms: Annotated[int, 4] = 0
    request_timeout_ms: Annotated[int, 5] = 0
    nri_version: Annotated[str, 6] = ""


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """What the runtime does when the plugin dies or is late in a call. NRI before 0.12.4 does not read it: it goes on without."""

    fail_request: Annotated[bool, 1] = False
    keep_connected: Annotated[bool, 2] = False


@dataclass(frozen=True, slots=True)
class ConfigureResponse:
    """What the plugin wants to be told of; no bit at all would mean everything."""

    events: Annotated[int, 2] = 0
    failure_policy: Annotated[FailurePolicy | None, 3] = None


# Pods and containers.


@dataclass(frozen=True, slots=True)
class PodSandbox:
    """A pod as the runtime knows it: annotations are those of the moment at which its sandbox was made."""

    id: Annotated[str, 1] = ""
    name: Annotated[str, 2] = ""
    uid: Annotated[str, 3] = ""
    namespace: Annotated[str, 4] = ""
    annotations: Annotated[Mapping[str, str], 6] = field(default_factory=dict)
    runtime_handler: Annotated[str, 7] = ""  # empty: the default one


@dataclass(frozen=True, slots=True)
class OptionalNumber:
    """A number that may be absent: there, even if 0, when the message is there."""

    value: Annotated[int, 1] = 0


@dataclass(frozen=True, slots=True)
class LinuxDevice:
    """A device node in the container; `type` is `c` or `b`. A path that begins with `-` takes one away."""

    path: Annotated[str, 1] = ""
    type: Annotated[str, 2] = ""
    major: Annotated[int, 3] = 0
    minor: Annotated[int, 4] = 0
    file_mode: Annotated[OptionalNumber | None, 5] = None
    uid: Annotated[OptionalNumber | None, 6] = None
    gid: Annotated[OptionalNumber | None, 7] = None


@dataclass(frozen=True, slots=True)
class DeviceRule:
    """Which devices a container may use: with no type and numbers, all of them."""

    allow: Annotated[bool, 1] = False
    type: Annotated[str, 2] = ""
    major: Annotated[OptionalNumber | None, 3] = None
    minor: Annotated[OptionalNumber | None, 4] = None

    @property
    def is_all(self) -> bool:
        return self.type in ("", "a") and self.major is None and self.minor is None


@dataclass(frozen=True, slots=True)
class LinuxResources:
    """What the container's cgroup allows."""

    devices: Annotated[tuple[DeviceRule, ...], 7] = ()


@dataclass(frozen=True, slots=True)
class LinuxContainer:
    """The part of a container that only Linux has."""

    devices: Annotated[tuple[LinuxDevice, ...], 2] = ()
    resources: Annotated[LinuxResources | None, 3] = None


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount in the container. A destination that begins with `-` takes one away."""

    destination: Annotated[str, 1] = ""
    type: Annotated[str, 2] = ""
    source: Annotated[str, 3] = ""
    options: Annotated[tuple[str, ...], 4] = ()


@dataclass(frozen=True, slots=True)
class Container:
    """A container as the runtime knows it, with what earlier plugins have done to it."""

    id: Annotated[str, 1] = ""
    pod_sandbox_id: Annotated[str, 2] = ""
    name: Annotated[str, 3] = ""
    state: Annotated[int, 4] = State.UNKNOWN
    annotations: Annotated[Mapping[str, str], 6] = field(default_factory=dict)
    env: Annotated[tuple[str, ...], 8] = ()  # NAME=value
    mounts: Annotated[tuple[Mount, ...], 9] = ()
    linux: Annotated[LinuxContainer | None, 11] = None

    @property
    def environment(self) -> dict[str, str]:
        """The variables by name; of two with one name the later one, as programs see it."""
        return {name: value for name, _, value in (line.partition("=") for line in self.env)}

    @property
    def devices(self) -> tuple[LinuxDevice, ...]:
        return self.linux.devices if self.linux is not None else ()

    @property
    def privileged(self) -> bool:
        """It may use every device of the host."""
        rules = self.linux.resources.devices if self.linux is not None and self.linux.resources is not None else ()
        return any(rule.allow and rule.is_all for rule in rules)


# What a plugin adds to a container.


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One variable. A key that begins with `-` takes it away."""

    key: Annotated[str, 1] = ""
    value: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """A device by its CDI name; runtimes without CDI for plugins leave it out without a word."""

    name: Annotated[str, 1] = ""


@dataclass(frozen=True, slots=True)
class LinuxAdjustment:
    """The part of an adjustment that only Linux has."""

    devices: Annotated[tuple[LinuxDevice, ...], 1] = ()


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What is added to a container. A variable or device of the pod's own with the same name is replaced."""

    annotations: Annotated[Mapping[str, str], 2] = field(default_factory=dict)
    mounts: Annotated[tuple[Mount, ...], 3] = ()
    env: Annotated[tuple[KeyValue, ...], 4] = ()
    linux: Annotated[LinuxAdjustment | None, 6] = None
    cdi_devices: Annotated[tuple[CdiDevice, ...], 8] = ()

    @property
    def devices(self) -> tuple[LinuxDevice, ...]:
        return self.linux.devices if self.linux is not None else ()


def adjustment(
    *,
    env: Mapping[str, str] | None = None,
    devices: Iterable[LinuxDevice] = (),
    mounts: Iterable[Mount] = (),
    cdi_devices: Iterable[str] = (),
    annotations: Mapping[str, str] | None = None,
) -> Adjustment:
    """An adjustment in plain values."""
    nodes = tuple(devices)
    return Adjustment(
        annotations=dict(annotations or {}),
        mounts=tuple(mounts),
        env=tuple(KeyValue(key, value) for key, value in (env or {}).items()),
        linux=LinuxAdjustment(nodes) if nodes else None,
        cdi_devices=tuple(CdiDevice(name) for name in cdi_devices),
    )


# Calls of the runtime.


@dataclass(frozen=True, slots=True)
class SynchronizeRequest:
    """All pods and containers, or with `more` a part of them."""

    pods: Annotated[tuple[PodSandbox, ...], 1] = ()
    containers: Annotated[tuple[Container, ...], 2] = ()
    more: Annotated[bool, 3] = False


@dataclass(frozen=True, slots=True)
class SynchronizeResponse:
    """Says `more` again, so that the runtime knows that the plugin understands parts."""

    more: Annotated[bool, 2] = False


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """A pod and one of its containers: CreateContainer, StartContainer and the other calls about one container."""

    pod: Annotated[PodSandbox | None, 1] = None
    container: Annotated[Container | None, 2] = None


@dataclass(frozen=True, slots=True)
class CreateContainerResponse:
    """How the container is to be made."""

    adjust: Annotated[Adjustment | None, 1] = None


@dataclass(frozen=True, slots=True)
class ValidationRequest:
    """A container as its pod asked for it, and everything that plugins want to add to it."""

    pod: Annotated[PodSandbox | None, 1] = None
    container: Annotated[Container | None, 2] = None
    adjust: Annotated[Adjustment | None, 3] = None


@dataclass(frozen=True, slots=True)
class ValidationResponse:
    """Whether it must not be made so, and why."""

    reject: Annotated[bool, 1] = False
    reason: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True)
class StateChange:
    """Any other event, as runtimes with NRI before 0.12 tell it."""

    event: Annotated[int, 1] = 0
    pod: Annotated[PodSandbox | None, 2] = None
    container: Annotated[Container | None, 3] = None
