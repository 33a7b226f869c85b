"""The dashboard's parts, put together and served on one port, in a process of its own or inside the extender.

Belongs here: constructing the parts, the port, the tasks, when the next snapshot is built. Never: the responses.
"""

import asyncio
import logging
import secrets
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from accelshare.dashboard.access import AccessError, ApiServerUsers, Authenticator, Everyone, HostNames, SharedToken, is_loopback
from accelshare.dashboard.cluster_watch import ClusterWatch
from accelshare.dashboard.explanations import Explanations
from accelshare.dashboard.history import EVERY_S as HISTORY_EVERY_S
from accelshare.dashboard.history import History
from accelshare.dashboard.routes import MOST_READERS, DashboardRoutes
from accelshare.dashboard.snapshot import SnapshotBuilder
from accelshare.dashboard.updates import Updates
from accelshare.dashboard.usage_watch import EVERY_S as USAGE_EVERY_S
from accelshare.dashboard.usage_watch import UsageWatch
from accelshare.http.server import Server, listen
from accelshare.kube.client import Client
from accelshare.vendors.catalog import Catalog
from accelshare.wire.pods import PodReader

log = logging.getLogger(__name__)
MAX_BODY_BYTES: Final = 4096  # no request has a body
MAX_HEAD_BYTES: Final = 32 << 10  # a token of the API server can have some kilobytes
MAX_CONNECTIONS: Final = MOST_READERS + 32
SNAPSHOT_EVERY_S: Final = 1.0  # while someone reads
# The part of the time that building snapshots may take: 1,000 nodes of eight cards with two pods each take 0.25 s of CPU.
PART_IN_EXTENDER: Final = 0.1
PART_ALONE: Final = 0.25
RETRY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class DashboardSettings:
    """Where it is served, and to whom. On other addresses than loopback it needs a token file, or the API server's users."""

    host: str
    port: int
    token_file: Path | None = None
    api_server_users: bool = False
    names: tuple[str, ...] = ()  # under which browsers address it, beside localhost and addresses in numbers

    def check(self) -> None:
        if self.token_file is not None and self.api_server_users:
            raise AccessError("a token file and the API server's users exclude each other; set one of them")
        if not is_loopback(self.host) and self.token_file is None and not self.api_server_users:
            where = f"{self.host or 'all addresses'}:{self.port}"
            raise AccessError(
                f"the dashboard on {where} would be readable by everyone who reaches it; serve it on 127.0.0.1, "
                "set a token file, or let the API server check tokens"
            )


class Dashboard:
    """Serves while it is open: `async with Dashboard(…)`."""

    def __init__(
        self,
        settings: DashboardSettings,
        client: Client,
        watch: ClusterWatch,
        catalog: Catalog,
        reader: PodReader,
        *,
        usage: UsageWatch | None = None,
        ready: asyncio.Event | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """`usage`: ask agents who uses the cards. `ready`: set when the ledger is complete, if another part keeps it current.
        `tls`: the context of each connection.
        """
        settings.check()
        self._watch = watch
        self._usage = usage
        self._ready = ready
        self._updates = Updates(secrets.token_hex(6))
        self._builder = SnapshotBuilder(watch, catalog, History(), usage, clock=time.time)
        explanations = Explanations(client, watch, catalog, reader)
        self._routes = DashboardRoutes(self._updates, explanations, HostNames(settings.names), _authenticator(settings, client))
        listening = listen(settings.host, settings.port)
        self.port: int = listening.getsockname()[1]
        self._server = Server(
            self._routes.handle,
            listening,
            tls=tls,
            max_body_bytes=MAX_BODY_BYTES,
            max_head_bytes=MAX_HEAD_BYTES,
            max_connections=MAX_CONNECTIONS,
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._watch.run()), asyncio.create_task(self._publish())]
        if self._usage is not None:
            self._tasks.append(asyncio.create_task(self._ask_agents(self._usage)))
        self._server.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._routes.end_streams()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.stop()

    async def _ask_agents(self, usage: UsageWatch) -> None:
        """Ask who uses the cards, while someone reads."""
        while True:
            await self._watch.complete.wait()
            await self._routes.reader_came.wait()
            try:
                await usage.ask([node.name for node in self._watch.ledger.nodes() if any(node.cards.values())])
            except Exception:
                log.exception("dashboard usage outcome=failed")
            await asyncio.sleep(USAGE_EVERY_S)

    async def _publish(self) -> None:
        """Build snapshots: once a second while someone reads and something changed, else for the history only."""
        own = self._ready is None  # the watch sees every change of the ledger
        part_of_time = PART_ALONE if own else PART_IN_EXTENDER
        version: object = None
        built = 0.0
        while True:
            await self._watch.complete.wait()
            if self._ready is not None:
                await self._ready.wait()
            start = time.monotonic()
            now = (self._watch.version, self._usage.version if self._usage is not None else 0)
            if not own or version != now or start - built >= HISTORY_EVERY_S:
                version, built = now, start
                try:
                    self._updates.publish(await self._builder.build())
                except Exception:
                    # In the extender nothing of the dashboard may end the process that every pod needs.
                    log.exception("dashboard snapshot outcome=failed")
                    await asyncio.sleep(RETRY_S)
            took = time.monotonic() - start
            if self._routes.readers:
                await asyncio.sleep(max(SNAPSHOT_EVERY_S, took / part_of_time) - took)
            else:
                self._routes.reader_came.clear()
                try:
                    async with asyncio.timeout(HISTORY_EVERY_S):
                        await self._routes.reader_came.wait()
                except TimeoutError:
                    pass


def _authenticator(settings: DashboardSettings, client: Client) -> Authenticator:
    if settings.token_file is not None:
        return SharedToken(settings.token_file)
    return ApiServerUsers(client) if settings.api_server_users else Everyone()
