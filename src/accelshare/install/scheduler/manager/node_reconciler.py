"""The reconciler of one control-plane node: compares, and applies or restores kube-scheduler's configuration under a Lease.

One node is changed at a time (the Lease), none while another one has failed, and a failed attempt is repeated only after
something has changed. Renewed client certificates are written at once, without the Lease.

Belongs here: reconciling, once and in a loop. Never: how a file is changed (`scheduler/apply.py`).
"""

import asyncio
import contextlib
import hashlib
import logging
import signal
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
from accelshare.install.scheduler.desired_config import TlsFiles
from accelshare.install.scheduler.health import Patience, Scheduler
from accelshare.install.scheduler.host import HostState, Proposal, SchedulerHost
from accelshare.install.scheduler.leadership import ReadLease
from accelshare.install.scheduler.manager import state_configmap as states
from accelshare.install.scheduler.manager.client_files import ClientCertificate, ClientFiles
from accelshare.install.scheduler.manager.state_configmap import StateConfigMap
from accelshare.install.scheduler.plan import Intent
from accelshare.kube import named_data
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, KubeError
from accelshare.kube.events import Events, PodRef
from accelshare.kube.leases import Lease
from accelshare.kube.named_data import Place

log = logging.getLogger(__name__)
PREFIX: Final = "/accelshare"
_CERTIFICATES_EVERY: Final = 12  # rounds between two checks of the Secrets, which last for months
_LONGEST_PAUSE_S: Final = 60.0

Hashes = tuple[str | None, ...]
MakeIntent = Callable[[SchedulerHost, str, TlsFiles | None], Intent]
MakeScheduler = Callable[[SchedulerHost], Scheduler]


@dataclass(frozen=True, slots=True)
class ManagedNode:
    """The node, and the names of everything that the reconciler needs."""

    node: str
    names: Names
    lifetimes: Lifetimes
    state: Place
    lease: str
    port: int
    plain_http: bool = False


@dataclass(frozen=True, slots=True)
class PendingApply:
    """An apply that this host needs; the same attempt has the same fingerprint."""

    intent: Intent
    fingerprint: str


class _NotYet(Exception):  # noqa: N818 (not an error)
    """Something that another process creates is still missing."""


