"""The extender as a process: list, then serve, until told to stop.

Belongs here: putting the parts together, the port, signals, the order of starting and ending. Never: what is answered.
"""

import asyncio
import contextlib
import gc
import logging
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from accelshare import __version__
from accelshare.extender.admissions import Admissions
from accelshare.extender.binder import Binder
from accelshare.extender.deciding import Deciding
from accelshare.extender.feed import Feed
from accelshare.extender.fence import Fence
from accelshare.extender.listening import listen, most_callers
from accelshare.extender.metrics import Metrics
from accelshare.extender.port import Port
from accelshare.extender.probes import Probes
from accelshare.extender.requeue import Requeue
from accelshare.extender.routes import NotDone, Routes
from accelshare.extender.tls import Reloading, TlsFiles
from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.events import Events
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.placing import POLICIES
from accelshare.vendors.catalog import Catalog
from accelshare.wire.pods import AgentIdentity

log = logging.getLogger(__name__)
PROBE_BYTES: Final = 4096  # probes send no body
PROBE_HEAD_BYTES: Final = 8192
LEAVE_S: Final = 36.0  # from the signal to the end, at most: less than the pod's terminationGracePeriodSeconds


@dataclass(frozen=True, slots=True)
class Settings:
    host: str
    port: int
    kubeconfig: Path | None = None
    context: str | None = None
    policy: str = "binpack"
    shortlist: int = 1
    largest_body_mib: int = 64
    tls: TlsFiles | None = None
    probe_port: int = 0  # 0: probes use the first port
    agents: AgentIdentity | None = None


async def serve(settings: Settings, catalog: Catalog) -> None:
    """Run until SIGTERM or SIGINT, then finish what is in flight."""
    metrics = Metrics()
    ledger = Ledger(POLICIES[settings.policy])
    cluster = config.load(settings.kubeconfig, context=settings.context)
    tls = Reloading(settings.tls) if settings.tls is not None else None
    port = listen(settings.host, settings.port)
    probe_port = listen(settings.host, settings.probe_port) if settings.probe_port else None
    most = most_callers()
    agent = f"accelshare-extender/{__version__}"
    async with Client(cluster, user_agent=agent, on_retry=lambda _: metrics.api_retries.inc()) as client:
        deciding = Deciding(ledger, catalog, shortlist=settings.shortlist)
        events = Events(client, component="accelshare-extender", clock=time.time)
        requeue = Requeue(client, ledger, metrics, clock=time.monotonic)
        fence = Fence(client, ledger, catalog, room=requeue.room)
        admissions = Admissions(ledger, room=requeue.room)
        binder = Binder(
            client,
            ledger,
            catalog,
            fence=fence,
            text=deciding.text,
            now_ns=time.time_ns,
            room=requeue.room,
            admissions=admissions,
        )
        feed = Feed(
            client,
            ledger,
            catalog,
            events,
            metrics,
            text=deciding.text,
            room=requeue.room,
            admissions=admissions,
            agents=settings.agents,
        )
        routes = Routes(
            ledger=ledger,
            catalog=catalog,
            deciding=deciding,
            binder=binder,
            metrics=metrics,
            not_done=lambda: _not_done(feed, fence),
            requeue=requeue,
        )
        # While the lists come in nothing of them is garbage, and looking for some would take a tenth of the time.
        gc.disable()
        following = asyncio.create_task(feed.run())
        ready = asyncio.create_task(_when_ready(feed, fence, metrics))
        waking_up = asyncio.create_task(requeue.run())
        stopping = asyncio.create_task(_stop_signal().wait())
        largest_body = settings.largest_body_mib * 2**20
        async with contextlib.AsyncExitStack() as until_the_end:
            if probe_port is not None:
                # It answers until the very end: a pod that is finishing what is in flight is alive.
                probes = Port(
                    Probes(routes.answer).answer,
                    probe_port,
                    largest_body=PROBE_BYTES,
                    longest_head=PROBE_HEAD_BYTES,
                    most_callers=most.probing,
                )
                await until_the_end.enter_async_context(probes)
            context = tls.context if tls is not None else None
            async with Port(routes.answer, port, tls=context, largest_body=largest_body, most_callers=most.serving):
                log.info("serving listen=%s:%d tls=%s server=%s", settings.host, settings.port, tls is not None, cluster.server)
                broken = await _until_stopped(stopping, starting=ready, forever={following, waking_up})
                ends = time.monotonic() + LEAVE_S
            for task in (ready, waking_up, stopping):
                task.cancel()
            await binder.stop(within_s=max(1.0, ends - time.monotonic()))
            admissions.stop()
        for task in broken:
            task.result()
        following.cancel()
        await asyncio.gather(following, ready, waking_up, stopping, return_exceptions=True)
        log.info("stopped")


async def _until_stopped(
    stopping: asyncio.Task[bool], *, starting: asyncio.Task[None], forever: set[asyncio.Task[None]]
) -> list[asyncio.Task[None]]:
    """Until we are asked to stop, or a task ends that should not: those are given back."""
    watched: set[asyncio.Task[None]] = {starting, *forever}
    while True:
        await asyncio.wait({stopping, *watched}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and starting.exception() is None:
            watched.discard(starting)
        broken = [task for task in watched if task.done()]
        if stopping.done() or broken:
            return broken


async def _when_ready(feed: Feed, fence: Fence, metrics: Metrics) -> None:
    await feed.whole.wait()
    # What was listed lives as long as the process: the collector need not look at it again.
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)  # a decision leaves hardly a cycle behind, and looking for one after every few takes 3 % of all time
    await fence.fence_pending()
    metrics.ready.set(1)
    log.info("ready")


def _not_done(feed: Feed, fence: Fence) -> NotDone | None:
    """What must be done before anything can be decided."""
    if feed.waiting_for:
        return NotDone("listed", " and ".join(feed.waiting_for))
    if fence.unfenced != 0:
        return NotDone("fenced", f"{fence.unfenced or 'all'} pending pods")
    return None


def _stop_signal() -> asyncio.Event:
    """Set when the process is asked to end."""
    asked = asyncio.Event()

    def stop(received: signal.Signals) -> None:
        log.info("stopping signal=%s", received.name)
        asked.set()

    loop = asyncio.get_running_loop()
    for received in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(received, stop, received)
    return asked
