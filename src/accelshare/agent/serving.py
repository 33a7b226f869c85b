"""The agent as a process: builds all its parts, starts them in order, and shuts them down on SIGTERM.

Belongs here: which part gets which other parts, signals, the order of start and end. Never: what a part does.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from accelshare import __version__
from accelshare.agent import status
from accelshare.agent.amounts import AmountsInForce
from accelshare.agent.cdi_files import CdiFiles, specifications
from accelshare.agent.delivery import DeliverySelector, DeliveryState, RuntimeChangedError
from accelshare.agent.delivery_mode import AUTO, CurrentMode
from accelshare.agent.device_plugin import checkpoint, pod_resources
from accelshare.agent.device_plugin.allocator import Allocator
from accelshare.agent.device_plugin.delivery import DevicePluginDelivery
from accelshare.agent.device_plugin.leftovers import PluginLeftovers
from accelshare.agent.device_plugin.pod_queue import PodQueue
from accelshare.agent.device_plugin.pod_resources import PodResourcesReader
from accelshare.agent.device_plugin.reconcile import Reconcile
from accelshare.agent.discovery import unhealthy_configmap
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.discovery.device_monitor import NO_CARDS_LEFT, DeviceMonitor
from accelshare.agent.discovery.inventory_publisher import InventoryPublisher
from accelshare.agent.discovery.units import ChosenUnit, chosen_unit
from accelshare.agent.lifecycle import BackgroundTasks, Shutdown, finished_before
from accelshare.agent.limits.cgroups import CgroupTree
from accelshare.agent.limits.review import LimitReview
from accelshare.agent.limits.setting import PROBE_S, ContainerLimits
from accelshare.agent.metrics import AgentMetrics
from accelshare.agent.nri.container_decision import Rules
from accelshare.agent.nri.container_handler import ContainerHandler
from accelshare.agent.nri.delivery import NriDelivery
from accelshare.agent.nri.guard import Guard
from accelshare.agent.nri.outcomes import Corrected, Delivered, Outcome, OutcomeQueue, Refused, Unentitled
from accelshare.agent.nri.protocol.updates import ContainerUpdates
from accelshare.agent.nri.runtime_handlers import RuntimeHandlers
from accelshare.agent.pinned_records import PinnedRecords
from accelshare.agent.pod_feed import PodFeed
from accelshare.agent.pod_store import PodStore
from accelshare.agent.repairs import Repairs
from accelshare.agent.resizer import SliceResizer
from accelshare.agent.settings import AgentSettings, node_name
from accelshare.agent.usage.history import UsageHistory
from accelshare.agent.usage.over_use import OverUse
from accelshare.agent.usage.sampler import UsageSampler
from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.events import Events
from accelshare.runtimes.handlers import handlers as read_handlers
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.cdi import existing_name
from accelshare.vendors.drivers import registry
from accelshare.vendors.drivers.driver import Driver, HostCard
from accelshare.vendors.drivers.library_client import HasLimitLibrary
from accelshare.vendors.enforcement import Enforcement, choose, requirements
from accelshare.vendors.host_paths import seen_from_here
from accelshare.vendors.probing import probe
from accelshare.vendors.profile import Profile

log = logging.getLogger(__name__)
OTHER_PLUGINS_S: Final = 5.0  # how often to check whether another device plugin serves whole cards
FIRST_ANSWERS_S: Final = 20.0  # how long registration waits for slow drivers


class Agent:
    def __init__(
        self, settings: AgentSettings, catalog: Catalog, client: Client, node: str, broken: Mapping[str, str] | None = None
    ) -> None:
        """`broken`: by name, why profiles cannot be used."""
        self._settings = settings
        self._client = client
        self._node = node
        self._broken = broken or {}
        self._profiles = settings.enabled(catalog, but=self._broken)
        self._roles = pod_resources.roles(catalog)
        self._whole_by_others: frozenset[str] = frozenset()
        self._monitors: dict[str, DeviceMonitor] = {}
        self._drivers = {profile.name: self._driver(profile) for profile in self._profiles}
        by_name = {profile.name: profile for profile in catalog}

        # What this node has, and which pods are bound to it.
        self._metrics = AgentMetrics(node)
        self._devices = DeviceInventory()
        self._amounts = AmountsInForce(enabled=settings.resizes)
        self._pods = PodStore(self._amounts)
        self._mode = CurrentMode()
        events = Events(client, component="accelshare-agent", clock=time.time)
        self._pins = PinnedRecords(client, node, catalog, events, self._metrics)
        self._publisher = InventoryPublisher(client, node, self._devices, self._pins, self._amounts)
        self._pod_feed = PodFeed(client, node, catalog, pods=self._pods, pins=self._pins, metrics=self._metrics)
        self._repairs = Repairs(client, events, by_name, on_replaced=self._metrics.deliveries.labels("replaced").inc)
        self._cdi = CdiFiles(settings.cdi, self._devices, exists=self._exists_on_host)
        handlers = RuntimeHandlers(partial(read_handlers, settings.runtime_files))
        self._leftovers = PluginLeftovers(
            settings.device_plugins, self._pods, partial(pod_resources.list_holdings, settings.kubelet, catalog)
        )
        self._state = DeliveryState(self._devices, self._pod_feed)
        self._shutdown = Shutdown(self._state, self._publisher, self._cdi, self._pods)
        self._selector = DeliverySelector(
            settings.delivery,
            self._profiles,
            current=self._mode,
            devices=self._devices,
            leftovers=self._leftovers,
            metrics=self._metrics,
        )

        # Delivery by kubelet's device plugins: kubelet's Allocate → DevicePlugin → Allocator → container_edits.
        self._pod_queue = PodQueue(self._devices, self._pods, is_behind=self._pod_feed.is_behind)
        reader = PodResourcesReader(settings.kubelet, catalog, self._pod_queue)
        allocator = Allocator(
            self._devices,
            self._pod_queue,
            reader.read,
            mode=self._mode,
            exists=self._exists_on_host,
            node_labels=lambda: self._publisher.labels,
            wrong_handler=handlers.refusal,
            has_handler=handlers.has_one,
            on_served=self._metrics.waits.served,
        )
        self._reconcile = Reconcile(
            client,
            self._pod_queue,
            self._devices,
            catalog,
            events,
            self._metrics,
            pod_resources=reader,
            pins=self._pins,
            mode=self._mode,
            now_ns=time.time_ns,
        )
        self._device_plugins = DevicePluginDelivery(
            self._devices,
            self._pod_queue,
            allocator,
            settings.device_plugins,
            state=self._state,
            repairs=self._repairs,
            find_other_plugins=self._find_other_plugins,
        )

        # Delivery by the container runtime: NRI's CreateContainer → ContainerHandler → ContainerDecision → container_edits.
        self._outcomes = OutcomeQueue()
        guard = Guard(self._profiles, exempt=settings.exempt_namespaces, on_host=settings.on_host)
        rules = Rules(settings.on_host, guard if settings.guard else None, handlers.refusal)
        tree = CgroupTree(settings.cgroup_root)
        libraries = {name: one.limit_library() for name, one in self._drivers.items() if isinstance(one, HasLimitLibrary)}
        self._limits = ContainerLimits(tree, libraries, unavailable=self._why_no_limits)
        self._handler = ContainerHandler(
            self._devices,
            self._pods,
            self._mode,
            self._outcomes,
            rules,
            self._limits,
            node_labels=lambda: self._publisher.labels,
            node_resources=lambda: self._publisher.resources,
        )
        self._limit_review = LimitReview(
            self._limits,
            self._handler.limited,
            on_repaired=self._metrics.limit_repairs.inc,
            on_failed=self._repairs.report_unlimited,
        )
        updates = ContainerUpdates()
        self._resizer = SliceResizer(
            client,
            node,
            events,
            self._devices,
            self._pods,
            self._amounts,
            self._mode,
            self._limits,
            self._limit_review,
            updates,
            containers=self._handler.limited,
            on_answered=self._metrics.resized,
        )
        ways = [way for profile in self._profiles for _, way in profile.enforcement.in_order]
        self._nri = NriDelivery(
            self._devices,
            self._handler,
            mode=self._mode,
            selector=self._selector,
            state=self._state,
            outcomes=self._outcomes,
            repairs=self._repairs,
            pins=self._pins,
            pods=self._pods,
            leftovers=self._leftovers,
            limit_review=self._limit_review,
            sets_limits=settings.limits and tree.is_v2 and any(way.on_cgroup for way in ways),
            updates=updates,
            socket=settings.nri_socket,
            files=settings.runtime_files,
        )

        # Who uses the cards: drivers' processes → cgroups → pods.
        history = UsageHistory()
        over_use = OverUse(
            client,
            events,
            self._pods,
            history,
            evict_after_s=settings.evict_over_use_after_s,
            not_evicted={profile.name for profile in self._profiles if profile.driver and profile.driver.processes},
            on_evicted=self._metrics.over_use_evictions.inc,
            clock=time.monotonic,
        )
        self._usage = UsageSampler(
            node,
            self._devices,
            self._pods,
            self._monitors,
            history,
            over_use,
            proc=settings.roots.proc,
            every_s=settings.usage_every_s,
            clock=time.monotonic,
        )

        self._metrics.waiting.set_function(lambda: self._pod_queue.waiting)
        self._devices.on_change(lambda: self._metrics.show(self._devices))
        self._devices.on_change(self._cdi.write)
        self._devices.on_change(self._limit_review.request)  # a card may have got its way just now

    async def run(self, stop: asyncio.Event) -> None:
        tasks = BackgroundTasks()
        port = None
        if self._settings.port:
            pages = status.pages(
                self._devices,
                self._metrics,
                self._monitors,
                is_current=lambda: self._pod_feed.current,
                latest_use=self._usage.latest if self._settings.usage_every_s else None,
            )
            port = status.serve(self._settings.host, self._settings.port, pages)
        try:
            if await finished_before(stop, self._start(tasks)):
                try:
                    await tasks.wait_for(stop.wait())
                except RuntimeChangedError:
                    await self._drain()  # pods that are bound already were bound for this mode
                    raise
                await self._drain()
        finally:
            await tasks.cancel()
            if port is not None:
                await port.stop()

    async def _start(self, tasks: BackgroundTasks) -> None:
        tasks.start(self._publisher.watch())
        await tasks.wait_for(self._publisher.listed.wait())
        self._pins.load(self._publisher.published_corrections)
        self._amounts.load(self._publisher.published_resizes)
        self._resizer.load(self._publisher.published_resizes)
        self._devices.load(self._publisher.published, [profile.name for profile in self._profiles])
        tasks.start(self._pins.run())
        tasks.start(self._pod_feed.run())
        await tasks.wait_for(self._pod_feed.listed.wait())
        self._amounts.keep_only(self._pods)
        self._devices.slots.derive(self._pods.values(), checkpoint.allocations(self._settings.device_plugins), self._roles)
        self._find_other_plugins()
        tasks.start(self._watch_other_plugins())
        tasks.start(self._outcomes.run(self._handle_outcome))
        by_nri = await self._select_mode(tasks)
        self._report_broken_profiles()
        await self._start_monitors(tasks, listed=not by_nri)
        if not by_nri:
            await self._reconcile.once()  # before kubelet asks: pods that were served before do not wait
            tasks.start(self._reconcile.run())
        tasks.start(self._publisher.run())
        tasks.start(self._repairs.run())
        tasks.start(self._cdi.run())
        tasks.start(self._nri.run() if by_nri else self._device_plugins.run())
        if by_nri:
            tasks.start(self._limit_review.run())
            tasks.start(self._resizer.run())
        if self._settings.usage_every_s:
            tasks.start(self._usage.run())
        self._nri.review_containers()
        self._state.start()

    async def _select_mode(self, tasks: BackgroundTasks) -> bool:
        """Whether NRI delivers, for the life of this process."""
        connected = False
        if self._selector.uses_nri:
            tasks.start(self._nri.connect())
            connected = await self._nri.first_contact()
        mode = self._selector.select(self._nri.validator, connected=connected)
        if self._settings.delivery == AUTO:
            tasks.start(self._selector.until_another_mode_is_right())
        return mode.by_nri

    async def _start_monitors(self, tasks: BackgroundTasks, *, listed: bool) -> None:
        self._monitors.update({profile.name: self._monitor(profile, listed=listed) for profile in self._profiles})
        for monitor in self._monitors.values():
            tasks.start(monitor.run())
            tasks.start(monitor.watch_enforcement())
        with contextlib.suppress(TimeoutError):
            await tasks.wait_for(_first_answers(self._monitors.values()))
        for profile in self._profiles:
            if profile.unhealthy is not None:
                tasks.start(unhealthy_configmap.follow(self._client, self._node, self._devices, profile.name, profile.unhealthy))

    async def _drain(self) -> None:
        by_nri = self._mode.get().by_nri
        waiting = (lambda: self._handler.waiting) if by_nri else (lambda: self._pod_queue.waiting)
        await self._shutdown.drain(waiting, by_nri=by_nri)
        if not by_nri:
            await self._reconcile.once()

    def _driver(self, profile: Profile) -> Driver:
        settings = self._settings
        card_memory_mib = settings.card_memory_mib.get(profile.name)
        return registry.make(profile, roots=settings.roots, host=settings.host_root, card_memory_mib=card_memory_mib)

    def _monitor(self, profile: Profile, *, listed: bool) -> DeviceMonitor:
        return DeviceMonitor(
            profile,
            self._drivers[profile.name],
            self._devices,
            unit=partial(self._chosen_unit, profile),
            enforcement=partial(self._enforcement, profile),
            cdi_name=partial(self._cdi_name, profile),
            process_table=registry.make_process_table(profile, host=self._settings.host_root),
            listed=listed,
            had_cards=self._had_cards(profile),
            watch_health=self._settings.watch_health,
        )

    def _had_cards(self, profile: Profile) -> bool:
        """Whether the Node's inventory has cards of an earlier agent, or shows that they are gone."""
        entry = self._publisher.published.get(profile.name)
        return entry is not None and (bool(entry.cards) or entry.problem == NO_CARDS_LEFT)

    def _handle_outcome(self, outcome: Outcome) -> None:
        """What follows on the main loop from an answer to the runtime."""
        count = self._metrics.deliveries.labels
        match outcome:
            case Delivered(pod):
                self._shutdown.container_delivered()
                count("delivered").inc()
                self._metrics.waits.served(pod.uid)
                self._repairs.flag_assigned(pod)
            case Corrected():
                count("corrected").inc()
            case Refused():
                count("refused").inc()
            case Unentitled():
                self._metrics.guarded.labels(outcome.outcome).inc()
                self._repairs.report_unentitled(outcome)

    def _exists_on_host(self, path: str) -> bool:
        return self._settings.on_host(path).exists()

    def _cdi_name(self, profile: Profile, card: HostCard) -> str:
        rules = profile.container
        if "cdi" not in rules.strategy or rules.cdi.write_spec:
            return ""
        directories = (seen_from_here("etc/cdi", self._settings.host_root), self._settings.cdi)
        return existing_name(profile, card, specifications(directories))

    async def _enforcement(self, profile: Profile, cards: Sequence[HostCard]) -> dict[str, Enforcement]:
        """By id: who enforces the shares of each card. Limits are set and read on a thread: driver and kernel may take time."""
        settings, rules, deadline = self._settings, profile.enforcement, time.monotonic() + PROBE_S
        found = await probe(requirements(rules), roots=settings.roots, host=settings.host_root)
        prove = partial(self._limits.prove, profile.name, deadline=deadline)
        return {card.id: await asyncio.to_thread(choose, rules, found, partial(prove, card)) for card in cards}

    def _why_no_limits(self) -> str:
        if not self._settings.limits:
            return "--no-limits is set"
        mode = self._mode.get()
        return "" if mode.by_nri else f"delivery through NRI is needed, and this node delivers by {mode.name}: {mode.reason}"

    def _chosen_unit(self, profile: Profile) -> ChosenUnit:
        before = self._publisher.published_units.get(profile.name, "")
        pods = self._pods.values()
        return chosen_unit(profile, requested=self._settings.unit(profile), before=before, pods=pods, node=self._node)

    def _find_other_plugins(self) -> None:
        """Leave whole cards of a kind to another device plugin that serves them."""
        others = self._leftovers.is_served_by_others
        kinds = frozenset(profile.name for profile in self._profiles if others(profile.resources.whole))
        for kind in kinds - self._whole_by_others:
            log.warning("whole-cards kind=%s outcome=left reason='another device plugin of this node serves them'", kind)
        self._whole_by_others = kinds
        self._devices.set_whole_by_others(kinds)

    async def _watch_other_plugins(self) -> None:
        while True:
            await asyncio.sleep(OTHER_PLUGINS_S)
            self._find_other_plugins()
            if self._whole_by_others and self._mode.get().by_nri:
                await self._reconcile.once()  # record the cards that the other plugin has given

    def _report_broken_profiles(self) -> None:
        units = self._publisher.published_units
        for name, problem in self._broken.items():
            log.error("profile kind=%s outcome=disabled problem=%r", name, problem)
            if not self._settings.vendors or name in self._settings.vendors:
                self._devices.set_problem(name, f"its profile cannot be used: {problem}", unit=units.get(name, ""))


async def _first_answers(monitors: Iterable[DeviceMonitor]) -> None:
    async with asyncio.timeout(FIRST_ANSWERS_S):
        for monitor in monitors:
            await monitor.first_answer.wait()


async def serve(settings: AgentSettings, catalog: Catalog, broken: Mapping[str, str] | None = None) -> None:
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
