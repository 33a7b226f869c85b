"""Registered with kubelet, for as long as kubelet lives, and again when it comes back.

Belongs here: the life of the plugins' sockets beside kubelet's. Never: what the plugins answer.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc

from accelshare.agent.device_plugin import checkpoint
from accelshare.agent.device_plugin.allocator import Allocator
from accelshare.agent.device_plugin.api import kubelet_device_plugin_pb2 as api
from accelshare.agent.device_plugin.plugin import Plugin
from accelshare.agent.device_plugin.pod_queue import PodQueue
from accelshare.agent.discovery.device_inventory import DeviceInventory

log = logging.getLogger(__name__)
KUBELET: Final = "kubelet.sock"
LOOK_S: Final = 0.5  # how often kubelet's socket is looked at; kubelet makes a new one at each start
QUICK_S: Final = 0.02  # the same while kubelet is away: it admits pods a moment after it made its socket; who is not served dies
REGISTER_S: Final = 15.0  # kubelet dials back within this call, and gives that 10 s
STREAM_S: Final = 30.0
REPLACED_S: Final = 2.0
MOST_ENDED_LISTS: Final = 5
_KUBELET_IS_AWAY: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class DevicePluginDelivery:
    """Delivery through kubelet's device plugin interface."""

    name = "device-plugin"

    def __init__(
        self,
        devices: DeviceInventory,
        pod_queue: PodQueue,
        allocator: Allocator,
        directory: Path,
        *,
        look_for_others: Callable[[], None] = lambda: None,
    ) -> None:
        self._devices = devices
        self._pod_queue = pod_queue
        self._allocator = allocator
        self._directory = directory
        self._look_for_others = look_for_others
        self._plugins: dict[str, Plugin] = {}
        self._refused: dict[str, str] = {}  # by kind: why this kubelet does not take it
        self._lists_ended: Counter[str] = Counter()  # by resource: how often this kubelet ended its list alone
        self._on_state: Callable[[str, bool], None] = lambda _kind, _delivers: None
        self._streams_changed = asyncio.Event()
        self._numbers: dict[str, dict[str, tuple[int, int | None]]] = {}  # by kind and id: index and minor, as last seen

    def show(self) -> None:
        for plugin in self._plugins.values():
            plugin.show()

    async def run(self, on_state: Callable[[str, bool], None]) -> None:
        self._on_state = on_state
        served: tuple[int, int] | None = None
        try:
            while True:
                kubelet = await self._kubelet_socket()
                if served not in (None, kubelet):
                    self._allocator.kubelet_began()
                if served != kubelet:
                    self._refused.clear()
                    self._lists_ended.clear()
                served = kubelet
                if not self._devices.kinds:
                    await asyncio.sleep(LOOK_S)
                    continue
                self._look_for_others()
                self._make_plugins()
                try:
                    await self._register_all()
                    await self._until_kubelet_is_gone(kubelet)
                    self._count_ended_lists()
                    await self._unless_replaced(kubelet)
                except (grpc.aio.AioRpcError, TimeoutError, OSError, RuntimeError) as error:  # RuntimeError: gRPC cannot bind
                    log.warning("register outcome=failed error=%r", _said(error))
                    await self._another_socket(kubelet)
                finally:
                    await self._stop_all()
        finally:
            self._tell()

    def _make_plugins(self) -> None:
        for resource in self._plugins.keys() - self._ours():
            del self._plugins[resource]
        ours = self._ours()
        for kind in self._devices.kinds.values():
            for resource, whole in self._devices.resources(kind.profile):
                if resource in ours and resource not in self._plugins:
                    self._plugins[resource] = Plugin(
                        resource,
                        kind.profile.name,
                        whole=whole,
                        allocator=self._allocator,
                        devices=self._devices,
                        on_stream=self._tell,
                    )

    async def _register_all(self) -> None:
        remembered = checkpoint.allocations(self._directory)
        self._numbers = self._numbers_now()
        alive = {pod.uid_at_kubelet for pod in self._pod_queue.pods.values() if not pod.seen.ended}
        for plugin in self._plugins.values():
            plugin.kubelet_remembers([one for one in remembered if one.resource == plugin.resource], alive)
            # Served before it is registered, because kubelet calls back before it answers.
            await plugin.start(self._directory)
        async with grpc.aio.insecure_channel(
            f"unix://{self._directory / KUBELET}", options=[("grpc.default_authority", "localhost")]
        ) as channel:
            register: grpc.aio.UnaryUnaryMultiCallable[api.RegisterRequest, api.Empty] = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=api.Empty.FromString,
            )

            async def one(plugin: Plugin) -> None:
                try:
                    await registered(plugin)
                except grpc.aio.AioRpcError as error:
                    if error.code() in _KUBELET_IS_AWAY:
                        raise
                    self._refused[plugin.kind] = f"kubelet does not take {plugin.resource}: {_said(error)}"

            async def registered(plugin: Plugin) -> None:
                request = api.RegisterRequest(
                    version="v1beta1",
                    endpoint=plugin.socket,
                    resource_name=plugin.resource,
                    options=plugin.options,  # kubelet before 1.25 takes them from here, newer ones ask
                )
                await register(request, timeout=REGISTER_S)
                log.info("registered resource=%s", plugin.resource)

            await asyncio.gather(*(one(plugin) for plugin in self._plugins.values()))
        await self._leave_refused_out()

    async def _leave_refused_out(self) -> None:
        """What kubelet does not take of one vendor must not keep the others from being served."""
        for resource, plugin in list(self._plugins.items()):
            if plugin.kind in self._refused:
                log.error("register kind=%s outcome=refused error=%r", plugin.kind, self._refused[plugin.kind])
                del self._plugins[resource]
                await plugin.stop(self._directory)
        self._devices.set_refused(self._refused)

    def _count_ended_lists(self) -> None:
        """A list that kubelet ends again and again while it watches others, say because it is too large for it."""
        ended = [plugin for plugin in self._plugins.values() if not plugin.streams]
        if len(ended) == len(self._plugins):
            return  # kubelet is gone
        for plugin in ended:
            self._lists_ended[plugin.resource] += 1
            if self._lists_ended[plugin.resource] >= MOST_ENDED_LISTS:
                self._refused[plugin.kind] = f"kubelet ended the list of {plugin.resource} {MOST_ENDED_LISTS} times"

    async def _until_kubelet_is_gone(self, kubelet: tuple[int, int]) -> None:
        """Its socket is another one, or it has ended a list that it watched."""
        await asyncio.wait_for(self._all_watched(), STREAM_S)
        while (
            self._stamp() == kubelet
            and all(plugin.streams for plugin in self._plugins.values())
            and self._plugins.keys() == self._ours()
            and not self._answers_went_stale()
        ):
            self._streams_changed.clear()
            try:
                await asyncio.wait_for(self._streams_changed.wait(), LOOK_S)
            except TimeoutError:
                continue
        log.warning("kubelet outcome=gone-or-changed")

    def _answers_went_stale(self) -> bool:
        """Cards were numbered anew, and with that other answers than before are wrong. kubelet hears of it when we register."""
        numbers = self._numbers_now()
        if numbers == self._numbers:
            return False
        self._numbers = numbers
        remembered = checkpoint.allocations(self._directory)
        return any(
            plugin.is_stale([one for one in remembered if one.resource == plugin.resource]) for plugin in self._plugins.values()
        )

    def _numbers_now(self) -> dict[str, dict[str, tuple[int, int | None]]]:
        return {
            name: {card.found.id: (card.index, card.found.minor) for card in kind.cards.values()}
            for name, kind in self._devices.kinds.items()
        }

    async def _unless_replaced(self, kubelet: tuple[int, int]) -> None:
        """kubelet ended a list of whole cards and watches others on: another plugin may have registered for them. kubelet writes
        down whose they are a moment later; who registers again before that takes them from it, and it would not come back.
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
            await asyncio.sleep(QUICK_S)
            self._look_for_others()

    def _ours(self) -> set[str]:
        kinds = [kind.profile for kind in self._devices.kinds.values() if kind.profile.name not in self._refused]
        return {resource for profile in kinds for resource, _ in self._devices.resources(profile)}

    async def _all_watched(self) -> None:
        while not all(plugin.was_watched for plugin in self._plugins.values()):
            self._streams_changed.clear()
            await self._streams_changed.wait()

    async def _kubelet_socket(self) -> tuple[int, int]:
        said = False
        while (stamp := self._stamp()) is None:
            if not said:
                log.info("waiting what=kubelet path=%s", self._directory / KUBELET)
                said = True
            await asyncio.sleep(QUICK_S)
        return stamp

    async def _another_socket(self, than: tuple[int, int]) -> None:
        """Or the time for another try with the same: what a killed kubelet leaves is there until the next one starts."""
        deadline = asyncio.get_running_loop().time() + LOOK_S
        while self._stamp() == than and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 – a file has no event
            await asyncio.sleep(QUICK_S)

    def _stamp(self) -> tuple[int, int] | None:
        try:
            stat = (self._directory / KUBELET).stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_ctime_ns

    async def _stop_all(self) -> None:
        for plugin in self._plugins.values():
            await plugin.stop(self._directory)
        self._tell()

    def _tell(self) -> None:
        self._streams_changed.set()
        for kind in {plugin.kind for plugin in self._plugins.values()}:
            self._on_state(kind, all(plugin.streams for plugin in self._plugins.values() if plugin.kind == kind))


def _said(error: BaseException) -> str:
    return str(error.details()) if isinstance(error, grpc.aio.AioRpcError) else f"{type(error).__name__} {error}"
