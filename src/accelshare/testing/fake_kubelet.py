"""A fake kubelet for the demo and the tests: it admits pods through device plugins as kubelet does, and runs no containers.

Belongs here: kubelet's side of the device plugin and PodResources interfaces, and how it behaves there. It admits pods one
after the other in the order of its watch, and those of its first list in random order. It calls Allocate once per container and
resource, resources in random order, reuses the ids of init containers, chooses ids at random without a preferred allocation,
and lists a pod in PodResources before it is admitted. Never: containers; what each would have got is kept instead.
"""

import asyncio
import base64
import contextlib
import logging
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import msgspec

from accelshare.agent.device_plugin import checkpoint
from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as plugin_api
from accelshare.agent.device_plugin.api import kubelet_pod_resources_pb2 as resources_api
from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, NotFound
from accelshare.kube.patches import set_capacity
from accelshare.kube.watch import Gone, Reflector, Seen, Synced
from accelshare.wire.quantity import whole_number

log = logging.getLogger(__name__)
LARGEST_LIST: Final = 4 * 2**20  # kubelet's limit
Object = dict[str, Any]


class AdmissionError(Exception):
    """The pod is rejected for good, as by kubelet when a plugin fails or has too few devices."""


@dataclass(slots=True)
class RegisteredPlugin:
    """A registered device plugin and the health of its devices."""

    channel: grpc.aio.Channel
    has_preferred_allocation: bool
    has_pre_start: bool
    health: dict[str, bool] = field(default_factory=dict)
    list_and_watch: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Admitted:
    """An admitted pod: for each container its device ids by resource, and the plugins' responses."""

    uid: str
    name: str
    ids: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    responses: dict[str, list[plugin_api.ContainerAllocateResponse]] = field(default_factory=dict)
    ordinary_inits: set[str] = field(default_factory=set)

    def env(self, container: str) -> dict[str, str]:
        return {key: value for response in self.responses.get(container, ()) for key, value in response.envs.items()}

    def devices(self, container: str) -> list[str]:
        return [device.container_path for response in self.responses.get(container, ()) for device in response.devices]


