"""A fake container runtime for the demo and the tests: it serves NRI as containerd does, and runs no containers.

Belongs here: the runtime's side of NRI, and how runtimes behave there: they register plugins one after the other, make one call
at a time, create a container without a plugin that is absent, dead or late, and let validators refuse such a container. Never:
containers; what each would have been is kept instead.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml
from google.protobuf.message import Message

from accelshare.agent.nri.protocol import mux
from accelshare.agent.nri.protocol.errors import Code, NriError, StatusError
from accelshare.agent.nri.protocol.link import Link
from accelshare.agent.nri.protocol.messages import PLUGIN_SERVICE, RUNTIME_SERVICE, decode, environment, event_mask
from accelshare.agent.nri.protocol.nri_pb2 import (
    ConfigureRequest,
    ConfigureResponse,
    Container,
    ContainerAdjustment,
    ContainerState,
    ContainerUpdate,
    CreateContainerRequest,
    CreateContainerResponse,
    Event,
    FailurePolicy,
    LinuxDevice,
    Mount,
    PodSandbox,
    RegisterPluginRequest,
    StateChangeEvent,
    SynchronizeRequest,
    SynchronizeResponse,
    UpdateContainersRequest,
    UpdateContainersResponse,
    ValidateContainerAdjustmentRequest,
    ValidateContainerAdjustmentResponse,
)
from accelshare.agent.nri.protocol.ttrpc_pb2 import Request
from accelshare.testing.runtime_adjustments import Claims, ConflictError, adjusted, combined, mounted

log = logging.getLogger(__name__)
REQUIRED_PLUGINS: Final = "required-plugins.noderesource.dev"
REGISTRATION_S: Final = 5.0
CREATE_FAILED: Final = "failed to get NRI adjustment for container"
START_FAILED: Final = "NRI container start failed"
VALIDATE: Final = Event.VALIDATE_CONTAINER_ADJUSTMENT
ALL_EVENTS: Final = tuple(event for event in Event.values() if event != Event.UNKNOWN)


class RuntimeRefusalError(Exception):
    """The container was not created or not started; the text is what kubelet gets."""


@dataclass(frozen=True, slots=True)
class RuntimeFeatures:
    """How runtimes differ."""

    name: str = "fake"
    version: str = "v0.0.0"
    request_timeout_s: float = 2.0
    validator: bool = False  # the default validator: refuses a container whose pod requires an absent plugin
    asks_validators: bool = True  # NRI 0.10; an older runtime closes the connection of a plugin that subscribes to it
    call_per_event: bool = True  # NRI 0.12; an older runtime sends most events as StateChange
    reads_failure_policy: bool = False  # NRI 0.12.4
    part: int = 0  # containers in one part of Synchronize; 0: all in one


@dataclass(frozen=True, slots=True)
class FakeContainer:
    """A container as it would be: the pod's specification with the plugins' adjustments."""

    pod: PodSandbox
    container: Container
    mounts: tuple[Mount, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    adjusted_by: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.container)

    @property
    def devices(self) -> list[LinuxDevice]:
        return list(self.container.linux.devices)


@dataclass(slots=True)
class _ConnectedPlugin:
    """A plugin that has registered."""

    link: Link
    name: str = ""
    index: str = ""
    events: int = 0
    policy: FailurePolicy = field(default_factory=FailurePolicy)

    @property
    def shown(self) -> str:
        return f"{self.index}-{self.name}"

    def wants(self, event: int) -> bool:
        return self.events == 0 or bool(self.events & event_mask([event]))


class FakeRuntime:
    """`async with FakeRuntime(socket) as runtime:` accepts plugins; leave and enter again for a restart."""

    def __init__(self, socket: Path, features: RuntimeFeatures | None = None, *, cgroups: Path | None = None) -> None:
        """`cgroups`: a directory that stands for the host's cgroup v2 tree; containers get their groups there."""
        self._socket = socket
        self._cgroups = cgroups
        self._features = features or RuntimeFeatures()
        self._server: asyncio.Server | None = None
        self._registering = asyncio.Lock()  # one plugin after the other
        self._calling = asyncio.Lock()  # one call at a time
        self._changed = asyncio.Condition()
        self._serving: set[asyncio.Task[None]] = set()
        self._plugins: list[_ConnectedPlugin] = []
        self.pods: dict[str, PodSandbox] = {}
        self.containers: dict[str, FakeContainer] = {}
        self.refuses_updates = False  # it changes no container that exists

    async def __aenter__(self) -> "FakeRuntime":
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        self._server = await asyncio.get_running_loop().create_unix_server(self._accept, str(self._socket))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        self._socket.unlink(missing_ok=True)

    # Plugins.

    @property
    def plugins(self) -> tuple[str, ...]:
        """The connected plugins in the order in which they are called, as `10-name`."""
        return tuple(plugin.shown for plugin in self._plugins)

    @property
    def wanted(self) -> tuple[set[int], ...]:
        """The events that each plugin subscribed to."""
        return tuple({event for event in ALL_EVENTS if plugin.wants(event)} for plugin in self._plugins)

    async def until_plugins(self, count: int = 1) -> None:
        """Wait until this many plugins are connected."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._plugins) == count)

    def cut(self) -> None:
        """End all connections, as if the runtime had crashed; new ones are accepted."""
        for plugin in self._plugins:
            plugin.link.close()

    def _accept(self) -> Link:
        registered: asyncio.Future[RegisterPluginRequest] = asyncio.get_running_loop().create_future()

        def register(request: Request) -> bytes:
            if (request.service, request.method) == (RUNTIME_SERVICE, "UpdateContainers"):
                return self._update(decode(UpdateContainersRequest, request.payload)).SerializeToString()
            if (request.service, request.method) != (RUNTIME_SERVICE, "RegisterPlugin"):
                raise StatusError(Code.UNIMPLEMENTED, f"{request.method} is not implemented")
            registration = decode(RegisterPluginRequest, request.payload)
            if len(registration.plugin_idx) != 2 or not registration.plugin_idx.isdigit():
                raise StatusError(Code.UNKNOWN, f"invalid plugin index {registration.plugin_idx!r}: it must be two digits")
            if not registered.done():
                registered.set_result(registration)
            return b""

        link = Link(serves=mux.RUNTIME, calls=mux.PLUGIN, handler=register)
        task = asyncio.create_task(self._serve(link, registered))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return link

    async def _serve(self, link: Link, registered: "asyncio.Future[RegisterPluginRequest]") -> None:
        running = asyncio.create_task(link.run())
        plugin = _ConnectedPlugin(link)
        try:
            async with self._registering:
                registration = await _registration(registered, running)
                plugin.name, plugin.index = registration.plugin_name, registration.plugin_idx
                await self._configure(plugin)
                async with self._calling:
                    await self._synchronize(plugin)
                    await self._add(plugin)
            await asyncio.shield(running)
        except NriError as error:
            log.info("plugin name=%s outcome=disconnected error=%r", plugin.shown, f"{type(error).__name__} {error}")
        finally:
            link.close()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, NriError):
                await running
            await self._drop(plugin)

    async def _configure(self, plugin: _ConnectedPlugin) -> None:
        features = self._features
        request = ConfigureRequest(
            runtime_name=features.name,
            runtime_version=features.version,
            registration_timeout_ms=int(REGISTRATION_S * 1000),
            request_timeout_ms=int(features.request_timeout_s * 1000),
        )
        response = decode(ConfigureResponse, await self._call(plugin, "Configure", request))
        unknown = response.events & ~event_mask(event for event in ALL_EVENTS if features.asks_validators or event != VALIDATE)
        if unknown:
            raise NriError(f"invalid plugin events: {unknown:#x}")
        plugin.events = response.events
        if features.reads_failure_policy:
            plugin.policy = response.failure_policy

    async def _synchronize(self, plugin: _ConnectedPlugin) -> None:
        for part in self._parts():
            response = decode(SynchronizeResponse, await self._call(plugin, "Synchronize", part))
            if response.more != part.more:
                raise NriError(f"{plugin.shown} does not support Synchronize in parts")

    def _parts(self) -> Iterator[SynchronizeRequest]:
        pods = tuple(self.pods.values())
        containers = tuple(made.container for made in self.containers.values())
        size = self._features.part or max(len(pods), len(containers), 1)
        rounds = max(-(-max(len(pods), len(containers)) // size), 1)
        for i in range(rounds):
            window = slice(i * size, (i + 1) * size)
            yield SynchronizeRequest(pods=pods[window], containers=containers[window], more=i + 1 < rounds)

    async def _add(self, plugin: _ConnectedPlugin) -> None:
        self._plugins = sorted([*self._plugins, plugin], key=lambda one: one.index)
        async with self._changed:
            self._changed.notify_all()

    async def _drop(self, plugin: _ConnectedPlugin) -> None:
        self._plugins = [one for one in self._plugins if one is not plugin]
        async with self._changed:
            self._changed.notify_all()

    async def _call(self, plugin: _ConnectedPlugin, method: str, message: Message) -> bytes:
        raw = message.SerializeToString()
        return await plugin.link.call(PLUGIN_SERVICE, method, raw, timeout_s=self._features.request_timeout_s)

    # Pods and containers.

    def run_pod(self, pod: PodSandbox) -> None:
        """Create a pod sandbox; its annotations never change."""
        self.pods[pod.id] = pod

    async def create_container(self, pod_id: str, container: Container) -> FakeContainer:
        """Create a container with the plugins' adjustments; RuntimeRefusalError with kubelet's text if one refuses."""
        async with self._calling:
            pod = self.pods[pod_id]
            requested = _copy(container)
            requested.pod_sandbox_id, requested.state = pod_id, ContainerState.CONTAINER_CREATED
            if self._cgroups is not None:
                requested.linux.cgroups_path = f"{pod.linux.cgroup_parent}/{container.id}"
            made, adjustments = FakeContainer(pod, requested), list[ContainerAdjustment]()
            claims: Claims = {}
            # A plugin that dies in the call counts as present, for the runtime's own validator and for plugins that validate:
            # both use the list from the beginning of the call.
            present = list(self._plugins)
            for plugin in present:
                if plugin.wants(Event.CREATE_CONTAINER):
                    request = CreateContainerRequest(pod=pod, container=made.container)
                    response = await self._ask(plugin, "CreateContainer", request, CREATE_FAILED)
                    if response is not None:
                        adjustments.append(decode(CreateContainerResponse, response).adjust)
                        made = _applied(made, adjustments[-1], plugin, claims)
            self._validate(made, present)
            validation = ValidateContainerAdjustmentRequest(pod=pod, container=requested, adjust=combined(adjustments))
            await asyncio.gather(*(self._ask_validator(plugin, validation) for plugin in present if plugin.wants(VALIDATE)))
            self._make_group(made.container)
            self.containers[container.id] = made
            return made

    async def start_container(self, container_id: str) -> FakeContainer:
        """Start a container; RuntimeRefusalError with kubelet's text if a plugin refuses."""
        async with self._calling:
            made = self.containers[container_id]
            for plugin in list(self._plugins):
                if plugin.wants(Event.START_CONTAINER):
                    try:
                        await self._notify_start(plugin, made)
                    except RuntimeRefusalError:
                        self._set_state(container_id, ContainerState.CONTAINER_STOPPED)
                        raise
            return self._set_state(container_id, ContainerState.CONTAINER_RUNNING)

    def remove_pod(self, pod_id: str) -> None:
        """Remove the pod and its containers."""
        self.pods.pop(pod_id, None)
        self.containers = {name: made for name, made in self.containers.items() if made.pod.id != pod_id}

    async def _notify_start(self, plugin: _ConnectedPlugin, made: FakeContainer) -> None:
        change = StateChangeEvent(event=Event.START_CONTAINER, pod=made.pod, container=made.container)
        if not self._features.call_per_event:
            await self._ask(plugin, "StateChange", change, START_FAILED)
            return
        request = CreateContainerRequest(pod=made.pod, container=made.container)
        try:
            await self._ask(plugin, "StartContainer", request, START_FAILED, pass_on=Code.UNIMPLEMENTED)
        except StatusError:
            await self._ask(plugin, "StateChange", change, START_FAILED)

    async def _ask(
        self, plugin: _ConnectedPlugin, method: str, message: Message, failed: str, *, pass_on: Code | None = None
    ) -> bytes | None:
        """The plugin's response; None if it failed; like real runtimes, the fake one then continues without it."""
        try:
            return await self._call(plugin, method, message)
        except StatusError as error:
            if error.code == pass_on:
                raise
            raise RuntimeRefusalError(f"{failed}: rpc error: code = Unknown desc = {error.text}") from error
        except NriError as error:
            if not plugin.policy.keep_connected:
                plugin.link.close()
                await self._drop(plugin)
            if plugin.policy.fail_request:
                raise RuntimeRefusalError(f"{failed}: {error}") from error
            log.warning("%s plugin=%s outcome=skipped error=%r", method, plugin.shown, str(error))
            return None

    async def _ask_validator(self, plugin: _ConnectedPlugin, request: ValidateContainerAdjustmentRequest) -> None:
        """Ask a plugin to validate; a plugin that fails to respond refuses."""
        try:
            response = await self._call(plugin, "ValidateContainerAdjustment", request)
            judged = decode(ValidateContainerAdjustmentResponse, response)
        except NriError as error:
            if not isinstance(error, StatusError):
                plugin.link.close()
                await self._drop(plugin)
            raise RuntimeRefusalError(f"{CREATE_FAILED}: validator plugin {plugin.shown} failed: {error}") from error
        if judged.reject:
            rejected = f'validator "{plugin.shown}" rejected container adjustment'
            raise RuntimeRefusalError(f"{CREATE_FAILED}: {rejected}, reason: {judged.reason}")

    def _validate(self, made: FakeContainer, present: list[_ConnectedPlugin]) -> None:
        if not self._features.validator:
            return
        there = {name for plugin in present for name in (plugin.name, plugin.shown)}
        for name in _required(made):
            if name not in there:
                raise RuntimeRefusalError(
                    f'{CREATE_FAILED}: validator "00-default-validator" rejected container adjustment, '
                    f'reason: validation error: required plugin "{name}" not present'
                )

    def _make_group(self, container: Container) -> None:
        """Create the container's cgroup, as runc does: the files of its controllers are there, with what plugins set."""
        if self._cgroups is None:
            return
        group = self._cgroups / container.linux.cgroups_path.removeprefix("/")
        group.mkdir(parents=True, exist_ok=True)
        controllers = self._cgroups / "cgroup.controllers"  # absent: cgroup v1
        if controllers.exists() and "dmem" in controllers.read_text().split():
            (group / "dmem.max").write_text("")
            (group / "dmem.current").touch()
        for name, text in container.linux.resources.unified.items():
            if not (group / name).exists():
                controller = name.partition(".")[0]
                raise RuntimeRefusalError(f'cannot set {name}: controller "{controller}" not available')
            (group / name).write_text(text + "\n")

    def _update(self, request: UpdateContainersRequest) -> UpdateContainersResponse:
        """Change living containers, in their cgroups and in what is kept of them."""
        failed = [update for update in request.update if not self._update_one(update)]
        return UpdateContainersResponse(failed=failed)

    def _update_one(self, update: ContainerUpdate) -> bool:
        made = self.containers.get(update.container_id)
        if made is None or self.refuses_updates:
            return False
        container = _copy(made.container)
        container.linux.resources.unified.update(update.linux.resources.unified)
        self.containers[update.container_id] = replace(made, container=container)
        self._make_group(container)
        return True

    def _set_state(self, container_id: str, state: ContainerState) -> FakeContainer:
        made = self.containers[container_id]
        container = _copy(made.container)
        container.state = state
        changed = replace(made, container=container)
        self.containers[container_id] = changed
        return changed


