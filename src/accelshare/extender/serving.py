"""The extender process: lists nodes and pods, serves kube-scheduler, and stops on SIGTERM.

Belongs here: constructing the parts, the ports, signals, the order of starting and stopping. Never: the responses.
"""

import asyncio
import contextlib
import gc
import logging
import secrets
import signal
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from accelshare import __version__
from accelshare.dashboard.access import is_loopback
from accelshare.extender.admissions import Admissions
from accelshare.extender.binder import Binder
from accelshare.extender.decisions import Decisions
from accelshare.extender.failed_binds import FailedBinds
from accelshare.extender.feed import Feed
from accelshare.extender.fence import Fence
from accelshare.extender.gangs import GangHolds
from accelshare.extender.heap import return_free_memory
from accelshare.extender.leadership import Leadership
from accelshare.extender.metrics import Metrics
from accelshare.extender.promises.filter_wait import FilterWait
from accelshare.extender.promises.nominator import Nominator
from accelshare.extender.promises.plan import Plan
from accelshare.extender.requeue import Requeue
from accelshare.extender.resizer import Resizer
from accelshare.extender.routes import NotReady, Routes, Standby
from accelshare.extender.service_endpoints import ServiceEndpoints
from accelshare.extender.takeover import take_over, with_addresses
from accelshare.extender.tls import ServerTlsFiles, TlsReloader
from accelshare.http.server import Server, listen
from accelshare.kube import binding, config
from accelshare.kube.client import Client
from accelshare.kube.election import Election
from accelshare.kube.events import Events
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import LimitNeed
from accelshare.ledger.placing import POLICIES
from accelshare.vendors.catalog import Catalog
from accelshare.wire.pods import AgentIdentity, PodReader

if TYPE_CHECKING:  # most extenders serve no dashboard, and its imports take an eighth of the CPU of all imports
    from accelshare.dashboard.serving import Dashboard, DashboardSettings

log = logging.getLogger(__name__)
PROBE_BODY_BYTES: Final = 4096  # probes send no body
PROBE_HEAD_BYTES: Final = 8192
STOP_S: Final = 36.0  # from the signal to the end, at most: less than the pod's terminationGracePeriodSeconds
FINISH_S: Final = 0.5  # for binds in flight, before the lease is released
# Files that are neither connections nor their binds: standard streams, the loop, two ports, the log, two watches, events, fences.
OWN_FILES: Final = 40
DASHBOARD_OWN_FILES: Final = 16  # its port, its watches, and what an explanation reads
MAX_CONNECTIONS: Final = 1000
MAX_PROBE_CONNECTIONS: Final = 100


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    host: str
    port: int
    kubeconfig: Path | None = None
    context: str | None = None
    policy: str = "binpack"
    shortlist: int = 1
    max_body_mib: int = 64
    tls: ServerTlsFiles | None = None
    probe_port: int = 0  # 0: probes use the port above
    agents: AgentIdentity | None = None
    default_limits: LimitNeed = LimitNeed.ANY
    replica: "ReplicaSettings | None" = None  # None: the only extender
    resizes: bool = False  # an admission policy lets nobody but us write grants of resizes
    dashboard: "DashboardSettings | None" = None
    promises: int = 0  # plan ahead and nominate nodes while so many pods wait; 0: never
    promises_from_nodes: int = 0  # and only in a cluster of so many nodes


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """One of several extenders: the Lease that decides between them, their Service, and this one's own pod."""

    lease: str
    namespace: str  # of all three
    pod: str
    service: str = ""  # empty: something else leads to the holder


