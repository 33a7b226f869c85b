"""The extender process: lists nodes and pods, serves kube-scheduler, and stops on SIGTERM.

Belongs here: constructing the parts, the ports, signals, the order of starting and stopping. Never: the responses.
"""

import asyncio
import contextlib
import gc
import logging
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from accelshare import __version__
from accelshare.extender.admissions import Admissions
from accelshare.extender.binder import Binder
from accelshare.extender.decisions import Decisions
from accelshare.extender.feed import Feed
from accelshare.extender.fence import Fence
from accelshare.extender.metrics import Metrics
from accelshare.extender.requeue import Requeue
from accelshare.extender.routes import NotReady, Routes
from accelshare.extender.tls import ServerTlsFiles, TlsReloader
from accelshare.http.server import Server, listen
from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.events import Events
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import LimitNeed
from accelshare.ledger.placing import POLICIES
from accelshare.vendors.catalog import Catalog
from accelshare.wire.pods import AgentIdentity, PodReader

log = logging.getLogger(__name__)
PROBE_BODY_BYTES: Final = 4096  # probes send no body
PROBE_HEAD_BYTES: Final = 8192
STOP_S: Final = 36.0  # from the signal to the end, at most: less than the pod's terminationGracePeriodSeconds
# Files that are neither connections nor their binds: standard streams, the loop, two ports, the log, two watches, events, fences.
OWN_FILES: Final = 40
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
    limits = connection_limits()
    user_agent = f"accelshare-extender/{__version__}"
    async with Client(cluster, user_agent=user_agent, on_retry=lambda _: metrics.api_retries.inc()) as client:
        decisions = Decisions(ledger, catalog, reader, shortlist=settings.shortlist)
        events = Events(client, component="accelshare-extender", clock=time.time)
        requeue = Requeue(client, ledger, metrics, clock=time.monotonic)
        fence = Fence(client, ledger, reader, on_free_capacity=requeue.capacity_freed)
        admissions = Admissions(ledger, on_free_capacity=requeue.capacity_freed)
        binder = Binder(
            client,
            ledger,
            catalog,
            reader,
            fence=fence,
            text=decisions.text,
            now_ns=time.time_ns,
            on_free_capacity=requeue.capacity_freed,
            admissions=admissions,
        )
        feed = Feed(
            client,
            ledger,
            catalog,
            reader,
            events,
            metrics,
            text=decisions.text,
            on_free_capacity=requeue.capacity_freed,
            admissions=admissions,
        )
        routes = Routes(
            ledger=ledger,
            catalog=catalog,
            decisions=decisions,
            binder=binder,
            metrics=metrics,
            not_ready=lambda: _not_ready(feed, fence),
            requeue=requeue,
        )
        # The lists contain no garbage, and garbage collection while they are read would take a tenth of the time.
        gc.disable()
        following = asyncio.create_task(feed.run())
        ready = asyncio.create_task(_when_ready(feed, fence, metrics))
        requeueing = asyncio.create_task(requeue.run())
        stopping = asyncio.create_task(_stop_signal().wait())
        max_body_bytes = settings.max_body_mib * 2**20
        async with contextlib.AsyncExitStack() as probe_server:
            if probe_port is not None:
                # It serves until the process ends: a pod that finishes its requests in flight is alive.
                probes = Server(
                    routes.handle_probe,
                    probe_port,
                    max_body_bytes=PROBE_BODY_BYTES,
                    max_head_bytes=PROBE_HEAD_BYTES,
                    max_connections=limits.probes,
                )
                await probe_server.enter_async_context(probes)
            context = tls.context if tls is not None else None
            async with Server(routes.handle, port, tls=context, max_body_bytes=max_body_bytes, max_connections=limits.scheduler):
                log.info("serving listen=%s:%d tls=%s server=%s", settings.host, settings.port, tls is not None, cluster.server)
                broken = await _until_stopped(stopping, starting=ready, forever={following, requeueing})
                ends = time.monotonic() + STOP_S
            for task in (ready, requeueing, stopping):
                task.cancel()
            await binder.stop(within_s=max(1.0, ends - time.monotonic()))
            admissions.stop()
        for task in broken:
            task.result()
        following.cancel()
        await asyncio.gather(following, ready, requeueing, stopping, return_exceptions=True)
        log.info("stopped")


async def _until_stopped(
    stopping: asyncio.Task[bool], *, starting: asyncio.Task[None], forever: set[asyncio.Task[None]]
) -> list[asyncio.Task[None]]:
    """Wait for the stop signal, or for a task that ends and should not; return such tasks."""
    watched: set[asyncio.Task[None]] = {starting, *forever}
    while True:
        await asyncio.wait({stopping, *watched}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and starting.exception() is None:
            watched.discard(starting)
        broken = [task for task in watched if task.done()]
        if stopping.done() or broken:
            return broken


async def _when_ready(feed: Feed, fence: Fence, metrics: Metrics) -> None:
    await feed.complete.wait()
    # Listed objects live as long as the process, so the garbage collector need not traverse them again.
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)  # a decision leaves hardly a cycle behind, and the default threshold costs 3 % of all CPU
    await fence.fence_pending()
    metrics.ready.set(1)
    log.info("ready")


def _not_ready(feed: Feed, fence: Fence) -> NotReady | None:
    """What must be done before the first decision."""
    if feed.waiting_for:
        return NotReady("listed", " and ".join(feed.waiting_for))
    if fence.unfenced != 0:
        return NotReady("fenced", f"{fence.unfenced or 'all'} pending pods")
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


def connection_limits() -> ConnectionLimits:
    """Limits that leave each client's bind a connection to the API server, under the limit of open files, which is raised."""
    files = _open_files() - OWN_FILES
    probes = min(MAX_PROBE_CONNECTIONS, max(2, files // 8))
    return ConnectionLimits(min(MAX_CONNECTIONS, max(4, (files - probes) // 2)), probes)


def _open_files() -> int:
    """The process's limit of open files, raised to what all connections need if that is allowed."""
    needed = OWN_FILES + 2 * MAX_CONNECTIONS + MAX_PROBE_CONNECTIONS
    if sys.platform == "win32":
        return needed
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return needed if soft == resource.RLIM_INFINITY else soft
