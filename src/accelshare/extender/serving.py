"""The extender as a process: list, then serve, until told to stop.

Belongs here: putting the parts together, the port, signals, the order of starting and ending. Never: what is answered.
"""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn

from accelshare import __version__
from accelshare.extender.app import App
from accelshare.extender.binder import Binder
from accelshare.extender.deciding import Deciding
from accelshare.extender.feed import Feed
from accelshare.extender.metrics import Metrics
from accelshare.extender.one_write import OneWriteProtocol
from accelshare.extender.routes import Routes
from accelshare.extender.tls import Reloading, TlsFiles
from accelshare.extender.waking import Waking
from accelshare.kube import config
from accelshare.kube.client import Client
from accelshare.kube.events import Events
from accelshare.ledger.book import Ledger
from accelshare.ledger.policies import POLICIES
from accelshare.vendors.catalog import Catalog

log = logging.getLogger(__name__)
# kube-scheduler keeps idle connections for 90 s and does not send a POST again when we close one under it.
KEEP_ALIVE_S: Final = 120
DRAIN_S: Final = 30
GOODBYE_S: Final = 1.0


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


class CannotServeError(Exception):
    """The port cannot be had; the message says which and why."""


class _Server(uvicorn.Server):
    """uvicorn, but the signals are ours (it would raise them again when it is done), and so is the patience at the end.

    What is in flight is finished. A peer that does not answer our goodbye, as a dead one does not over TLS, is left alone.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        saying_goodbye = asyncio.create_task(self._leave_the_silent())
        await super().shutdown(sockets)
        saying_goodbye.cancel()

    async def _leave_the_silent(self) -> None:
        while self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks)
        await asyncio.sleep(GOODBYE_S)
        self.force_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(settings: Settings, catalog: Catalog) -> None:
    """Run until SIGTERM or SIGINT, then finish what is in flight."""
    metrics = Metrics()
    ledger = Ledger(POLICIES[settings.policy])
    cluster = config.load(settings.kubeconfig, context=settings.context)
    tls = Reloading(settings.tls) if settings.tls is not None else None
    port = _listen(settings.host, settings.port)
    agent = f"accelshare-extender/{__version__}"
    async with Client(cluster, user_agent=agent, on_retry=lambda _: metrics.api_retries.inc()) as client:
        deciding = Deciding(ledger, catalog, shortlist=settings.shortlist)
        events = Events(client, component="accelshare-extender", clock=time.time)
        binder = Binder(client, ledger, catalog, text=deciding.text, now_ns=time.time_ns)
        waking = Waking(client, ledger, metrics, clock=time.monotonic)
        feed = Feed(client, ledger, catalog, events, metrics, text=deciding.text, room=waking.room)
        routes = Routes(
            ledger=ledger,
            catalog=catalog,
            deciding=deciding,
            binder=binder,
            metrics=metrics,
            waiting_for=lambda: feed.waiting_for,
            waking=waking,
        )
        server = _Server(_uvicorn_config(App(routes.answer, largest_body=settings.largest_body_mib * 2**20), settings, tls))
        _stop_on_signals(server)
        # While the lists come in nothing of them is garbage, and looking for some would take a tenth of the time.
        gc.disable()
        following = asyncio.create_task(feed.run())
        ready = asyncio.create_task(_when_whole(feed, metrics))
        waking_up = asyncio.create_task(waking.run())
        serving = asyncio.create_task(server.serve(sockets=[port]))
        log.info("serving listen=%s:%d tls=%s server=%s", settings.host, settings.port, tls is not None, cluster.server)
        await asyncio.wait([following, serving], return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
        ready.cancel()
        waking_up.cancel()
        await binder.stop()
        if following.done():
            following.result()
        following.cancel()
        await asyncio.gather(following, ready, waking_up, return_exceptions=True)
        log.info("stopped")


async def _when_whole(feed: Feed, metrics: Metrics) -> None:
    await feed.whole.wait()
    # What was listed lives as long as the process: the collector need not look at it again.
    gc.enable()
    gc.collect()
    gc.freeze()
    metrics.ready.set(1)
    log.info("ready")


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by each connection; without it an answer can wait 40 ms for the peer's acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.bind(address)
    except OSError as error:
        raise CannotServeError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listening


def _stop_on_signals(server: uvicorn.Server) -> None:
    def stop(received: signal.Signals) -> None:
        log.info("stopping signal=%s", received.name)
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for received in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(received, stop, received)


def _uvicorn_config(app: App, settings: Settings, tls: Reloading | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="none",
        http=OneWriteProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
        ssl_context_factory=(lambda _config, _default: tls.context) if tls is not None else None,
        ssl_certfile=str(settings.tls.certificate) if settings.tls is not None else None,
        ssl_keyfile=str(settings.tls.key) if settings.tls is not None else None,
    )
