"""The plugin's side of NRI: answers each call of the runtime by asking a Handler what the container gets.

Belongs here: which messages a call has, how long a runtime waits for its answer, the Handler's interface and how it refuses.
Never: sockets, what a container gets.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from accelshare.agent.nri.protocol.errors import Code, StatusError
from accelshare.agent.nri.protocol.messages import PLUGIN_SERVICE, decode, event_mask
from accelshare.agent.nri.protocol.nri_pb2 import (
    ConfigureRequest,
    ConfigureResponse,
    Container,
    ContainerAdjustment,
    CreateContainerRequest,
    CreateContainerResponse,
    Event,
    FailurePolicy,
    PodSandbox,
    StateChangeEvent,
    SynchronizeRequest,
    SynchronizeResponse,
    ValidateContainerAdjustmentRequest,
    ValidateContainerAdjustmentResponse,
)
from accelshare.agent.nri.protocol.ttrpc_pb2 import Request
from accelshare.terminal import visible


class Refuse(Exception):  # noqa: N818 – reads as the act in a handler: raise Refuse("…")
    """The container must not be created or started. The text, made printable, reaches kubelet and the pod's events."""

    def __init__(self, text: str) -> None:
        super().__init__(visible(text))


class Handler(Protocol):
    """Decides what containers get. Called on the connection's thread, one call at a time; it must answer from memory or within a
    short time limit of its own, because the runtime creates no container of the node meanwhile.
    """

    def synchronize(self, pods: Sequence[PodSandbox], containers: Sequence[Container]) -> None:
        """All pods and containers of the node, on each connection before any other call."""
        ...

    def create_container(self, pod: PodSandbox, container: Container) -> ContainerAdjustment:
        """What this container gets; may raise Refuse."""
        ...

    def validate_container(self, pod: PodSandbox, container: Container, adjust: ContainerAdjustment) -> None:
        """The final check: the container as its pod specifies it, and the adjustments of all plugins; may raise Refuse."""
        ...

    def start_container(self, pod: PodSandbox, container: Container) -> None:
        """The container is about to start, with its adjustments; may raise Refuse."""
        ...


# The events to subscribe to, by the runtime's name and version. With the failure policy below, the runtime fails each of these
# events while the plugin is away. So never subscribe to a container's end: it must always be able to stop.
EventSelector = Callable[[str, str], Iterable[Event]]
POLICY: Final = FailurePolicy(fail_request=True, keep_connected=True)

DEFAULT_TIMEOUT_S: Final = 2.0  # the default of runtimes
# After its timeout a runtime creates the container without us; an error before that makes it refuse the container.
SHARE_OF_TIMEOUT: Final = 0.75
MOST_LISTED: Final = 100_000  # pods and containers of one node, over all parts of a list

# Calls about events that we do not subscribe to, or that need no decision: the response is empty.
IGNORED_CALLS: Final = (
    "Shutdown",
    "RunPodSandbox",
    "UpdatePodSandbox",
    "PostUpdatePodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "PostCreateContainer",
    "PostStartContainer",
    "UpdateContainer",
    "PostUpdateContainer",
    "StopContainer",
    "RemoveContainer",
)


def creation_and_start(_runtime_name: str, _runtime_version: str) -> tuple[Event, ...]:
    """The events that every runtime has."""
    return (Event.CREATE_CONTAINER, Event.START_CONTAINER)