def _copy(container: Container) -> Container:
    copy = Container()
    copy.CopyFrom(container)
    return copy


async def _registration(
    registered: asyncio.Future[RegisterPluginRequest], running: asyncio.Future[None]
) -> RegisterPluginRequest:
    """The plugin's RegisterPlugin call; NriError if it disconnects or does not register in time."""
    waiting: set[asyncio.Future[Any]] = {registered, running}
    await asyncio.wait(waiting, timeout=REGISTRATION_S, return_when=asyncio.FIRST_COMPLETED)
    if not registered.done():
        raise NriError("the plugin did not register")
    return registered.result()


def _applied(made: FakeContainer, adjustment: ContainerAdjustment, plugin: _ConnectedPlugin, claims: Claims) -> FakeContainer:
    try:
        container = adjusted(made.container, adjustment, plugin.shown, claims)
    except ConflictError as error:
        raise RuntimeRefusalError(f"{CREATE_FAILED}: {error}") from error
    named = tuple(device.name for device in adjustment.cdi_devices)
    by = () if adjustment == ContainerAdjustment() else (plugin.shown,)
    return replace(
        made,
        container=container,
        mounts=mounted(made.mounts, adjustment),
        cdi_devices=made.cdi_devices + named,
        adjusted_by=made.adjusted_by + by,
    )


def _required(made: FakeContainer) -> list[str]:
    """The plugins that the pod requires for this container; like the default validator, read the narrowest annotation first."""
    for key in (f"{REQUIRED_PLUGINS}/container.{made.container.name}", f"{REQUIRED_PLUGINS}/pod", REQUIRED_PLUGINS):
        if key in made.pod.annotations:
            return [str(name) for name in yaml.safe_load(made.pod.annotations[key]) or ()]
    return []