async def serve(settings: ExtenderSettings, catalog: Catalog) -> None:
    """Run until SIGTERM or SIGINT, then finish what is in flight."""
    metrics = Metrics()
    ledger = Ledger(POLICIES[settings.policy])
    # One for all parts: a pod that they read differently could be bound to a node that filter would refuse.
    reader = PodReader(catalog, agents=settings.agents, default_limits=settings.default_limits)
    cluster = config.load(settings.kubeconfig, context=settings.context)
    tls = TlsReloader(settings.tls) if settings.tls is not None else None
    port = listen(settings.host, settings.port)
    probe_port = listen(settings.host, settings.probe_port) if settings.probe_port else None
    limits = connection_limits(reserved=_dashboard_files(settings.dashboard) if settings.dashboard is not None else 0)
    user_agent = f"accelshare-extender/{__version__}"
    # Not compressed: the extender runs in the cluster, where that takes longer than to send 50,000 pods as they are.
    async with Client(cluster, user_agent=user_agent, compressed=False, on_retry=lambda _: metrics.api_retries.inc()) as client:
        replica = settings.replica
        leadership = _leadership(client, replica, metrics) if replica is not None else None
        permit: binding.Permit = leadership or binding.ALWAYS
        failed_binds = FailedBinds(ledger)
        plan = _plan(settings, ledger, catalog, metrics, failed_binds) if settings.promises else None
        events = Events(client, component="accelshare-extender", clock=time.time)
        requeue = Requeue(client, ledger, metrics, clock=time.monotonic, may_write=permit.granted)

        def capacity_freed(node: str) -> None:
            requeue.capacity_freed(node)
            resizer.capacity_freed(node)

        resizer = Resizer(
            client,
            ledger,
            catalog,
            events,
            metrics,
            enabled=settings.resizes,
            on_free_capacity=capacity_freed,
            may_write=permit.granted,
        )
        gangs = GangHolds(ledger, clock=time.monotonic, on_free_capacity=capacity_freed, count=metrics.gang_hold_ended)
        decisions = Decisions(
            ledger, catalog, reader, shortlist=settings.shortlist, failed_binds=failed_binds, plan=plan, gangs=gangs
        )
        fence = Fence(client, ledger, reader, on_free_capacity=capacity_freed, resizes=settings.resizes)
        admissions = Admissions(ledger, on_free_capacity=capacity_freed)
        binder = Binder(
            client,
            ledger,
            catalog,
            reader,
            fence=fence,
            text=decisions.text,
            now_ns=time.time_ns,
            on_free_capacity=capacity_freed,
            admissions=admissions,
            permit=permit,
            promised=plan.assignment if plan is not None else lambda _: None,
            gangs=gangs,
        )
        promises: _Promises | None = None
        if plan is not None:
            filter_wait = FilterWait(plan)
            nominator = Nominator(
                client,
                plan,
                ledger,
                may_write=lambda: not_ready() is None,
                on_end=filter_wait.changed,
            )
            promises = _Promises(nominator, filter_wait)
        feed = Feed(
            client,
            ledger,
            catalog,
            reader,
            events,
            metrics,
            text=decisions.text,
            on_free_capacity=capacity_freed,
            admissions=admissions,
            resizer=resizer,
            may_write=permit.granted,
            plan=plan,
            on_plan_change=promises.plan_changed if promises is not None else lambda: None,
        )
        endpoints = _endpoints(client, replica, settings.port, permit) if replica is not None and replica.service else None

        def not_ready() -> NotReady | Standby | None:
            return _not_ready(feed, fence, leadership)

        metrics.ready.set_function(lambda: float(not_ready() is None))
        metrics.leader.set_function(lambda: float(permit.granted()))
        metrics.lease_age.set_function(lambda: (leadership.seconds_since_renewal or 0.0) if leadership is not None else 0.0)
        routes = Routes(
            ledger=ledger,
            catalog=catalog,
            decisions=decisions,
            binder=binder,
            metrics=metrics,
            not_ready=not_ready,
            requeue=requeue,
            filter_wait=promises.filter_wait if promises is not None else None,
        )
        # The lists contain no garbage, and garbage collection while they are read would take a tenth of the time.
        gc.disable()
        following = asyncio.create_task(feed.run())
        listed = asyncio.create_task(_when_listed(feed))
        if replica is None or leadership is None:
            ready = asyncio.create_task(_decide_alone(feed, fence, requeue, resizer))
            forever = {following, asyncio.create_task(requeue.run())}
        else:
            ready = asyncio.create_task(_decide_as_holder(client, feed, fence, requeue, resizer, leadership, endpoints, replica))
            forever = {following, asyncio.create_task(requeue.run()), asyncio.create_task(_compete(feed, leadership, endpoints))}
            if endpoints is not None:
                forever.add(asyncio.create_task(endpoints.run()))
        forever.add(asyncio.create_task(gangs.run()))
        forever.add(asyncio.create_task(return_free_memory()))
        if promises is not None:
            forever.add(asyncio.create_task(promises.nominator.run()))
        stopping = asyncio.create_task(_stop_signal().wait())
        max_body_bytes = settings.max_body_mib * 2**20
        async with contextlib.AsyncExitStack() as other_ports:
            if probe_port is not None:
                # It serves until the process ends: a pod that finishes its requests in flight is alive.
                probes = Server(
                    routes.handle_probe,
                    probe_port,
                    max_body_bytes=PROBE_BODY_BYTES,
                    max_head_bytes=PROBE_HEAD_BYTES,
                    max_connections=limits.probes,
                )
                await other_ports.enter_async_context(probes)
            if settings.dashboard is not None:
                page = _dashboard(settings.dashboard, settings, client, ledger, catalog, reader, ready=feed.complete)
                await other_ports.enter_async_context(page)
            context = _counted(tls, metrics) if tls is not None else None
            async with Server(routes.handle, port, tls=context, max_body_bytes=max_body_bytes, max_connections=limits.scheduler):
                log.info("serving listen=%s:%d tls=%s server=%s", settings.host, settings.port, tls is not None, cluster.server)
                broken = await _until_stopped(stopping, starting={listed, ready}, forever=forever)
                ends = time.monotonic() + STOP_S
                if leadership is not None:
                    # The next holder makes the API server refuse what is in flight, so this one need not wait for it.
                    await binder.finish(within_s=FINISH_S)
                    await leadership.release(lambda: fence.unfenced == 0 and binder.settled() and resizer.settled())
            for task in {listed, ready, stopping, *forever} - {following}:
                task.cancel()
            await binder.stop(within_s=max(1.0, ends - time.monotonic()) if leadership is None else 0.0)
            admissions.stop()
            await resizer.stop()
            if endpoints is not None:
                await endpoints.withdraw()
        for task in broken:
            task.result()
        following.cancel()
        await asyncio.gather(*forever, listed, ready, stopping, return_exceptions=True)
        log.info("stopped")


