"""The caretaker of one control-plane node: looks, and if something is not as wanted, waits for its turn and mends it.

One node is touched at a time (a Lease), none while another one has failed, and what failed is not tried again before something
has changed. Renewed client certificates are no risk and need no turn: they are put in place as they come.

Belongs here: what one look does. Never: how a file is changed (`apply.py`), the rhythm of looking (`rounds.py`).
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from accelshare.install.certificates import secrets
from accelshare.install.certificates.renewal import Lifetimes
from accelshare.install.certificates.secrets import Names
from accelshare.install.errors import CertificateError, InstallError, RolledBack
from accelshare.install.scheduler import apply as applying
from accelshare.install.scheduler import static_pod
from accelshare.install.scheduler.desired_config import Tls
from accelshare.install.scheduler.health import Patience, Scheduler
from accelshare.install.scheduler.host import Proposal, SchedulerHost, State
from accelshare.install.scheduler.leadership import ReadLease
from accelshare.install.scheduler.manager import state_configmap as boards
from accelshare.install.scheduler.manager.client_files import ClientFiles, Material
from accelshare.install.scheduler.manager.state_configmap import StateConfigMap
from accelshare.install.scheduler.plan import Intent
from accelshare.kube import named_data, services
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict
from accelshare.kube.events import Events, PodRef
from accelshare.kube.leases import Lease
from accelshare.kube.named_data import Place

log = logging.getLogger(__name__)
PREFIX: Final = "/accelshare"
# Secrets are read less often than all the rest: they last for months.
CERTIFICATES_EVERY: Final = 12

Hashes = tuple[str | None, ...]
MakeIntent = Callable[[SchedulerHost, str, Tls | None], Intent]
MakeScheduler = Callable[[SchedulerHost], Scheduler]


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be kept, and how things are called."""

    node: str
    names: Names
    lifetimes: Lifetimes
    state: Place
    lease: str
    port: int
    plain_http: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """What there is to do on this host; the same attempt has the same fingerprint."""

    intent: Intent
    fingerprint: str


class _NotYet(Exception):  # noqa: N818 – it reads as what it is
    """Something that others make is still missing; nobody is to blame."""