class NriPlugin:
    """Answers one runtime, from its Configure to the end of the connection."""

    def __init__(self, name: str, handler: Handler, select_events: EventSelector = creation_and_start) -> None:
        self._name = name
        self._handler = handler
        self._select_events = select_events
        self._timeout_s = DEFAULT_TIMEOUT_S
        self._pods: list[PodSandbox] = []
        self._containers: list[Container] = []
        self.runtime = ConfigureRequest()
        self.synchronized = asyncio.Event()
        self._methods: Mapping[str, Callable[[bytes], bytes]] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "CreateContainer": self._create_container,
            # The last call of creating a container: a plugin that died or was late before it cannot answer it.
            "ValidateContainerAdjustment": self._validate_container,
            "StartContainer": self._start_container,
            "StateChange": self._state_change,
            **dict.fromkeys(IGNORED_CALLS, _nothing),
        }

    def answer(self, request: Request) -> bytes:
        """The response's payload, or a StatusError."""
        method = self._methods.get(request.method)
        if request.service != PLUGIN_SERVICE or method is None:
            raise StatusError(Code.UNIMPLEMENTED, f"{self._name}: {request.service}/{request.method} is not implemented")
        try:
            return method(request.payload)
        except Refuse as refusal:
            raise StatusError(Code.UNKNOWN, str(refusal)) from refusal

    def time_limit(self, request: Request) -> tuple[float, StatusError]:
        """How long an answer may take, by the shorter timeout of runtime and call; and the error to send after that."""
        asked_s = request.timeout_nano / 1e9 if request.timeout_nano > 0 else self._timeout_s
        limit_s = SHARE_OF_TIMEOUT * min(asked_s, self._timeout_s)
        return limit_s, StatusError(Code.DEADLINE_EXCEEDED, f"{self._name}: {request.method}: no answer within {limit_s:g} s")

    def _configure(self, payload: bytes) -> bytes:
        self.runtime = decode(ConfigureRequest, payload)
        if self.runtime.request_timeout_ms > 0:
            self._timeout_s = self.runtime.request_timeout_ms / 1000
        events = event_mask(self._select_events(self.runtime.runtime_name, self.runtime.runtime_version))
        return ConfigureResponse(events=events, failure_policy=POLICY).SerializeToString()

    def _synchronize(self, payload: bytes) -> bytes:
        request = decode(SynchronizeRequest, payload)
        if len(self._pods) + len(self._containers) + len(request.pods) + len(request.containers) > MOST_LISTED:
            raise StatusError(Code.RESOURCE_EXHAUSTED, f"{self._name}: more than {MOST_LISTED} pods and containers")
        self._pods += request.pods
        self._containers += request.containers
        if not request.more:
            pods, self._pods = tuple(self._pods), []
            containers, self._containers = tuple(self._containers), []
            self._handler.synchronize(pods, containers)
            self.synchronized.set()
        return SynchronizeResponse(more=request.more).SerializeToString()

    def _create_container(self, payload: bytes) -> bytes:
        request = decode(CreateContainerRequest, payload)
        self._require_both("CreateContainer", request)
        adjust: object = self._handler.create_container(request.pod, request.container)
        if not isinstance(adjust, ContainerAdjustment):  # an empty response would create the container unchanged
            raise TypeError(f"the handler returned {adjust!r} instead of a ContainerAdjustment")
        return CreateContainerResponse(adjust=adjust).SerializeToString()

    def _validate_container(self, payload: bytes) -> bytes:
        request = decode(ValidateContainerAdjustmentRequest, payload)
        self._require_both("ValidateContainerAdjustment", request)
        try:
            self._handler.validate_container(request.pod, request.container, request.adjust)
        except Refuse as refusal:
            return ValidateContainerAdjustmentResponse(reject=True, reason=str(refusal)).SerializeToString()
        return b""

    def _start_container(self, payload: bytes) -> bytes:
        self._start("StartContainer", decode(CreateContainerRequest, payload))
        return b""

    def _state_change(self, payload: bytes) -> bytes:
        change = decode(StateChangeEvent, payload)
        if change.event == Event.START_CONTAINER:
            self._start("StateChange", change)
        return b""

    def _start(self, method: str, request: CreateContainerRequest | StateChangeEvent) -> None:
        self._require_both(method, request)
        self._handler.start_container(request.pod, request.container)

    def _require_both(
        self, method: str, request: CreateContainerRequest | ValidateContainerAdjustmentRequest | StateChangeEvent
    ) -> None:
        for part in ("pod", "container"):
            if not request.HasField(part):
                raise StatusError(Code.INVALID_ARGUMENT, f"{self._name}: {method} names no {part}")


def _nothing(_payload: bytes) -> bytes:
    return b""