def _plan(settings: ExtenderSettings, ledger: Ledger, catalog: Catalog, metrics: Metrics, failed_binds: FailedBinds) -> Plan:
    managed = frozenset(name for profile in catalog.profiles for name in profile.resources.requestable)
    plan = Plan(
        ledger,
        managed=managed,
        shortest_queue=settings.promises,
        fewest_nodes=settings.promises_from_nodes,
        clock=time.monotonic,
        count=metrics.promise_ended,
        avoid=failed_binds.nodes,
    )
    metrics.promises_open.set_function(lambda: float(plan.promises))
    return plan


class _Promises(NamedTuple):
    """What acts on the plan."""

    nominator: Nominator
    filter_wait: FilterWait

    def plan_changed(self) -> None:
        self.nominator.wake()
        self.filter_wait.changed()


def _leadership(client: Client, replica: ReplicaSettings, metrics: Metrics) -> Leadership:
    # A restarted process is another one: what the earlier one had sent may still be on its way.
    election = Election(f"{replica.pod}_{secrets.token_hex(4)}")
    on_transition = metrics.lease_transitions.inc
    return Leadership(client, election, namespace=replica.namespace, name=replica.lease, on_transition=on_transition)


def _endpoints(client: Client, replica: ReplicaSettings, port: int, permit: binding.Permit) -> ServiceEndpoints:
    return ServiceEndpoints(client, replica.namespace, replica.service, port=port, may_write=permit.granted)


def _dashboard_files(page: "DashboardSettings") -> int:
    """How many files it may have open. Raises AccessError if everyone could read it."""
    from accelshare.dashboard.serving import MAX_CONNECTIONS

    page.check()
    return MAX_CONNECTIONS + DASHBOARD_OWN_FILES


def _dashboard(
    page: "DashboardSettings",
    settings: ExtenderSettings,
    client: Client,
    ledger: Ledger,
    catalog: Catalog,
    reader: PodReader,
    *,
    ready: asyncio.Event,
) -> "Dashboard":
    from accelshare.dashboard.cluster_watch import ClusterWatch
    from accelshare.dashboard.serving import Dashboard

    watch = ClusterWatch(client, catalog, reader, ledger=ledger)
    return Dashboard(page, client, watch, catalog, reader, ready=ready, tls=_page_tls(page, settings))


def _page_tls(page: "DashboardSettings", settings: ExtenderSettings) -> Callable[[], ssl.SSLContext] | None:
    """The dashboard has the extender's certificate, without client certificates, which browsers do not have."""
    if settings.tls is None or is_loopback(page.host):
        return None
    return TlsReloader(ServerTlsFiles(settings.tls.certificate, settings.tls.key)).context