class FakeKubelet:
    """`async with FakeKubelet(client, "n1", directory) as kubelet:` runs a node that admits pods."""

    def __init__(
        self,
        client: Client,
        node: str,
        directory: Path,
        *,
        preferred_allocation: bool = True,
        pod_resources_v1: bool = True,
        writes_checkpoint: bool = False,
        calls_options: bool = True,
        seed: int = 0,
    ) -> None:
        """Without `preferred_allocation` and `pod_resources_v1` it is a kubelet before 1.20: it chooses ids at random and
        does not list them. Without `calls_options` it reads a plugin's options from its registration, as kubelet before 1.25.
        """
        self._calls_options = calls_options
        self._writes_checkpoint = writes_checkpoint
        self._client = client
        self._node = node
        self._plugins = directory / "device-plugins"
        self._pod_resources = directory / "pod-resources"
        self._preferred_allocation = preferred_allocation
        self._lister = f"{'v1' if pod_resources_v1 else 'v1alpha1'}.PodResourcesLister"
        self._random = random.Random(seed)  # noqa: S311 – a plugin must not rely on an order
        self._servers: list[grpc.aio.Server] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.resources: dict[str, RegisteredPlugin] = {}
        self.admitted: dict[str, Admitted] = {}
        self._in_admission: Admitted | None = None
        self.rejected: dict[str, str] = {}  # pod name → reason
        self.list_calls = 0  # of PodResources

    async def __aenter__(self) -> "FakeKubelet":
        for directory in (self._plugins, self._pod_resources):
            directory.mkdir(parents=True, exist_ok=True)
        # kubelet removes the sockets of earlier plugins when it starts.
        for socket in self._plugins.glob("*.sock"):
            socket.unlink()
        await self._serve(self._plugins, "v1beta1.Registration", "Register", self._register, plugin_api.RegisterRequest)
        await self._serve(
            self._pod_resources,
            self._lister,
            "List",
            self._list,
            resources_api.ListPodResourcesRequest,
        )
        self._tasks.append(asyncio.create_task(self._follow_pods()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in [*self._tasks, *(one.list_and_watch for one in self.resources.values() if one.list_and_watch)]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._servers:
            await server.stop(None)
        for resource in self.resources.values():
            await resource.channel.close()

    async def _serve(self, directory: Path, service: str, method: str, handle: Any, request: Any) -> None:
        handler: Any = grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=request.FromString, response_serializer=lambda message: message.SerializeToString()
        )
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        server.add_insecure_port(f"unix://{directory / 'kubelet.sock'}")
        await server.start()
        self._servers.append(server)

    # Plugins.

    async def _register(self, request: plugin_api.RegisterRequest, _context: Any) -> plugin_api.Empty:
        options = [
            ("grpc.max_receive_message_length", LARGEST_LIST),
            ("grpc.default_authority", "localhost"),
            # A connection of its own: a shared one may still wait after it failed to reach the plugin before this one.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        channel = grpc.aio.insecure_channel(f"unix://{self._plugins / request.endpoint}", options=options)
        response = request.options
        if self._calls_options:
            response = await _call(channel, "GetDevicePluginOptions", plugin_api.Empty(), plugin_api.DevicePluginOptions)
        advises = self._preferred_allocation and response.get_preferred_allocation_available
        resource = RegisteredPlugin(channel, advises, response.pre_start_required)
        self.resources[request.resource_name] = resource
        resource.list_and_watch = asyncio.create_task(self._follow_devices(request.resource_name, resource))
        return plugin_api.Empty()

    async def _follow_devices(self, name: str, resource: RegisteredPlugin) -> None:
        call: Any = resource.channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=plugin_api.ListAndWatchResponse.FromString,
        )
        try:
            async for response in call(plugin_api.Empty()):
                resource.health = {device.id: device.health == "Healthy" for device in response.devices}
                await self._publish_capacity(name, resource)
        except grpc.aio.AioRpcError as error:
            log.info("list_and_watch resource=%s outcome=ended error=%r", name, error.details())
        resource.health = dict.fromkeys(resource.health, False)
        await self._publish_capacity(name, resource)

    async def _publish_capacity(self, name: str, resource: RegisteredPlugin) -> None:
        with contextlib.suppress(NotFound):
            await set_capacity(self._client, self._node, {name: sum(resource.health.values())})

    # Pods.

    async def _follow_pods(self) -> None:
        reflector: Reflector[Object] = Reflector(
            self._client,
            "/api/v1/pods",
            decode=lambda raw: msgspec.json.decode(raw, type=Object),
            identity=lambda pod: str(pod["metadata"]["uid"]),
            params={"fieldSelector": f"spec.nodeName={self._node}"},
        )
        first_list: list[Object] | None = []
        async for change in reflector.changes():
            if isinstance(change, Seen) and first_list is not None:
                first_list.append(change.obj)
            elif isinstance(change, Synced) and first_list is not None:
                self._random.shuffle(first_list)
                for pod in first_list:
                    await self._sync(pod)
                first_list = None
            elif isinstance(change, Seen):
                await self._sync(change.obj)
            elif isinstance(change, Gone):
                self.admitted.pop(change.identity, None)

    async def _sync(self, pod: Object) -> None:
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        path = paths.pod(meta["namespace"], meta["name"])
        with contextlib.suppress(NotFound, Conflict):
            if meta.get("deletionTimestamp"):
                self.admitted.pop(uid, None)
                await self._client.request("DELETE", path, params={"gracePeriodSeconds": "0"})
            elif uid not in self.admitted and pod.get("status", {}).get("phase") == "Pending":
                name = f"{meta['namespace']}/{meta['name']}"
                try:
                    self.admitted[uid] = await self._admit(pod, name)
                    status: Object = {"phase": "Running"}
                except AdmissionError as error:
                    self.rejected[name] = str(error)
                    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": str(error)}
                self._in_admission = None
                status["startTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())  # kubelet writes it first
                body = msgspec.json.encode({"status": status})
                await self._client.request("PATCH", f"{path}/status", body=body, content_type="application/merge-patch+json")

    async def _admit(self, pod: Object, name: str) -> Admitted:
        admitted = self._in_admission = Admitted(pod["metadata"]["uid"], name)
        reusable: dict[str, list[str]] = {}
        inits = pod["spec"].get("initContainers") or []
        for container in [*inits, *pod["spec"]["containers"]]:
            resources = container.get("resources", {}).get("limits") or {}
            limits = [(name, whole_number(amount) or 0) for name, amount in resources.items() if "/" in name]
            self._random.shuffle(limits)
            for resource, amount in limits:
                if resource not in self.resources and amount:
                    raise AdmissionError(f"no plugin for {resource}")
                if amount:
                    await self._allocate(admitted, container["name"], resource, amount, reusable)
            own = admitted.ids.get(container["name"], {})
            ordinary = container in inits and container.get("restartPolicy") != "Always"
            if ordinary:
                admitted.ordinary_inits.add(container["name"])
            for resource, ids in own.items():
                # The next container may reuse the ids of an ordinary init container; a container that stays keeps its ids.
                pool = reusable.setdefault(resource, [])
                reusable[resource] = list(dict.fromkeys([*pool, *ids])) if ordinary else [i for i in pool if i not in ids]
        return admitted

    async def _allocate(self, admitted: Admitted, container: str, name: str, amount: int, reusable: dict[str, list[str]]) -> None:
        resource = self.resources[name]
        chosen = self._random.sample(reusable.get(name, []), min(amount, len(reusable.get(name, []))))
        if len(chosen) < amount:
            taken = self._taken(name) | {i for ids in admitted.ids.values() for i in ids.get(name, ())}
            free = [i for i, healthy in resource.health.items() if healthy and i not in taken]
            if len(free) + len(chosen) < amount:
                raise AdmissionError(
                    f"requested number of devices unavailable for {name}. Requested: {amount}, Available: {len(free)}"
                )
            self._random.shuffle(free)
            if resource.has_preferred_allocation:
                chosen = await self._prefer(resource, [*free, *chosen], chosen, amount)
            else:
                chosen = [*chosen, *free][:amount]
        try:
            request = plugin_api.AllocateRequest(container_requests=[plugin_api.ContainerAllocateRequest(device_ids=chosen)])
            response = await _call(resource.channel, "Allocate", request, plugin_api.AllocateResponse)
        except grpc.aio.AioRpcError as error:
            raise AdmissionError(f"Allocate failed due to {error.details()}, which is unexpected") from error
        admitted.ids.setdefault(container, {})[name] = chosen
        admitted.responses.setdefault(container, []).extend(response.container_responses)
        self._write_checkpoint(admitted)

    async def _prefer(self, resource: RegisteredPlugin, available: list[str], must: list[str], amount: int) -> list[str]:
        preference = plugin_api.ContainerPreferredAllocationRequest(
            available_device_ids=available, must_include_device_ids=must, allocation_size=amount
        )
        request = plugin_api.PreferredAllocationRequest(container_requests=[preference])
        try:
            response = await _call(resource.channel, "GetPreferredAllocation", request, plugin_api.PreferredAllocationResponse)
        except grpc.aio.AioRpcError as error:
            raise AdmissionError(f"GetPreferredAllocation failed due to {error.details()}") from error
        free = set(available)
        advised = [i for i in response.container_responses[0].device_ids if i in free]
        return advised if len(advised) == amount else [*must, *(i for i in available if i not in must)][:amount]

    async def restart(self, uid: str, container: str) -> None:
        """Restart the container with its devices. Like kubelet, call the plugin only if it requires PreStartContainer."""
        for name, ids in self.admitted[uid].ids[container].items():
            if self.resources[name].has_pre_start:
                request = plugin_api.PreStartContainerRequest(device_ids=ids)
                await _call(self.resources[name].channel, "PreStartContainer", request, plugin_api.PreStartContainerResponse)

    def _write_checkpoint(self, newest: Admitted) -> None:
        if not self._writes_checkpoint:
            return
        entries = [
            {
                "PodUID": pod.uid,
                "ContainerName": container,
                "ResourceName": name,
                "DeviceIDs": {"-1": ids},
                "AllocResp": base64.b64encode(response.SerializeToString()).decode(),
            }
            for pod in {**self.admitted, newest.uid: newest}.values()
            for container, by_resource in pod.ids.items()
            for (name, ids), response in zip(by_resource.items(), pod.responses[container], strict=False)
        ]
        registered = {name: list(resource.health) for name, resource in self.resources.items()}
        data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
        (self._plugins / checkpoint.FILE).write_bytes(msgspec.json.encode({"Data": data, "Checksum": 0}))

    def _taken(self, name: str) -> set[str]:
        return {i for pod in self.admitted.values() for ids in pod.ids.values() for i in ids.get(name, ())}

    async def _list(
        self, _request: resources_api.ListPodResourcesRequest, _context: Any
    ) -> resources_api.ListPodResourcesResponse:
        response = resources_api.ListPodResourcesResponse()
        self.list_calls += 1
        for pod in (*self.admitted.values(), *([self._in_admission] if self._in_admission else [])):
            namespace, _, name = pod.name.partition("/")
            entry = response.pod_resources.add(name=name, namespace=namespace)
            for container, by_resource in pod.ids.items():
                if container not in pod.ordinary_inits:
                    shown = entry.containers.add(name=container)
                    for resource, ids in by_resource.items():
                        for device_id in ids:
                            shown.devices.add(resource_name=resource, device_ids=[device_id])
        return response


async def _call(channel: grpc.aio.Channel, method: str, request: Any, response: Any) -> Any:
    call: Any = channel.unary_unary(
        f"/v1beta1.DevicePlugin/{method}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=response.FromString,
    )
    return await call(request)
