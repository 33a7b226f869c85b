"""Registers the device plugins with kubelet, and again whenever kubelet restarts.

Belongs here: the plugins' sockets and their registration. Never: what the plugins answer (plugin.py, allocator.py).
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc

from accelshare.agent.delivery import DeliveryState
from accelshare.agent.device_plugin import checkpoint
from accelshare.agent.device_plugin.allocator import Allocator
from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as api
from accelshare.agent.device_plugin.plugin import DevicePlugin
from accelshare.agent.device_plugin.pod_queue import PodQueue
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.repairs import Repairs

log = logging.getLogger(__name__)
KUBELET: Final = "kubelet.sock"
POLL_S: Final = 0.5  # how often to look at kubelet's socket; kubelet creates a new one at each start
FAST_POLL_S: Final = 0.02  # while kubelet is away: it admits pods right after it created its socket, and rejects unserved ones
REGISTER_S: Final = 15.0  # kubelet dials back within this call, and gives that 10 s
STREAM_S: Final = 30.0
REPLACED_S: Final = 2.0  # kubelet writes its checkpoint within this after another plugin registered
MOST_ENDED_STREAMS: Final = 5
_KUBELET_IS_AWAY: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class DevicePluginDelivery:
    """Delivery through kubelet's device plugin interface."""

    def __init__(
        self,
        devices: DeviceInventory,
        pod_queue: PodQueue,
        allocator: Allocator,
        directory: Path,
        *,
        state: DeliveryState,
        repairs: Repairs,
        find_other_plugins: Callable[[], None] = lambda: None,
    ) -> None:
        self._devices = devices
        self._pod_queue = pod_queue
        self._allocator = allocator
        self._directory = directory
        self._state = state
        self._repairs = repairs
        self._find_other_plugins = find_other_plugins
        self._plugins: dict[str, DevicePlugin] = {}
        self._refused: dict[str, str] = {}  # by kind: why this kubelet refuses it
        self._ended_streams: Counter[str] = Counter()  # by resource: how often this kubelet ended only its stream
        self._streams_changed = asyncio.Event()
        self._numbers: dict[str, dict[str, tuple[int, int | None]]] = {}  # by kind and id: index and minor, as last seen
        devices.on_change(self._update_lists)
        pod_queue.allocated.subscribe(self._update_lists)
        pod_queue.holdings_changed.subscribe(self._update_lists)

    def _update_lists(self) -> None:
        for plugin in self._plugins.values():
            plugin.update_list()

    async def run(self) -> None:
        served: tuple[int, int] | None = None
        try:
            while True:
                kubelet = await self._kubelet_socket()
                if served not in (None, kubelet):
                    self._allocator.kubelet_restarted()
                if served != kubelet:
                    self._refused.clear()
                    self._ended_streams.clear()
                served = kubelet
                if not self._devices.kinds:
                    await asyncio.sleep(POLL_S)
                    continue
                self._find_other_plugins()
                self._make_plugins()
                try:
                    await self._register_all()
                    await self._until_kubelet_is_gone(kubelet)
                    self._count_ended_streams()
                    await self._wait_for_other_plugin(kubelet)
                except (grpc.aio.AioRpcError, TimeoutError, OSError, RuntimeError) as error:  # RuntimeError: gRPC cannot bind
                    log.warning("register outcome=failed error=%r", _error_text(error))
                    await self._wait_for_new_socket(kubelet)
                finally:
                    await self._stop_all()
        finally:
            self._report()

    def _make_plugins(self) -> None:
        for resource in self._plugins.keys() - self._ours():
            del self._plugins[resource]
        ours = self._ours()
        for kind in self._devices.kinds.values():
            for resource, whole in self._devices.resources(kind.profile):
                if resource in ours and resource not in self._plugins:
                    self._plugins[resource] = DevicePlugin(
                        resource,
                        kind.profile.name,
                        whole=whole,
                        allocator=self._allocator,
                        devices=self._devices,
                        repairs=self._repairs,
                        on_stream=self._report,
                    )

    async def _register_all(self) -> None:
        allocations = checkpoint.allocations(self._directory)
        self._numbers = self._numbers_now()
        alive = {pod.uid_at_kubelet for pod in self._pod_queue.pods.values() if not pod.seen.ended}
        for plugin in self._plugins.values():
            plugin.load_checkpoint([one for one in allocations if one.resource == plugin.resource], alive)
            # Serve before registering, because kubelet calls back before it answers.
            await plugin.start(self._directory)
        async with grpc.aio.insecure_channel(
            f"unix://{self._directory / KUBELET}", options=[("grpc.default_authority", "localhost")]
        ) as channel:
            register: grpc.aio.UnaryUnaryMultiCallable[api.RegisterRequest, api.Empty] = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=api.Empty.FromString,
            )

            async def register_one(plugin: DevicePlugin) -> None:
                request = api.RegisterRequest(
                    version="v1beta1",
                    endpoint=plugin.socket,
                    resource_name=plugin.resource,
                    options=plugin.options,  # kubelet before 1.25 reads them here; newer ones call GetDevicePluginOptions
                )
                try:
                    await register(request, timeout=REGISTER_S)
                    log.info("registered resource=%s", plugin.resource)
                except grpc.aio.AioRpcError as error:
                    if error.code() in _KUBELET_IS_AWAY:
                        raise
                    self._refused[plugin.kind] = f"kubelet refuses {plugin.resource}: {_error_text(error)}"

            await asyncio.gather(*(register_one(plugin) for plugin in self._plugins.values()))
        await self._drop_refused()

    async def _drop_refused(self) -> None:
        """A kind that kubelet refuses must not keep other kinds from being served."""
        for resource, plugin in list(self._plugins.items()):
            if plugin.kind in self._refused:
                log.error("register kind=%s outcome=refused error=%r", plugin.kind, self._refused[plugin.kind])
                del self._plugins[resource]
                await plugin.stop(self._directory)
        self._devices.set_refused(self._refused)

    def _count_ended_streams(self) -> None:
        """Count streams that kubelet ends while it keeps others, say because the list is too large for it."""
        ended = [plugin for plugin in self._plugins.values() if not plugin.streams]
        if len(ended) == len(self._plugins):
            return  # kubelet is gone
        for plugin in ended:
            self._ended_streams[plugin.resource] += 1
            if self._ended_streams[plugin.resource] >= MOST_ENDED_STREAMS:
                self._refused[plugin.kind] = f"kubelet ended the device list of {plugin.resource} {MOST_ENDED_STREAMS} times"

    async def _until_kubelet_is_gone(self, kubelet: tuple[int, int]) -> None:
        """Until kubelet has another socket, or has ended a stream."""
        async with asyncio.timeout(STREAM_S):
            await self._all_watched()
        while (
            self._stamp() == kubelet
            and all(plugin.streams for plugin in self._plugins.values())
            and self._plugins.keys() == self._ours()
            and not self._answers_went_stale()
        ):
            self._streams_changed.clear()
            # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._streams_changed.wait()
        log.warning("kubelet outcome=gone-or-changed")

    def _answers_went_stale(self) -> bool:
        """Whether card numbers changed so that other answers in kubelet's checkpoint are wrong. Registering informs kubelet."""
        numbers = self._numbers_now()
        if numbers == self._numbers:
            return False
        self._numbers = numbers
        allocations = checkpoint.allocations(self._directory)
        return any(
            plugin.is_stale([one for one in allocations if one.resource == plugin.resource]) for plugin in self._plugins.values()
        )

    def _numbers_now(self) -> dict[str, dict[str, tuple[int, int | None]]]:
        return {
            name: {card.found.id: (card.index, card.found.minor) for card in kind.cards.values()}
            for name, kind in self._devices.kinds.items()
        }

    async def _wait_for_other_plugin(self, kubelet: tuple[int, int]) -> None:
        """kubelet ended a stream of whole cards and keeps others: another plugin may have registered for them. kubelet writes its
        checkpoint a moment later; registering again before that would take the resource from the other plugin for good.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REPLACED_S
        while (
            loop.time() < deadline
            and self._stamp() == kubelet
            and all(plugin.streams for plugin in self._plugins.values() if not plugin.whole)
            and not all(plugin.streams for plugin in self._plugins.values())
            and self._plugins.keys() == self._ours()
        ):
            await asyncio.sleep(FAST_POLL_S)
            self._find_other_plugins()

    def _ours(self) -> set[str]:
        kinds = [kind.profile for kind in self._devices.kinds.values() if kind.profile.name not in self._refused]
        return {resource for profile in kinds for resource, _ in self._devices.resources(profile)}

    async def _all_watched(self) -> None:
        while not all(plugin.was_watched for plugin in self._plugins.values()):
            self._streams_changed.clear()
            await self._streams_changed.wait()

    async def _kubelet_socket(self) -> tuple[int, int]:
        logged = False
        while (stamp := self._stamp()) is None:
            if not logged:
                log.info("waiting what=kubelet path=%s", self._directory / KUBELET)
                logged = True
            await asyncio.sleep(FAST_POLL_S)
        return stamp

    async def _wait_for_new_socket(self, than: tuple[int, int]) -> None:
        """Wait for a new socket, or until it is time to try the same again: a killed kubelet leaves its socket behind."""
        deadline = asyncio.get_running_loop().time() + POLL_S
        while self._stamp() == than and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 – a file has no event
            await asyncio.sleep(FAST_POLL_S)

    def _stamp(self) -> tuple[int, int] | None:
        try:
            stat = (self._directory / KUBELET).stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_ctime_ns

    async def _stop_all(self) -> None:
        for plugin in self._plugins.values():
            await plugin.stop(self._directory)
        self._report()

    def _report(self) -> None:
        self._streams_changed.set()
        for kind in {plugin.kind for plugin in self._plugins.values()}:
            self._state.report(kind, all(plugin.streams for plugin in self._plugins.values() if plugin.kind == kind))


def _error_text(error: BaseException) -> str:
    return str(error.details()) if isinstance(error, grpc.aio.AioRpcError) else f"{type(error).__name__} {error}"