async def _until_stopped(
    stopping: asyncio.Task[bool], *, starting: set[asyncio.Task[None]], forever: set[asyncio.Task[None]]
) -> list[asyncio.Task[None]]:
    """Wait for the stop signal, or for a task that ends and should not; return such tasks."""
    watched: set[asyncio.Task[None]] = starting | forever
    while True:
        await asyncio.wait({stopping, *watched}, return_when=asyncio.FIRST_COMPLETED)
        watched -= {task for task in starting if task.done() and task.exception() is None}
        broken = [task for task in watched if task.done()]
        if stopping.done() or broken:
            return broken


def _counted(tls: TlsReloader, metrics: Metrics) -> Callable[[], ssl.SSLContext]:
    """The context of each new connection, which is counted: a handshake takes several times the CPU of a call."""

    def context() -> ssl.SSLContext:
        metrics.tls_connections.inc()
        return tls.context()

    return context


async def _when_listed(feed: Feed) -> None:
    await feed.complete.wait()
    # Listed objects live as long as the process and are no garbage, so the garbage collector need never traverse them.
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000)  # a decision leaves hardly a cycle behind, and the default threshold costs 3 % of all CPU


async def _decide_alone(feed: Feed, fence: Fence, requeue: Requeue, resizer: Resizer) -> None:
    await feed.complete.wait()
    await fence.fence_pending()
    requeue.take_over()
    resizer.start()
    log.info("ready")


async def _compete(feed: Feed, leadership: Leadership, endpoints: ServiceEndpoints | None) -> None:
    """Only with a complete ledger: another extender may have one already."""
    await feed.complete.wait()
    owner = await endpoints.prepare() if endpoints is not None else None
    await leadership.run(owner)


async def _decide_as_holder(
    client: Client,
    feed: Feed,
    fence: Fence,
    requeue: Requeue,
    resizer: Resizer,
    leadership: Leadership,
    endpoints: ServiceEndpoints | None,
    replica: ReplicaSettings,
) -> None:
    await leadership.taken.wait()
    own = await take_over(client, feed, fence, leadership, namespace=replica.namespace, pod=replica.pod)
    requeue.take_over()
    resizer.start()
    log.info("ready")
    if endpoints is not None:
        await endpoints.publish(await with_addresses(client, own, namespace=replica.namespace))


def _not_ready(feed: Feed, fence: Fence, leadership: Leadership | None) -> NotReady | Standby | None:
    """What must be done before the first decision."""
    if feed.waiting_for:
        return NotReady("listed", " and ".join(feed.waiting_for))
    if leadership is not None and not leadership.read:
        return NotReady("read", "the lease")
    if leadership is not None and not leadership.granted():
        return Standby(leadership.holder)
    if fence.unfenced != 0:
        return NotReady("fenced", f"{fence.unfenced or 'all'} pending pods", warm=leadership is not None)
    return None


def _stop_signal() -> asyncio.Event:
    """Set by SIGTERM and SIGINT."""
    stop_requested = asyncio.Event()

    def stop(received: signal.Signals) -> None:
        log.info("stopping signal=%s", received.name)
        stop_requested.set()

    loop = asyncio.get_running_loop()
    for received in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(received, stop, received)
    return stop_requested


class ConnectionLimits(NamedTuple):
    """How many connections each port may have at once."""

    scheduler: int
    probes: int


def connection_limits(*, reserved: int = 0) -> ConnectionLimits:
    """Limits that leave each client's bind a connection to the API server, under the limit of open files, which is raised.

    `reserved`: files of other parts.
    """
    files = _open_files(reserved) - OWN_FILES - reserved
    probes = min(MAX_PROBE_CONNECTIONS, max(2, files // 8))
    return ConnectionLimits(min(MAX_CONNECTIONS, max(4, (files - probes) // 2)), probes)


def _open_files(reserved: int) -> int:
    """The process's limit of open files, raised to what all connections need if that is allowed."""
    needed = OWN_FILES + reserved + 2 * MAX_CONNECTIONS + MAX_PROBE_CONNECTIONS
    if sys.platform == "win32":
        return needed
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return needed if soft == resource.RLIM_INFINITY else soft