class NodeReconciler:
    """One for each node. It keeps no state that matters: the state is on the host and in the ConfigMap."""

    def __init__(
        self,
        client: Client,
        task: ManagedNode,
        host: SchedulerHost,
        *,
        make_intent: MakeIntent,
        scheduler: MakeScheduler,
        patience: Patience,
        read_lease: ReadLease | None = None,
        host_name: str = "",
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._task = task
        self._host = host
        self._make_intent = make_intent
        self._scheduler = scheduler
        self._patience = patience
        self._read_lease = read_lease
        self._host_name = host_name
        self._now = now
        self._files = ClientFiles(host.directory, host.disk)
        self._lease = Lease(client, task.state.namespace, task.lease, identity=task.node)
        self._events = Events(client, component="accelshare-scheduler-manager", clock=time.time)
        self._rounds = 0
        self._settled: tuple[str, ClientCertificate | None, Hashes] | None = None  # what this host was last seen to have
        self._tidy = False  # whether unused certificate files are removed

    async def run(self, every_s: float) -> None:
        """Reconcile until SIGTERM or SIGINT; finish what is under way then."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for received in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(received, stop.set)
        node, pause_s = self._task.node, every_s
        log.info("started node=%s every_s=%g", node, every_s)
        while not stop.is_set():
            try:
                await self.reconcile()
                pause_s = every_s
            except KubeError as error:
                log.warning("reconcile node=%s outcome=no-answer problem=%r", node, str(error))
                pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await stop.wait()
        log.info("stopped node=%s", node)

    async def reconcile(self) -> None:
        """Compare once, and act. Raises KubeError if the API server does not answer."""
        state_map = await states.read(self._client, self._task.state)
        if state_map is None:
            log.info("reconcile node=%s outcome=nothing-wanted problem=%r", self._task.node, f"there is no {self._task.state}")
        elif state_map.wanted == states.RESTORED:
            await self._restore(state_map)
        elif state_map.wanted == states.APPLIED:
            await self._keep_applied(state_map)
        else:
            problem = f"{states.WANTED} is {state_map.wanted!r}; it must be {states.APPLIED!r} or {states.RESTORED!r}"
            await self._report(state_map, states.failed(problem))

    async def _keep_applied(self, state_map: StateConfigMap) -> None:
        try:
            certificate = await self._client_files()
            pending = await asyncio.to_thread(self._pending, await self._url(), certificate)
        except _NotYet as missing:
            await self._report(state_map, f"{states.WAITING}: {missing}")
            return
        except (InstallError, OSError) as refused:
            await self._report(state_map, states.failed(str(refused)))
            return
        if pending is None:
            await self._report(state_map, states.APPLIED)
            return
        state = state_map.states.get(self._task.node, "")
        if states.has_failed(state) and state_map.attempts.get(self._task.node) == pending.fingerprint:
            return  # somebody has to solve it, or something has to change
        async with self._lease.held() as ours:
            if not ours:
                await self._report(state_map, f"{states.WAITING}: {self._lease.holder} holds the Lease")
                return
            await self._apply(pending)

    async def _apply(self, pending: PendingApply) -> None:
        """Apply under the Lease. The ConfigMap is read again, and must not change until this node's state is written."""
        task = self._task
        state_map = await states.read(self._client, task.state)
        if state_map is None or state_map.wanted != states.APPLIED:
            return
        if others := state_map.blocking(task.node):
            await self._report(state_map, f"{states.WAITING}: {', '.join(others)} failed or was interrupted; that comes first")
            return
        try:
            state_map = await states.write_state(self._client, task.state, task.node, states.APPLYING, version=state_map.version)
        except Conflict:
            return  # the next round reads it again
        try:
            outcome = await asyncio.to_thread(self._apply_now, pending)
        except InstallError as error:
            # Only an attempt that restarted kube-scheduler in vain must not be repeated.
            attempt = pending.fingerprint if isinstance(error, RolledBack) else ""
            await self._report(state_map, states.failed(str(error)), attempt=attempt)
            return
        log.info("apply node=%s outcome=%s", task.node, outcome.replace(" ", "-"))
        await self._report(state_map, states.APPLIED, message="" if outcome == "unchanged" else outcome)

    def _apply_now(self, pending: PendingApply) -> str:
        return applying.apply(
            self._host,
            pending.intent,
            self._scheduler(self._host),
            patience=self._patience,
            read_lease=self._read_lease,
            host_name=self._host_name,
            say=lambda line: log.info("%s", line),
        )

    async def _client_files(self) -> ClientCertificate | None:
        """kube-scheduler's certificate, renewed if due and written to this host."""
        if self._task.plain_http:
            return None
        certificate = await self._certificate()
        await asyncio.to_thread(self._put_files, certificate)
        return certificate

    async def _certificate(self) -> ClientCertificate:
        names = self._task.names
        _, _, place = names.secrets
        stored = await named_data.read(self._client, place)
        if stored is None or self._rounds % _CERTIFICATES_EVERY == 0:
            await self._renew()
            stored = await named_data.read(self._client, place)
        self._rounds += 1
        if stored is None:
            raise _NotYet(f"{place} does not exist yet")
        parts = [stored.data.get(key, "") for key in ("ca.crt", "tls.crt", "tls.key")]
        if not all(parts):
            raise CertificateError(f"{place} must have ca.crt, tls.crt and tls.key")
        return ClientCertificate(*parts)

    async def _renew(self) -> None:
        names, lifetimes = self._task.names, self._task.lifetimes
        if not await secrets.due(self._client, names, now=self._now(), lifetimes=lifetimes):
            return
        async with self._lease.held() as ours:
            if ours:
                for line in await secrets.ensure(self._client, names, now=self._now(), lifetimes=lifetimes):
                    log.info("certificates outcome=renewed secret=%r", line)

    def _put_files(self, certificate: ClientCertificate) -> None:
        if self._files.contain(certificate):
            return
        target = self._host.target
        base = self._host.base(self._host.record())
        owner = static_pod.runs_as(base, target.trigger) if base is not None else (0, 0)
        self._files.put(certificate, owner)
        log.info("certificates outcome=written directory=%s", self._host.directory)

    async def _url(self) -> str:
        names = self._task.names
        addresses = await secrets.cluster_ips(self._client, names.namespace, names.service)
        if not addresses:
            raise _NotYet(f"Service {names.namespace}/{names.service} does not exist, or has no address")
        host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
        return f"{'http' if self._task.plain_http else 'https'}://{host}:{self._task.port}{PREFIX}"

    def _pending(self, url: str, certificate: ClientCertificate | None) -> PendingApply | None:
        """None if nothing has to change. What must not be overwritten is refused here, before waiting for the Lease."""
        status = self._host.status()
        digests = tuple(map(self._host.sha256, status.files))  # another configuration may have been applied by hand
        if status.state is HostState.INSTALLED and self._settled == (url, certificate, digests):
            if certificate is not None and not self._tidy:
                # One round after they were replaced, because kube-scheduler may have been reading them.
                self._files.remove_unused(certificate)
                self._tidy = True
            return None
        self._settled = None
        tls = self._files.paths(certificate, self._task.names.server_name) if certificate is not None else None
        intent = self._make_intent(self._host, url, tls)
        proposal = self._host.propose(intent)
        self._host.changes.refuse_to_overwrite(proposal.plan.files, proposal.record)
        if status.state is not HostState.INSTALLED or self._host.difference(proposal):
            return PendingApply(intent, _fingerprint(proposal))
        self._settled, self._tidy = (url, certificate, digests), False
        return None

    async def _restore(self, state_map: StateConfigMap) -> None:
        task = self._task
        state = state_map.states.get(task.node, "")
        if state == states.RESTORED:
            return
        async with self._lease.held() as ours:
            if not ours:
                await self._report(state_map, f"{states.WAITING}: {self._lease.holder} holds the Lease")
                return
            if not states.has_failed(state):
                state_map = await states.write_state(self._client, task.state, task.node, states.RESTORING)
            try:
                outcome = await asyncio.to_thread(self._restore_now)
            except (InstallError, OSError) as error:
                await self._report(state_map, states.failed(str(error)))
                return
            log.info("restore node=%s outcome=%s", task.node, outcome)
            await self._report(state_map, states.RESTORED)

    def _restore_now(self) -> str:
        self._settled = None
        say: Callable[[str], None] = lambda line: log.info("%s", line)  # noqa: E731
        outcome = applying.restore(self._host, self._scheduler(self._host), patience=self._patience, say=say)
        self._files.remove()  # no kube-scheduler reads them any more
        return outcome

    async def _report(self, state_map: StateConfigMap, state: str, *, attempt: str = "", message: str = "") -> None:
        """Write the node's state into the ConfigMap, and this message or else the state as an Event, if the state is new."""
        task = self._task
        if state_map.states.get(task.node) == state and state_map.attempts.get(task.node, "") == attempt:
            return
        log.log(logging.WARNING if states.has_failed(state) else logging.INFO, "report node=%s state=%r", task.node, state)
        await states.write_state(self._client, task.state, task.node, state, attempt=attempt)
        about = PodRef(task.state.namespace, task.state.name, state_map.uid, kind=task.state.kind)
        message = f"{task.node}: {message or state}"
        if states.has_failed(state):
            await self._events.record(about, kind="Warning", reason="SchedulerConfigFailed", message=message)
        elif state == states.APPLIED:
            await self._events.record(about, kind="Normal", reason="SchedulerConfigApplied", message=message)
        elif state == states.RESTORED:
            await self._events.record(about, kind="Normal", reason="SchedulerConfigRestored", message=message)


def _fingerprint(proposal: Proposal) -> str:
    digest = hashlib.sha256()
    for file in proposal.plan.files:
        digest.update(file.path.encode() + b"\0" + file.content + b"\0")
    return digest.hexdigest()
