"""The agent as a process: find, tell, deliver, correct, until told to stop; and then not before what is bound has been served.

Belongs here: putting the parts together, signals, the order of starting and ending.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from accelshare import __version__
from accelshare.agent import status, told
from accelshare.agent.cdi_files import CdiFiles
from accelshare.agent.delivery import Delivery
from accelshare.agent.desk import Desk
from accelshare.agent.device_plugin.way import DevicePluginWay
from accelshare.agent.identity import node_name
from accelshare.agent.keeper import Keeper
from accelshare.agent.metrics import Metrics
from accelshare.agent.nri_way.answers import Answers, correctable
from accelshare.agent.nri_way.repairs import Repairs
from accelshare.agent.nri_way.way import NriWay
from accelshare.agent.publisher import Publisher
from accelshare.agent.reconcile import Reconcile
from accelshare.agent.shelf import Shelf
from accelshare.agent.units import UnitError
from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.events import Events
from accelshare.kube.watch import Gone, Interrupted, Reflector, Seen, Synced
from accelshare.runtimes.insistence import Files, Verdict
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.drivers import registry
from accelshare.vendors.drivers.driver import Roots
from accelshare.vendors.enforcement import Enforcement, choose, requirements
from accelshare.vendors.probing import probe
from accelshare.vendors.profile import Profile, UnhealthyConfigMap
from accelshare.wire.node_pods import NodePod, NodePodReader

log = logging.getLogger(__name__)
FIRST_LOOK_S: Final = 20.0  # how long registration waits for slow drivers
FIRST_CONTACT_S: Final = 5.0  # a runtime that is there answers within moments
LAST_BINDS_S: Final = 2.0  # binds that were under way when we said that we go
LULL_S: Final = 4.0  # a runtime that makes containers one after the other asks more often than this
DRAIN_S: Final = 25.0  # kubelet gives a pod 30 s to end


@dataclass(frozen=True, slots=True)
class Settings:
    kubeconfig: Path | None = None
    context: str | None = None
    node: str | None = None
    vendors: tuple[str, ...] = ()  # none: every profile that has a driver
    units: dict[str, str] = field(default_factory=dict)
    kubelet: Path = Path("/var/lib/kubelet")
    roots: Roots = field(default_factory=Roots)
    host_root: Path = Path("/")  # for tools and files that enforce shares
    host: str = "0.0.0.0"  # noqa: S104 – probes come from kubelet, on any of the node's addresses
    port: int = 0
    watch_health: bool = True
    delivery: str = "auto"
    cdi: Path = Path("/var/run/cdi")
    nri_socket: Path = Path("/var/run/nri/nri.sock")
    runtime_files: Files = field(default_factory=Files)


class RuntimeChangedError(Exception):
    """What was decided at the start is not right any more; the next start decides anew."""


class Agent:
    def __init__(self, settings: Settings, catalog: Catalog, client: Client, node: str) -> None:
        self._settings = settings
        self._catalog = catalog
        self._client = client
        self._node = node
        self._metrics = Metrics(node)
        self._keepers: dict[str, Keeper] = {}
        self._shelf = Shelf()
        events = Events(client, component="accelshare-agent", clock=time.time)
        self._publisher = Publisher(client, node, self._shelf)
        self._desk = Desk(
            self._shelf, exists=lambda path: self._on_host(path).exists(), node_labels=lambda: self._publisher.labels
        )
        self._answers = Answers(self._shelf, self._desk.pods, on_host=self._on_host, node_labels=lambda: self._publisher.labels)
        count = self._metrics.deliveries.labels
        profiles = {profile.name: profile for profile in catalog}
        self._repairs = Repairs(client, events, profiles, replaced=count("replaced").inc)
        self._answers.delivered = self._was_delivered
        self._answers.corrected = lambda _pod: count("corrected").inc()
        self._answers.refused = count("refused").inc
        self._nri = NriWay(
            self._shelf,
            self._answers,
            self._repairs,
            socket=settings.nri_socket,
            files=settings.runtime_files,
            device_plugins=settings.kubelet / "device-plugins",
            on_verdict=self._on_verdict,
        )
        self._way: Delivery = DevicePluginWay(self._shelf, self._desk, settings.kubelet / "device-plugins")
        self._changed_its_mind = asyncio.Event()
        self._reconcile = Reconcile(
            client, self._desk, self._shelf, catalog, events, self._metrics, kubelet=settings.kubelet, now_ns=time.time_ns
        )
        self._desk.changed = self._something_was_given
        self._desk.served = self._metrics.waits.served
        # A card that was held whole may be sliced again, or the other way round, once kubelet has let go of it.
        self._reconcile.heard = self._show
        self._shelf.on_change(self._show)
        self._shelf.on_change(self._count)
        self._cdi = CdiFiles(settings.cdi, self._shelf, exists=lambda path: self._on_host(path).exists())
        self._shelf.on_change(self._cdi.write)
        self._listed = asyncio.Event()
        self._leaving = False
        self._last_delivery = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        profiles = self._enabled()
        tasks: list[asyncio.Task[None]] = []

        def start(work: Awaitable[None]) -> asyncio.Task[None]:
            task = asyncio.ensure_future(work)
            tasks.append(task)
            return task

        port = await status.serve(self._settings.host, self._settings.port, self._pages()) if self._settings.port else None
        try:
            start(self._publisher.watch())
            start(self._follow_pods())
            await self._unless_broken(tasks, self._listed.wait())
            self._refuse_changed_units(profiles)
            await self._choose_way(start)
            self._keepers = {profile.name: self._keeper(profile) for profile in profiles}
            keepers = list(self._keepers.values())
            for keeper in keepers:
                start(keeper.run())
            with contextlib.suppress(TimeoutError):
                await self._unless_broken(tasks, asyncio.wait_for(_first_looks(keepers), FIRST_LOOK_S))
            for told_in, profile in ((profile.unhealthy, profile) for profile in profiles):
                if told_in is not None:
                    start(self._follow_told(profile, told_in))
            # kubelet's books first: what was served before we came is not waiting.
            if self._way is not self._nri:
                await self._reconcile.once()
                start(self._reconcile.run())
            start(self._publisher.run())
            start(self._repairs.run())
            start(self._way.run(self._delivers))
            if self._way is self._nri:
                self._nri.look_for_bare()
            await self._unless_broken(tasks, stop.wait())
            await self._leave()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if port is not None:
                port.close()

    async def _unless_broken(self, tasks: Iterable[asyncio.Task[None]], work: Awaitable[object]) -> None:
        """Wait, but not past the end of a task that should never end."""
        waiting = asyncio.ensure_future(work)
        done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
        if waiting not in done:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        for task in done:
            task.result()
        if waiting not in done:
            raise RuntimeError("a part of the agent ended by itself")

    async def _leave(self) -> None:
        """Say that we go, serve who is already bound, and only then end."""
        self._leaving = True
        for kind in self._shelf.kinds:
            self._shelf.set_delivers(kind, False)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._publisher.flushed(), DRAIN_S / 2)
        log.info("leaving waiting=%d", self._answers.waiting if self._way is self._nri else self._desk.waiting)
        deadline = time.monotonic() + DRAIN_S
        await asyncio.sleep(LAST_BINDS_S)
        self._cdi.leave({ask.kind for pod in self._desk.pods.values() if not pod.seen.ended for ask in pod.seen.request})
        if self._way is self._nri:
            # Whoever is left, say behind a large image, loses nothing but time: kubelet asks again until our successor answers.
            while self._answers.waiting and time.monotonic() < min(deadline, self._last_delivery + LULL_S):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            return
        while self._desk.waiting and time.monotonic() < deadline:  # noqa: ASYNC110 – kubelet's pace, looked at rarely
            await asyncio.sleep(0.1)
        await self._reconcile.once()

    async def _choose_way(self, start: Callable[[Awaitable[None]], object]) -> None:
        """The strongest that this node offers, or what was wished for. It stays for the life of this process."""
        wish = self._settings.delivery
        if wish != DevicePluginWay.name:
            start(self._nri.connect())
            if self._settings.nri_socket.exists():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._nri.connected.wait(), FIRST_CONTACT_S)
        verdict = self._nri.verdict
        if wish == NriWay.name or (wish == "auto" and verdict.insists):
            self._way = self._nri
            self._answers.manner = "delivers"
            self._shelf.set_delivery(NriWay.name, insists=verdict.insists)
        elif wish == "auto":
            self._answers.manner = "corrects"
            if self._nri.connected.is_set():
                kinds = frozenset(profile.name for profile in self._enabled() if correctable(profile))
                self._desk.by_record = self._reconcile.by_record = kinds
            way = f"{DevicePluginWay.name}+{NriWay.name}" if self._nri.connected.is_set() else DevicePluginWay.name
            self._shelf.set_delivery(way, insists=False)
            if self._nri.connected.is_set():
                start(self._unless_changed())
        else:
            self._shelf.set_delivery(DevicePluginWay.name, insists=False)
        log.info("delivery way=%s insists=%s why=%r", self._shelf.delivery, self._shelf.insists, verdict.why)
        if self._way is self._nri:
            start(self._unless_changed())
            if not verdict.insists:
                log.warning(
                    "delivery way=nri problem=%r",
                    f"containers may be made without their card while the agent is away: {verdict.why}",
                )

    def _on_verdict(self, verdict: Verdict) -> None:
        self._metrics.insists.set(verdict.insists)
        if self._answers.manner == "starting":
            return
        if self._settings.delivery == "auto" and verdict.insists != (self._way is self._nri):
            self._changed_its_mind.set()
        elif self._way is self._nri:
            self._shelf.set_delivery(NriWay.name, insists=verdict.insists)

    async def _unless_changed(self) -> None:
        await self._changed_its_mind.wait()
        raise RuntimeChangedError(
            f"the container runtime has changed ({self._nri.verdict.why}), and with it the right way of delivery: starting anew"
        )

    def _show(self) -> None:
        self._way.show()

    def _was_delivered(self, pod: NodePod) -> None:
        self._last_delivery = time.monotonic()
        self._metrics.deliveries.labels("delivered").inc()
        self._metrics.waits.served(pod.uid)
        self._repairs.delivered(pod)

    def _delivers(self, kind: str, delivers: bool) -> None:
        self._shelf.set_delivers(kind, delivers and not self._leaving)

    def _enabled(self) -> list[Profile]:
        chosen = [self._catalog[name] for name in self._settings.vendors] or list(self._catalog)
        return [profile for profile in chosen if profile.driver is not None]

    def _keeper(self, profile: Profile) -> Keeper:
        return Keeper(
            profile,
            registry.make(profile, roots=self._settings.roots),
            self._shelf,
            unit=self._settings.units.get(profile.name, self._settings.units.get("", "")),
            enforcement=lambda: self._enforced(profile),
            listed=self._way is not self._nri,
            watch_health=self._settings.watch_health,
        )

    async def _enforced(self, profile: Profile) -> Enforcement:
        settings = self._settings
        found = await probe(requirements(profile.enforcement), roots=settings.roots, host=settings.host_root)
        return choose(profile.enforcement, found)

    def _refuse_changed_units(self, profiles: Iterable[Profile]) -> None:
        """Amounts of pods that live here were asked in the old unit: in another one they would be something else."""
        published = self._publisher.published_units
        for profile in profiles:
            unit = self._settings.units.get(profile.name, self._settings.units.get("", "")) or profile.unit.default
            before = published.get(profile.name, unit)
            pods = [
                pod.name
                for pod in self._desk.pods.values()
                if not pod.seen.ended and any(ask.kind == profile.name and not ask.whole for ask in pod.seen.request)
            ]
            if before and before != unit and pods:
                raise UnitError(
                    f"{profile.name}: the memory unit of node {self._node} is {before!r} and cannot become {unit!r} while pods "
                    f"that asked in the old one are on it: {', '.join(sorted(pods)[:20])}; end them first, or keep {before!r}"
                )

    async def _follow_pods(self) -> None:
        """kubelet's own selector, so that pods arrive here in kubelet's order."""
        reflector: Reflector[NodePod] = Reflector(
            self._client,
            "/api/v1/pods",
            decode=NodePodReader(self._catalog).decode,
            identity=lambda pod: pod.uid,
            params={"fieldSelector": f"spec.nodeName={self._node}"},
        )
        listed: list[NodePod] | None = []
        async for change in reflector.changes():
            match change:
                case Seen(pod) if listed is not None:
                    listed.append(pod)
                case Seen(pod):
                    if pod.uid not in self._desk.pods:
                        self._metrics.waits.came(pod.uid)
                    self._desk.pod_seen(pod)
                    if pod.terminating:
                        self._metrics.waits.left(pod.uid)
                        self._reconcile.soon()
                case Gone(uid, _):
                    self._desk.pod_gone(uid)
                    self._metrics.waits.left(uid)
                    self._reconcile.soon()
                case Synced():
                    # After its own start kubelet takes what it finds by age.
                    for pod in sorted(listed or (), key=lambda pod: pod.seen.created):
                        self._desk.pod_seen(pod)
                    listed = None
                    self._listed.set()
                case Interrupted(problem, retry_in_s):
                    log.warning("interrupted what=pods retry_in_s=%.1f problem=%r", retry_in_s, problem)
            self._metrics.waiting.set(self._desk.waiting)

    async def _follow_told(self, profile: Profile, where: UnhealthyConfigMap) -> None:
        """The ConfigMap in which people mark cards ill."""
        reflector: Reflector[dict[str, str]] = Reflector(
            self._client,
            f"/api/v1/namespaces/{where.namespace}/configmaps",
            decode=told.decode,
            identity=lambda _: where.name_on(self._node),
            params={"fieldSelector": f"metadata.name={where.name_on(self._node)}"},
        )
        async for change in reflector.changes():
            if isinstance(change, Seen | Gone):
                data = change.obj if isinstance(change, Seen) else {}
                indexes, problem = told.indexes(data, where.key)
                if problem:
                    log.warning("told kind=%s configmap=%s problem=%r", profile.name, where.name_on(self._node), problem)
                self._shelf.set_told(profile.name, indexes, f"marked in ConfigMap {where.name_on(self._node)}")

    def _something_was_given(self) -> None:
        self._way.show()
        self._reconcile.soon()

    def _count(self) -> None:
        self._metrics.show(self._shelf)

    def _on_host(self, path: str) -> Path:
        in_dev = path.removeprefix("/dev/")
        return self._settings.roots.dev / in_dev if in_dev != path else Path(path)

    def _pages(self) -> dict[str, Callable[[], tuple[int, bytes]]]:
        def ready() -> tuple[int, bytes]:
            away = [name for name in self._shelf.kinds if not self._shelf.delivers.get(name, False)]
            if not self._shelf.kinds:
                return 503, b"no cards found yet"
            return (503, f"not delivering: {', '.join(away)}".encode()) if away else (200, b"ok")

        def metrics() -> tuple[int, bytes]:
            used = {name: keeper.used_mib() for name, keeper in self._keepers.items()}
            self._metrics.show_use(self._shelf.kinds.values(), used)
            return 200, self._metrics.text()

        return {"/livez": lambda: (200, b"ok"), "/readyz": ready, "/metrics": metrics}


async def _first_looks(keepers: Iterable[Keeper]) -> None:
    for keeper in keepers:
        await keeper.asked.wait()


async def serve(settings: Settings, catalog: Catalog) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for received in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(received, stop.set)
    cluster = config.load(settings.kubeconfig, context=settings.context)
    async with Client(cluster, user_agent=f"accelshare-agent/{__version__}") as client:
        node = await node_name(client, flag=settings.node, environ=os.environ)
        log.info("agent node=%s server=%s", node, cluster.server)
        await Agent(settings, catalog, client, node).run(stop)
    log.info("stopped")
