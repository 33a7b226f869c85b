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
from accelshare.agent.desk import Desk
from accelshare.agent.device_plugin.way import DevicePluginWay
from accelshare.agent.identity import node_name
from accelshare.agent.keeper import Keeper
from accelshare.agent.metrics import Metrics
from accelshare.agent.publisher import Publisher
from accelshare.agent.reconcile import Reconcile
from accelshare.agent.shelf import Shelf
from accelshare.agent.units import UnitError
from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.events import Events
from accelshare.kube.watch import Gone, Interrupted, Reflector, Seen, Synced
from accelshare.vendors.catalog import Catalog
from accelshare.vendors.drivers import registry
from accelshare.vendors.drivers.driver import Roots
from accelshare.vendors.enforcement import Enforcement, choose, requirements
from accelshare.vendors.probing import probe
from accelshare.vendors.profile import Profile, UnhealthyConfigMap
from accelshare.wire.node_pods import NodePod, NodePodReader

log = logging.getLogger(__name__)
FIRST_LOOK_S: Final = 20.0  # how long registration waits for slow drivers
LAST_BINDS_S: Final = 2.0  # binds that were under way when we said that we go
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
    host: str = "0.0.0.0"  # noqa: S104 – probes come from kubelet, on any of the node's addresses
    port: int = 0
    watch_health: bool = True


class Agent:
    def __init__(self, settings: Settings, catalog: Catalog, client: Client, node: str) -> None:
        self._settings = settings
        self._catalog = catalog
        self._client = client
        self._node = node
        self._metrics = Metrics()
        self._shelf = Shelf()
        events = Events(client, component="accelshare-agent", clock=time.time)
        self._publisher = Publisher(client, node, self._shelf, way=DevicePluginWay.name)
        self._desk = Desk(self._shelf, exists=self._exists, node_labels=lambda: self._publisher.labels)
        self._way = DevicePluginWay(self._shelf, self._desk, settings.kubelet / "device-plugins")
        self._reconcile = Reconcile(
            client, self._desk, self._shelf, catalog, events, self._metrics, kubelet=settings.kubelet, now_ns=time.time_ns
        )
        self._desk.changed = self._something_was_given
        # A card that was held whole may be sliced again, or the other way round, once kubelet has let go of it.
        self._reconcile.heard = self._way.show
        self._shelf.on_change(self._way.show)
        self._shelf.on_change(self._count)
        self._listed = asyncio.Event()
        self._leaving = False

    async def run(self, stop: asyncio.Event) -> None:
        profiles = self._enabled()
        keepers = [self._keeper(profile) for profile in profiles]
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
            for keeper in keepers:
                start(keeper.run())
            with contextlib.suppress(TimeoutError):
                await self._unless_broken(tasks, asyncio.wait_for(_first_looks(keepers), FIRST_LOOK_S))
            for told_in, profile in ((profile.unhealthy, profile) for profile in profiles):
                if told_in is not None:
                    start(self._follow_told(profile, told_in))
            # kubelet's books first: what was served before we came is not waiting.
            await self._reconcile.once()
            start(self._publisher.run())
            start(self._reconcile.run())
            start(self._way.run(self._delivers))
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
        log.info("leaving waiting=%d", self._desk.waiting)
        deadline = time.monotonic() + DRAIN_S
        await asyncio.sleep(LAST_BINDS_S)
        while self._desk.waiting and time.monotonic() < deadline:  # noqa: ASYNC110 – kubelet's pace, looked at rarely
            await asyncio.sleep(0.1)
        await self._reconcile.once()

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
            watch_health=self._settings.watch_health,
        )

    async def _enforced(self, profile: Profile) -> Enforcement:
        return choose(profile.enforcement, await probe(requirements(profile.enforcement), roots=self._settings.roots))

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
                    self._desk.pod_seen(pod)
                    if pod.terminating:
                        self._reconcile.soon()
                case Gone(uid, _):
                    self._desk.pod_gone(uid)
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
        for name, kind in self._shelf.kinds.items():
            self._metrics.delivers.labels(name).set(self._shelf.delivers.get(name, False))
            for card in kind.cards.values():
                self._metrics.card_healthy.labels(name, str(card.index)).set(card.healthy)

    def _exists(self, path: str) -> bool:
        in_dev = path.removeprefix("/dev/")
        return (self._settings.roots.dev / in_dev if in_dev != path else Path(path)).exists()

    def _pages(self) -> dict[str, Callable[[], tuple[int, bytes]]]:
        def ready() -> tuple[int, bytes]:
            away = [name for name in self._shelf.kinds if not self._shelf.delivers.get(name, False)]
            if not self._shelf.kinds:
                return 503, b"no cards found yet"
            return (503, f"not delivering: {', '.join(away)}".encode()) if away else (200, b"ok")

        return {"/livez": lambda: (200, b"ok"), "/readyz": ready, "/metrics": lambda: (200, self._metrics.text())}


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