class NodeReconciler:
    """One of these a node. Everything that it remembers can be forgotten: the truth is on the host and on the board."""

    def __init__(
        self,
        client: Client,
        task: Task,
        scheduler_host: SchedulerHost,
        *,
        make_intent: MakeIntent,
        scheduler: MakeScheduler,
        patience: Patience,
        read_lease: ReadLease | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._task = task
        self._scheduler_host = scheduler_host
        self._make_intent = make_intent
        self._scheduler = scheduler
        self._patience = patience
        self._read_lease = read_lease
        self._now = now
        self._files = ClientFiles(scheduler_host.directory, scheduler_host.disk)
        self._lease = Lease(client, task.state.namespace, task.lease, identity=task.node)
        self._events = Events(client, component="accelshare-scheduler-manager", clock=time.time)
        self._looks = 0
        self._settled: tuple[str, Material | None, Hashes] | None = None  # what this host was last found to have
        self._tidy = False  # and whether it has nothing else of ours

    async def look(self) -> None:
        """One look, and what follows from it. Raises KubeError if the cluster cannot be asked."""
        state_map = await boards.read(self._client, self._task.state)
        if state_map is None:
            log.info("look node=%s outcome=nothing-wanted problem=%r", self._task.node, f"there is no {self._task.state}")
        elif state_map.wanted == boards.RESTORED:
            await self._restore(state_map)
        elif state_map.wanted == boards.APPLIED:
            await self._keep_applied(state_map)
        else:
            words = f"{boards.WANTED} is {state_map.wanted!r}; it must be {boards.APPLIED!r} or {boards.RESTORED!r}"
            await self._tell(state_map, boards.failed(words))

    # Wanted: applied.

    async def _keep_applied(self, state_map: StateConfigMap) -> None:
        try:
            material = await self._client_files()
            work = await asyncio.to_thread(self._work, await self._url(), material)
        except _NotYet as missing:
            await self._tell(state_map, f"{boards.WAITING}: {missing}")
            return
        except (InstallError, OSError) as refused:
            await self._tell(state_map, boards.failed(str(refused)))
            return
        if work is None:
            await self._tell(state_map, boards.APPLIED)
            return
        state = state_map.states.get(self._task.node, "")
        if boards.has_failed(state) and state_map.attempts.get(self._task.node) == work.fingerprint:
            return  # a person has to look at it, or something has to change
        async with self._lease.held() as ours:
            if not ours:
                await self._tell(state_map, f"{boards.WAITING}: {self._lease.holder} is at work")
                return
            await self._apply(work)

    async def _apply(self, work: Work) -> None:
        """Our turn. The board may have changed while we waited, and must not change until it says that we are at work."""
        task = self._task
        state_map = await boards.read(self._client, task.state)
        if state_map is None or state_map.wanted != boards.APPLIED:
            return
        if others := state_map.in_the_way_of(task.node):
            await self._tell(state_map, f"{boards.WAITING}: {', '.join(others)} failed or ended in the middle; that comes first")
            return
        try:
            state_map = await boards.tell(self._client, task.state, task.node, boards.APPLYING, version=state_map.version)
        except Conflict:
            return  # the next look knows more
        try:
            outcome = await asyncio.to_thread(self._apply_now, work)
        except InstallError as error:
            # Only what has restarted kube-scheduler in vain must not be tried again and again.
            attempt = work.fingerprint if isinstance(error, RolledBack) else ""
            await self._tell(state_map, boards.failed(str(error)), attempt=attempt)
            return
        log.info("apply node=%s outcome=%s", task.node, outcome)
        await self._tell(state_map, boards.APPLIED)

    def _apply_now(self, work: Work) -> str:
        return applying.apply(
            self._scheduler_host,
            work.intent,
            self._scheduler(self._scheduler_host),
            patience=self._patience,
            read_lease=self._read_lease,
            say=lambda line: log.info("%s", line),
        )

    async def _client_files(self) -> Material | None:
        """kube-scheduler's certificate, in place on this host and renewed if due."""
        if self._task.plain_http:
            return None
        material = await self._material()
        await asyncio.to_thread(self._put_files, material)
        return material

    async def _material(self) -> Material:
        names = self._task.names
        _, _, place = names.secrets
        found = await named_data.read(self._client, place)
        if found is None or self._looks % CERTIFICATES_EVERY == 0:
            await self._renew()
            found = await named_data.read(self._client, place)
        self._looks += 1
        if found is None:
            raise _NotYet(f"{place} is not there yet")
        parts = [found.data.get(key, "") for key in ("ca.crt", "tls.crt", "tls.key")]
        if not all(parts):
            raise CertificateError(f"{place} must have ca.crt, tls.crt and tls.key")
        return Material(*parts)

    async def _renew(self) -> None:
        names, lifetimes = self._task.names, self._task.lifetimes
        if not await secrets.due(self._client, names, now=self._now(), lifetimes=lifetimes):
            return
        async with self._lease.held() as ours:
            if ours:
                for line in await secrets.ensure(self._client, names, now=self._now(), lifetimes=lifetimes):
                    log.info("certificates outcome=renewed said=%r", line)

    def _put_files(self, material: Material) -> None:
        if self._files.are(material):
            return
        target = self._scheduler_host.target
        base = self._scheduler_host.base(self._scheduler_host.record())
        owner = static_pod.runs_as(base, target.trigger) if base is not None else (0, 0)
        self._files.put(material, owner)
        log.info("certificates outcome=in-place directory=%s", self._scheduler_host.directory)

    async def _url(self) -> str:
        names = self._task.names
        addresses = await services.cluster_ips(self._client, names.namespace, names.service)
        if not addresses:
            raise _NotYet(f"Service {names.namespace}/{names.service} is not there, or has no address")
        host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
        return f"{'http' if self._task.plain_http else 'https'}://{host}:{self._task.port}{PREFIX}"

    def _work(self, url: str, material: Material | None) -> Work | None:
        """None if all is as wished. What must not be touched is refused here, before anybody has to wait for a turn."""
        standing = self._scheduler_host.status()
        there = tuple(map(self._scheduler_host.sha256, standing.files))  # somebody may have applied something else by hand
        if standing.state is State.INSTALLED and self._settled == (url, material, there):
            if material is not None and not self._tidy:
                # One look later than they were replaced: kube-scheduler may have been in the middle of reading them.
                self._files.forget_unused(material)
                self._tidy = True
            return None
        self._settled = None
        tls = self._files.named(material, self._task.names.server_name) if material is not None else None
        intent = self._make_intent(self._scheduler_host, url, tls)
        proposal = self._scheduler_host.propose(intent)
        applying.refuse_to_lose_work(self._scheduler_host, proposal)
        if standing.state is not State.INSTALLED or self._scheduler_host.difference(proposal):
            return Work(intent, _fingerprint(proposal))
        self._settled, self._tidy = (url, material, there), False
        return None

    # Wanted: restored.

    async def _restore(self, state_map: StateConfigMap) -> None:
        task = self._task
        state = state_map.states.get(task.node, "")
        if state == boards.RESTORED:
            return
        async with self._lease.held() as ours:
            if not ours:
                await self._tell(state_map, f"{boards.WAITING}: {self._lease.holder} is at work")
                return
            if not boards.has_failed(state):
                state_map = await boards.tell(self._client, task.state, task.node, boards.RESTORING)
            try:
                outcome = await asyncio.to_thread(self._restore_now)
            except (InstallError, OSError) as error:
                await self._tell(state_map, boards.failed(str(error)))
                return
            log.info("restore node=%s outcome=%s", task.node, outcome)
            await self._tell(state_map, boards.RESTORED)

    def _restore_now(self) -> str:
        self._settled = None
        say: Callable[[str], None] = lambda line: log.info("%s", line)  # noqa: E731 – a name for what is handed on
        outcome = applying.restore(self._scheduler_host, self._scheduler(self._scheduler_host), patience=self._patience, say=say)
        self._files.remove()  # only now does no kube-scheduler read them any more
        return outcome

    # Telling.

    async def _tell(self, state_map: StateConfigMap, state: str, *, attempt: str = "") -> None:
        """Write it on the board, if it is news there."""
        task = self._task
        if state_map.states.get(task.node) == state and state_map.attempts.get(task.node, "") == attempt:
            return
        log.log(logging.WARNING if boards.has_failed(state) else logging.INFO, "tell node=%s state=%r", task.node, state)
        await boards.tell(self._client, task.state, task.node, state, attempt=attempt)
        about = PodRef(task.state.namespace, task.state.name, state_map.uid, kind=task.state.kind)
        message = f"{task.node}: {state}"
        if boards.has_failed(state):
            await self._events.say(about, kind="Warning", reason="SchedulerConfigFailed", message=message)
        elif state == boards.APPLIED:
            await self._events.say(about, kind="Normal", reason="SchedulerConfigApplied", message=message)
        elif state == boards.RESTORED:
            await self._events.say(about, kind="Normal", reason="SchedulerConfigRestored", message=message)


def _fingerprint(proposal: Proposal) -> str:
    summed = hashlib.sha256()
    for file in proposal.plan.files:
        summed.update(file.path.encode() + b"\0" + file.content + b"\0")
    return summed.hexdigest()
