"""Writes the plan's nominations to the API server, a bounded number at once.

Belongs here: sending them, and when to rest after errors. Never: which node (plan.py).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from accelshare.extender.promises import plan as outcomes
from accelshare.extender.promises.plan import Nomination, Plan
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, Forbidden, KubeError, NotFound
from accelshare.kube.patches import nominate_node
from accelshare.kube.server_version import server_version
from accelshare.ledger.ledger import Ledger
from accelshare.wire.decoding import UnreadableError
from accelshare.wire.objects import metadata_decoder, version_of

log = logging.getLogger(__name__)
AT_ONCE: Final = 64  # as many as binds: then nominations are not what kube-scheduler waits for where an API server is slow
TICK_S: Final = 1.0  # for promises that expire while nothing happens
FIRST_REST_S: Final = 1.0  # after an error; doubled by each further one
LONGEST_REST_S: Final = 60.0
REQUEST_S: Final = 5.0
OLDEST: Final = (1, 22)  # since then kube-scheduler tries a nominated node alone


class Nominator:
    def __init__(
        self,
        client: Client,
        plan: Plan,
        ledger: Ledger,
        *,
        may_write: Callable[[], bool] = lambda: True,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_end` is called when the API server has answered a nomination, or has not."""
        self._client = client
        self._plan = plan
        self._ledger = ledger
        self._may_write = may_write
        self._on_end = on_end
        self._due = asyncio.Event()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._rest_s = 0.0
        self._rests_until = float("-inf")
        self._forbidden = False  # and said so
        self._paused = False
        self._too_small = False

    def wake(self) -> None:
        """There may be something to write."""
        self._due.set()

    async def run(self) -> None:
        await self._until_supported()
        try:
            while True:
                self._due.clear()
                await self._start_writes()
                with suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await self._due.wait()
                await asyncio.sleep(0)
        finally:
            for task in self._in_flight:
                task.cancel()

    async def _until_supported(self) -> None:
        """Older kube-schedulers do not try the nominated node alone; a kube-scheduler is not newer than its API server."""
        while True:
            try:
                version = await server_version(self._client, timeout_s=REQUEST_S)
            except (KubeError, UnreadableError) as error:
                log.warning("promises outcome=version-unknown retry_in_s=%.0f error=%r", LONGEST_REST_S, str(error))
            else:
                if version >= OLDEST:
                    return
                log.warning("promises outcome=off why=%r", f"Kubernetes {version[0]}.{version[1]} is older than 1.22")
                await asyncio.Event().wait()
            await asyncio.sleep(LONGEST_REST_S)

    async def _start_writes(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._may_write() or loop.time() < self._rests_until:
            self._plan.end_wrong_ones()
            return
        while len(self._in_flight) < AT_ONCE and (nomination := self._plan.next()) is not None:
            task = loop.create_task(self._write(nomination))
            self._in_flight.add(task)
            task.add_done_callback(self._ended)
            await asyncio.sleep(0)  # a search may have taken a while
        if self._paused != self._plan.paused:
            self._paused = not self._paused
            if self._paused:
                log.warning("promises outcome=paused why=%r", self._plan.pause_reason)
        if self._too_small != self._plan.cluster_too_small:
            self._too_small = not self._too_small
            log.info("promises outcome=%s", "off why='too few nodes for --promises-from-nodes'" if self._too_small else "on")

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        self._due.set()
        self._on_end()

    async def _write(self, nomination: Nomination) -> None:
        try:
            answer = await nominate_node(
                self._client,
                namespace=nomination.namespace,
                name=nomination.name,
                uid=nomination.uid,
                version=nomination.version,
                node=nomination.node,
            )
        except Conflict:
            # kube-scheduler, a bind or anybody else was first.
            self._plan.not_written(nomination, outcomes.LATE)
        except NotFound:
            self._plan.not_written(nomination, outcomes.GONE)
        except KubeError as error:
            self._plan.not_written(nomination, outcomes.FAILED)
            self._rest(nomination, error)
        else:
            self._rest_s = 0.0
            self._forbidden = False
            self._plan.written(nomination, self._note_version(answer, nomination))
            log.debug("promise pod=%s/%s node=%s outcome=written", nomination.namespace, nomination.name, nomination.node)

    def _note_version(self, answer: bytes, nomination: Nomination) -> int:
        """The pod's new version. The ledger gets it, too: a bind before the watch shows it would name the version before.

        Nothing else of the pod has changed, because the write named the version.
        """
        try:
            version = version_of(metadata_decoder.decode(answer).metadata)
        except UnreadableError:  # the watch shows it
            return nomination.version
        known = self._ledger.pod(nomination.uid)
        if known is not None and known.latest.version == nomination.version:
            self._ledger.apply(replace(known.latest, version=version))
        return version

    def _rest(self, nomination: Nomination, error: KubeError) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._rests_until:
            return  # one of several that were in flight
        self._rest_s = min(LONGEST_REST_S, max(FIRST_REST_S, 2 * self._rest_s))
        if isinstance(error, Forbidden):
            self._rest_s = LONGEST_REST_S
            if self._forbidden:
                self._rests_until = now + self._rest_s
                return
            self._forbidden = True
        self._rests_until = now + self._rest_s
        name = f"{nomination.namespace}/{nomination.name}"
        log.warning("promise pod=%s outcome=failed rest_s=%.0f error=%r", name, self._rest_s, str(error))
