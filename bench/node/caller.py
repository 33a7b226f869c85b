"""kubelet's side of the device plugin API, with the time of each call.

Belongs here: taking registrations, watching lists, telling who holds what, calls whose bytes are made beforehand. Never: pods.
"""

import asyncio
import time
from pathlib import Path
from typing import Any, Final

import grpc

from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as plugin_api
from accelshare.agent.device_plugin.api import kubelet_pod_resources_pb2 as resources_api
from bench.procfs import cpu_s

LARGEST: Final = 64 * 2**20


class Caller:
    """`async with Caller(root) as caller:` has kubelet's sockets below this directory."""

    def __init__(self, root: Path) -> None:
        self._plugins = root / "device-plugins"
        self._pod_resources = root / "pod-resources"
        self._servers: list[grpc.aio.Server] = []
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._watching: list[asyncio.Task[None]] = []
        self.devices: dict[str, list[str]] = {}  # resource → the ids it was shown
        self.held: dict[str, dict[str, list[str]]] = {}  # pod → resource → ids

    async def __aenter__(self) -> "Caller":
        await self._serve(self._plugins, "v1beta1.Registration", "Register", self._register, plugin_api.RegisterRequest)
        await self._serve(self._pod_resources, "v1.PodResourcesLister", "List", self._list, resources_api.ListPodResourcesRequest)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close()
        for server in self._servers:
            await server.stop(None)

    def free(self, resource: str) -> list[str]:
        taken = {i for held in self.held.values() for i in held.get(resource, ())}
        return [i for i in self.devices[resource] if i not in taken]

    async def call(self, resource: str, method: str, request: bytes, *, pid: int) -> tuple[bytes, float, float]:
        """The answer, its time, and the CPU time of this process meanwhile, both in ms."""
        call: Any = self._channels[resource].unary_unary(f"/v1beta1.DevicePlugin/{method}")
        cpu, wall = cpu_s(pid), time.perf_counter()
        answer: bytes = await call(request)
        took = time.perf_counter() - wall
        return answer, 1000 * took, 1000 * (cpu_s(pid) - cpu)

    async def _serve(self, directory: Path, service: str, method: str, handle: Any, request: Any) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        handler: Any = grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=request.FromString, response_serializer=lambda message: message.SerializeToString()
        )
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        server.add_insecure_port(f"unix://{directory / 'kubelet.sock'}")
        await server.start()
        self._servers.append(server)

    async def _register(self, request: plugin_api.RegisterRequest, _context: Any) -> plugin_api.Empty:
        options = [("grpc.max_receive_message_length", LARGEST), ("grpc.default_authority", "localhost")]
        channel = grpc.aio.insecure_channel(f"unix://{self._plugins / request.endpoint}", options=options)
        self._channels[request.resource_name] = channel
        self._watching.append(asyncio.create_task(self._watch(request.resource_name, channel)))
        return plugin_api.Empty()

    async def _watch(self, resource: str, channel: grpc.aio.Channel) -> None:
        call: Any = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=plugin_api.ListAndWatchResponse.FromString,
        )
        async for answer in call(plugin_api.Empty()):
            self.devices[resource] = [device.id for device in answer.devices if device.health == "Healthy"]

    async def _list(
        self, _request: resources_api.ListPodResourcesRequest, _context: Any
    ) -> resources_api.ListPodResourcesResponse:
        answer = resources_api.ListPodResourcesResponse()
        for pod, held in self.held.items():
            container = answer.pod_resources.add(name=pod, namespace="default").containers.add(name="c0")
            for resource, ids in held.items():
                for one in ids:  # kubelet tells each id for itself
                    container.devices.add(resource_name=resource, device_ids=[one])
        return answer
