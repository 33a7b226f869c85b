"""The agent as a process: find, tell, deliver, correct, until told to stop; and then not before what is bound has been served.

Belongs here: putting the parts together, signals, the order of starting and ending. Never: what a part does.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final

from accelshare import __version__
from accelshare.agent import status
from accelshare.agent.cdi_files import CdiFiles, specifications
from accelshare.agent.delivery_mode import DeliveryMode, RuntimeChangedError
from accelshare.agent.device_plugin import checkpoint, pod_resources
from accelshare.agent.device_plugin.allocator import Allocator
from accelshare.agent.device_plugin.delivery import DevicePluginDelivery
from accelshare.agent.device_plugin.leftovers import PluginLeftovers
from accelshare.agent.device_plugin.pod_queue import PodQueue
from accelshare.agent.device_plugin.pod_resources_reader import PodResourcesReader
from accelshare.agent.device_plugin.reconcile import Reconcile
from accelshare.agent.discovery import unhealthy_configmap
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.discovery.device_monitor import DeviceMonitor
from accelshare.agent.discovery.inventory_publisher import InventoryPublisher
from accelshare.agent.discovery.unit_change import ChosenUnit, chosen_unit
from accelshare.agent.identity import node_name
from accelshare.agent.metrics import Metrics
from accelshare.agent.nri.answers import Answers, Guarded
from accelshare.agent.nri.delivery import NriDelivery
from accelshare.agent.nri.guard import Guard
from accelshare.agent.nri.repairs import Repairs
from accelshare.agent.nri.runtime_handlers import RuntimeHandlers
from accelshare.agent.parts import Parts
from accelshare.agent.pinned_records import PinnedRecords
from accelshare.agent.pod_feed import PodFeed
from accelshare.agent.settings import Settings
from accelshare.agent.shutdown import Shutdown
from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.events import Events
from accelshare.runtimes.handlers import handlers as read_handlers
from accelshare.runtimes.validator_status import Verdict
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.cdi import existing_name
from accelshare.vendors.drivers import registry
from accelshare.vendors.drivers.driver import FoundCard
from accelshare.vendors.enforcement import Enforcement, choose, requirements
from accelshare.vendors.host_paths import seen_from_here
from accelshare.vendors.probing import probe
from accelshare.vendors.profile import Profile
from accelshare.wire.node_pods import NodePod

log = logging.getLogger(__name__)
OTHERS_S: Final = 5.0  # how often it is looked whether another device plugin serves whole cards
FIRST_LOOK_S: Final = 20.0  # how long registration waits for slow drivers


class Agent:
    def __init__(
        self, settings: Settings, catalog: Catalog, client: Client, node: str, broken: Mapping[str, str] | None = None
    ) -> None:
        self._settings = settings
        self._others: frozenset[str] = frozenset()
        self._broken = broken or {}  # by name, profiles that cannot be used
        self._profiles = settings.enabled(catalog, but=self._broken)
        self._client = client
        self._node = node
        self._metrics = Metrics(node)
        self._monitors: dict[str, DeviceMonitor] = {}
        self._roles = pod_resources.roles(catalog)
        self._way_delivers: dict[str, bool] = {}  # by kind, what the way of delivery says of itself
        self._devices = DeviceInventory()
        events = Events(client, component="accelshare-agent", clock=time.time)
        self._pins = PinnedRecords(client, node, catalog, events, self._metrics)
        self._publisher = InventoryPublisher(client, node, self._devices, self._pins)
        on_host = settings.on_host
        self._pod_queue = PodQueue(self._devices)
        books = PodResourcesReader(settings.kubelet, catalog, self._pod_queue)
        handlers = RuntimeHandlers(partial(read_handlers, settings.runtime_files))
        allocator = Allocator(
            self._devices,
            self._pod_queue,
            books.read,
            exists=lambda path: on_host(path).exists(),
            node_labels=lambda: self._publisher.labels,
            wrong_handler=handlers.refusal,
            has_handler=handlers.has_one,
        )
        guard = Guard(
            self._devices,
            exempt=settings.exempt_namespaces,
            on_host=on_host,
            node_resources=lambda: self._publisher.resources,
            not_found=self._not_found,
        )
        self._answers = Answers(
            self._devices,
            self._pod_queue.pods,
            on_host=on_host,
            node_labels=lambda: self._publisher.labels,
            guard=guard if settings.guard else None,
            wrong_handler=handlers.refusal,
        )
        count = self._metrics.deliveries.labels
        self._repairs = Repairs(client, events, {profile.name: profile for profile in catalog}, replaced=count("replaced").inc)
        self._reconcile = Reconcile(
            client,
            self._pod_queue,
            self._devices,
            catalog,
            events,
            self._metrics,
            books=books,
            pins=self._pins,
            now_ns=time.time_ns,
        )
        self._pod_feed = PodFeed(
            client, node, catalog, pod_queue=self._pod_queue, reconcile=self._reconcile, metrics=self._metrics, pins=self._pins
        )
        memory = PluginLeftovers(
            settings.device_plugins, self._pod_queue.pods, partial(pod_resources.held, settings.kubelet, catalog)
        )
        self._kubelet_memory = memory
        self._nri = NriDelivery(
            self._devices,
            self._answers,
            self._repairs,
            socket=settings.nri_socket,
            files=settings.runtime_files,
            kubelet=memory,
            pins=self._pins,
            on_verdict=self._judged,
        )
        self._mode = DeliveryMode(
            settings.delivery,
            self._nri,
            DevicePluginDelivery(
                self._devices, self._pod_queue, allocator, settings.device_plugins, look_for_others=self._look_for_other_plugins
            ),
            socket=settings.nri_socket,
            answers=self._answers,
            allocator=allocator,
            reconcile=self._reconcile,
            devices=self._devices,
            kubelet=memory,
        )
        cdi = CdiFiles(settings.cdi, self._devices, exists=lambda path: on_host(path).exists())
        self._shutdown = Shutdown(self._devices, self._publisher, cdi, self._pod_queue)
        # Who hears of what.
        self._pins.changed = self._pod_queue.pod_seen
        self._answers.delivered = self._was_delivered
        self._answers.corrected = lambda _pod: count("corrected").inc()
        self._answers.refused = count("refused").inc
        self._answers.guarded = self._was_guarded
        self._pod_queue.changed = self._something_was_given
        self._pod_queue.is_behind = self._pod_feed.is_behind
        self._pod_feed.on_current = lambda _current: self._show_delivery()
        self._pod_queue.gone = self._answers.pod_gone
        self._metrics.waiting.set_function(lambda: self._pod_queue.waiting)
        allocator.served = self._metrics.waits.served
        allocator.must_be_replaced = self._repairs.renumbered
        # A card that was held whole may be sliced again, or the other way round, once kubelet has let go of it.
        books.heard = self._show
        self._devices.on_change(self._show)
        self._devices.on_change(lambda: self._metrics.show(self._devices))
        self._devices.on_change(cdi.write)

    async def run(self, stop: asyncio.Event) -> None:
        parts = Parts()
        port = None
        if self._settings.port:
            pages = status.pages(self._devices, self._metrics, self._monitors, hears=lambda: self._pod_feed.current)
            port = status.serve(self._settings.host, self._settings.port, pages)
        try:
            if await _unless(stop, self._start(parts)):
                try:
                    await parts.beside(stop.wait())
                except RuntimeChangedError:
                    await self._leave()  # whoever is bound already was promised this way
                    raise
                await self._leave()
        finally:
            await parts.end()
            if port is not None:
                await port.stop()

    async def _start(self, parts: Parts) -> None:
        parts.start(self._publisher.watch())
        await parts.beside(self._publisher.listed.wait())
        self._pins.load(self._publisher.published_corrections)
        self._devices.slots.load(self._publisher.published)
        parts.start(self._pins.run())
        parts.start(self._pod_feed.run())
        await parts.beside(self._pod_feed.listed.wait())
        self._devices.slots.derive(
            self._pod_queue.pods.values(), checkpoint.allocations(self._settings.device_plugins), self._roles
        )
        self._look_for_other_plugins()
        parts.start(self._watch_other_plugins())
        await self._mode.make(parts.start, self._profiles)
        self._tell_broken_profiles()
        self._monitors.update({profile.name: self._keeper(profile) for profile in self._profiles})
        for monitor in self._monitors.values():
            parts.start(monitor.run())
            parts.start(monitor.watch_enforcement())
        with contextlib.suppress(TimeoutError):
            await parts.beside(asyncio.wait_for(_first_looks(self._monitors.values()), FIRST_LOOK_S))
        for profile in self._profiles:
            if profile.unhealthy is not None:
                parts.start(unhealthy_configmap.follow(self._client, self._node, self._devices, profile.name, profile.unhealthy))
        # kubelet's books first: what was served before we came is not waiting.
        if not self._mode.by_runtime:
            await self._reconcile.once()
            parts.start(self._reconcile.run())
        parts.start(self._publisher.run())
        parts.start(self._repairs.run())
        parts.start(self._mode.way.run(self._delivers))
        if self._mode.by_runtime:
            self._nri.look_back()
        self._nri.report()

    async def _leave(self) -> None:
        by_runtime = self._mode.by_runtime
        waiting = (lambda: self._answers.waiting) if by_runtime else (lambda: self._pod_queue.waiting)
        await self._shutdown.leave(waiting, by_runtime=by_runtime)
        if not by_runtime:
            await self._reconcile.once()

    def _keeper(self, profile: Profile) -> DeviceMonitor:
        return DeviceMonitor(
            profile,
            registry.make(
                profile,
                roots=self._settings.roots,
                host=self._settings.host_root,
                card_memory_mib=self._settings.card_memory_mib.get(profile.name),
            ),
            self._devices,
            unit=partial(self._chosen_unit, profile),
            enforcement=lambda: self._enforced(profile),
            cdi_name=partial(self._cdi_name, profile),
            listed=not self._mode.by_runtime,
            watch_health=self._settings.watch_health,
        )

    def _not_found(self) -> list[Profile]:
        """Vendors whose cards nobody has looked for yet, or cannot be asked for. The runtime's thread asks, too."""
        kinds, monitors = self._devices.kinds, self._monitors
        return [
            profile
            for profile in self._profiles
            if profile.name not in kinds
            and (profile.name not in monitors or not monitors[profile.name].asked.is_set() or self._devices.problem(profile.name))
        ]

    def _cdi_name(self, profile: Profile, card: FoundCard) -> str:
        rules = profile.container
        if "cdi" not in rules.strategy or rules.cdi.write_spec:
            return ""
        directories = (seen_from_here("etc/cdi", self._settings.host_root), self._settings.cdi)
        return existing_name(profile, card, specifications(directories))

    async def _enforced(self, profile: Profile) -> Enforcement:
        settings = self._settings
        found = await probe(requirements(profile.enforcement), roots=settings.roots, host=settings.host_root)
        return choose(profile.enforcement, found)

    def _look_for_other_plugins(self) -> None:
        found = frozenset(profile.name for profile in self._profiles if self._kubelet_memory.is_anothers(profile.resources.whole))
        for kind in found - self._others:
            log.warning("whole kind=%s outcome=left why='another device plugin of this node serves them'", kind)
        self._others = found
        self._devices.set_whole_by_others(found)

    async def _watch_other_plugins(self) -> None:
        while True:
            await asyncio.sleep(OTHERS_S)
            self._look_for_other_plugins()
            if self._others and self._mode.by_runtime:
                await self._reconcile.once()  # which cards the other plugin has given

    def _tell_broken_profiles(self) -> None:
        units = self._publisher.published_units
        for name, problem in self._broken.items():
            log.error("profile kind=%s outcome=disabled problem=%r", name, problem)
            if not self._settings.vendors or name in self._settings.vendors:
                self._devices.set_problem(name, f"its profile cannot be used: {problem}", unit=units.get(name, ""))

    def _chosen_unit(self, profile: Profile) -> ChosenUnit:
        before = self._publisher.published_units.get(profile.name, "")
        pods = tuple(self._pod_queue.pods.values())
        return chosen_unit(profile, wished=self._settings.unit(profile), before=before, pods=pods, node=self._node)

    # Who hears of what.

    def _judged(self, verdict: Verdict) -> None:
        self._metrics.insists.set(verdict.insists)
        self._mode.judged(verdict)

    def _delivers(self, kind: str, delivers: bool) -> None:
        self._way_delivers[kind] = delivers
        self._show_delivery()

    def _show_delivery(self) -> None:
        """A node whose agent does not hear of pods, or is about to end, hands out no cards."""
        able = self._pod_feed.current and not self._shutdown.begun
        for kind, delivers in list(self._way_delivers.items()):  # each change has the way tell of all kinds again
            self._devices.set_delivers(kind, delivers and able)

    def _was_delivered(self, pod: NodePod) -> None:
        self._shutdown.delivered()
        self._metrics.deliveries.labels("delivered").inc()
        self._metrics.waits.served(pod.uid)
        self._repairs.delivered(pod)

    def _was_guarded(self, what: Guarded) -> None:
        self._metrics.guarded.labels(what.outcome).inc()
        self._repairs.guarded(what)

    def _something_was_given(self) -> None:
        self._show()
        self._reconcile.soon()

    def _show(self) -> None:
        self._mode.way.show()


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether the work was done before we were told to stop; then it is given up, however far it is."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


async def _first_looks(monitors: Iterable[DeviceMonitor]) -> None:
    for monitor in monitors:
        await monitor.asked.wait()


async def serve(settings: Settings, catalog: Catalog, broken: Mapping[str, str] | None = None) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for received in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(received, stop.set)
    cluster = config.load(settings.kubeconfig, context=settings.context)
    async with Client(cluster, user_agent=f"accelshare-agent/{__version__}") as client:
        node = await node_name(client, flag=settings.node, environ=os.environ)
        log.info("agent node=%s server=%s", node, cluster.server)
        await Agent(settings, catalog, client, node, broken).run(stop)
    log.info("stopped")
