"""The plugin's side of NRI: each call of the runtime, answered.

Belongs here: which messages a call has, which events are wanted, and the deadline. Never: sockets, what a container gets.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from accelshare.agent.nri.errors import Code, StatusError
from accelshare.agent.nri.handler import Handler, Refuse
from accelshare.agent.nri.messages import (
    PLUGIN_SERVICE,
    Adjustment,
    ConfigureRequest,
    ConfigureResponse,
    Container,
    ContainerRequest,
    CreateContainerResponse,
    Event,
    FailurePolicy,
    PodSandbox,
    StateChange,
    SynchronizeRequest,
    SynchronizeResponse,
    mask,
)
from accelshare.agent.nri.protobuf import decode, encode
from accelshare.agent.nri.ttrpc import Request

# A runtime that fails requests without the plugin does so for every event that the plugin wants. So no others are wanted:
# a container must always be free to end.
WANTED: Final = (Event.CREATE_CONTAINER, Event.START_CONTAINER)
POLICY: Final = FailurePolicy(fail_request=True, keep_connected=True)

DEFAULT_TIMEOUT_S: Final = 2.0  # what runtimes have if nobody configured them otherwise
# A runtime that has waited for its whole time makes the container without us; an error before that makes it refuse.
PATIENCE: Final = 0.75
MOST_LISTED: Final = 100_000  # pods and containers of one node, over all parts of a list

# Calls that come only if wanted, or ask nothing: an empty answer is the right one.
NOT_OURS: Final = (
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
    "ValidateContainerAdjustment",
)

Ask = Callable[[Callable[[], Any]], Awaitable[Any]]  # where a handler's functions are called


class Plugin:
    """Answers one runtime, from its Configure to the end of the connection."""

    def __init__(self, name: str, handler: Handler, ask: Ask) -> None:
        self._name = name
        self._handler = handler
        self._ask = ask
        self._timeout_s = DEFAULT_TIMEOUT_S
        self._pods: list[PodSandbox] = []
        self._containers: list[Container] = []
        self.runtime = ConfigureRequest()
        self.synchronized = asyncio.Event()
        self._methods: Mapping[str, Callable[[bytes], Awaitable[bytes]]] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "CreateContainer": self._create_container,
            "StartContainer": self._start_container,
            "StateChange": self._state_change,
            **dict.fromkeys(NOT_OURS, _nothing),
        }

    async def answer(self, request: Request) -> bytes:
        """The answer's bytes, or a StatusError, before the runtime loses patience."""
        method = self._methods.get(request.method)
        if request.service != PLUGIN_SERVICE or method is None:
            raise StatusError(Code.UNIMPLEMENTED, f"{self._name}: {request.service}/{request.method} is not known here")
        limit_s = self._limit_s(request)
        try:
            async with asyncio.timeout(limit_s):
                return await method(request.payload)
        except Refuse as refusal:
            raise StatusError(Code.UNKNOWN, str(refusal)) from refusal
        except TimeoutError as error:
            text = f"{self._name}: {request.method}: no answer within {limit_s:g} s"
            raise StatusError(Code.DEADLINE_EXCEEDED, text) from error

    def _limit_s(self, request: Request) -> float:
        """The shorter of what the runtime said once and what it says of this call."""
        asked_s = request.timeout_ns / 1e9 if request.timeout_ns > 0 else self._timeout_s
        return PATIENCE * min(asked_s, self._timeout_s)

    async def _configure(self, payload: bytes) -> bytes:
        self.runtime = decode(ConfigureRequest, payload)
        if self.runtime.request_timeout_ms > 0:
            self._timeout_s = self.runtime.request_timeout_ms / 1000
        return encode(ConfigureResponse(events=mask(WANTED), failure_policy=POLICY))

    async def _synchronize(self, payload: bytes) -> bytes:
        request = decode(SynchronizeRequest, payload)
        self._pods += request.pods
        self._containers += request.containers
        if len(self._pods) + len(self._containers) > MOST_LISTED:
            raise StatusError(Code.RESOURCE_EXHAUSTED, f"{self._name}: more than {MOST_LISTED} pods and containers")
        if not request.more:
            pods, self._pods = tuple(self._pods), []
            containers, self._containers = tuple(self._containers), []
            await self._ask(lambda: self._handler.synchronize(pods, containers))
            self.synchronized.set()
        return encode(SynchronizeResponse(more=request.more))

    async def _create_container(self, payload: bytes) -> bytes:
        pod, container = self._subject("CreateContainer", decode(ContainerRequest, payload))
        given: object = await self._ask(lambda: self._handler.create_container(pod, container))
        if not isinstance(given, Adjustment):  # else it would count as: nothing is needed
            raise TypeError(f"the handler answered {given!r} instead of an Adjustment")
        return encode(CreateContainerResponse(adjust=given))

    async def _start_container(self, payload: bytes) -> bytes:
        pod, container = self._subject("StartContainer", decode(ContainerRequest, payload))
        await self._ask(lambda: self._handler.start_container(pod, container))
        return b""

    async def _state_change(self, payload: bytes) -> bytes:
        change = decode(StateChange, payload)
        if change.event == Event.START_CONTAINER:
            pod, container = self._subject("StartContainer", ContainerRequest(change.pod, change.container))
            await self._ask(lambda: self._handler.start_container(pod, container))
        return b""

    def _subject(self, method: str, request: ContainerRequest) -> tuple[PodSandbox, Container]:
        if request.pod is None or request.container is None:
            missing = "pod" if request.pod is None else "container"
            raise StatusError(Code.INVALID_ARGUMENT, f"{self._name}: {method} names no {missing}")
        return request.pod, request.container


async def _nothing(_payload: bytes) -> bytes:
    return b""
