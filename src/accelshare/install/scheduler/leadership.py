"""kube-scheduler's leader election Lease, which shows that a kube-scheduler schedules pods, and on which host.

kube-scheduler acquires it only after its caches are synced, whereas /healthz is ok before. Its identity in the Lease is the host
name and a random id: `cp-1_2f6d…`.

Belongs here: which Lease it is, by flags and configuration, reading it with kube-scheduler's own kubeconfig, and whose it is.
Never: waiting for it (`health.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelshare.install.errors import NoLease
from accelshare.install.scheduler import documents
from accelshare.install.scheduler.arguments import flags
from accelshare.install.scheduler.plan import SchedulerPlan
from accelshare.install.scheduler.release import FLAGS_OVERRIDE_LEADER_ELECTION, Release
from accelshare.kube.leases import LeaseSpec


@dataclass(frozen=True, slots=True)
class LeasePlace:
    """Namespace and name of the Lease, and the kubeconfig that may read it."""

    kubeconfig: str
    namespace: str
    name: str
    ready_only_as_leader: bool = False  # this kube-scheduler fills its caches only when it leads

    def __str__(self) -> str:
        return f"Lease {self.namespace}/{self.name}"


ReadLease = Callable[[LeasePlace], LeaseSpec]


class LeaseObserver:
    """Looks at the Lease again and again: whether it is renewed, and by which host."""

    def __init__(self, read: Callable[[], LeaseSpec | None], *, host_name: str, ready_only_as_leader: bool = False) -> None:
        """`read`: the present Lease, None if it cannot be read now. `host_name`: of this host."""
        self._read = read
        self._host_name = host_name
        self._ready_only_as_leader = ready_only_as_leader
        self._first = ""
        self.renewed = False
        self.other_host = ""  # the host whose kube-scheduler renews the Lease; empty: this one's does, or nobody's

    def observe(self) -> None:
        lease = self._read()
        if lease is None or not lease.renew_time or not lease.holder_identity:
            return  # it cannot be read now, nobody has ever led, or the last leader has released it
        self._first = self._first or lease.renew_time
        if lease.renew_time != self._first:
            self.renewed = True
            host, _, suffix = lease.holder_identity.rpartition("_")
            self.other_host = "" if (host or suffix) == self._host_name else host or suffix

    @property
    def shows_readiness(self) -> bool:
        """Whether this host's kube-scheduler can be ready now: one with delayCacheUntilActive is ready only when it leads."""
        return not (self._ready_only_as_leader and self.other_host)


def place(plan: SchedulerPlan, release: Release) -> LeasePlace:
    """The Lease of the kube-scheduler that this plan starts. Raises NoLease if there is none, or if it is not known."""
    flag_values = flags(plan.words)
    data: dict[str, Any] = {}
    if flag_values.get("config") == plan.configuration.path:
        data = documents.plain(documents.read(plan.configuration.content, plan.configuration.path).data)
    elif flag_values.get("config"):
        raise NoLease(f"leader election is configured in {flag_values['config']}, beside the Policy")
    election = documents.mapping(data, "leaderElection", plan.configuration.path)
    connection = documents.mapping(data, "clientConnection", plan.configuration.path)
    counting = flag_values if not data or release.minor >= FLAGS_OVERRIDE_LEADER_ELECTION else {}

    def setting(key: str, default: str, *names: str) -> str:
        by_flag = [counting[name] for name in names if name in counting]
        in_file = election.get(key)
        # kube-scheduler uses its default for a key without a value.
        return str(by_flag[-1] if by_flag else default if in_file in (None, "") else in_file)

    if setting("leaderElect", "true", "leader-elect").lower() in ("false", "f", "0"):
        raise NoLease("leader election is disabled")
    lock = setting("resourceLock", "leases", "leader-elect-resource-lock")
    if not lock.endswith("leases"):  # endpointsleases, the default up to 1.19, has a Lease too
        raise NoLease(f"leader election uses {lock}, not a Lease")
    old = () if data else ("lock-object-name", "lock-object-namespace")
    name = setting("resourceName", "kube-scheduler", *old[:1], "leader-elect-resource-name")
    namespace = setting("resourceNamespace", "kube-system", *old[1:], "leader-elect-resource-namespace")
    kubeconfig = connection.get("kubeconfig") if data else flag_values.get("kubeconfig")
    if not kubeconfig:
        raise NoLease("kube-scheduler has no kubeconfig, which is needed to read its Lease")
    return LeasePlace(str(kubeconfig), namespace, name, data.get("delayCacheUntilActive") is True)


def read(place: LeasePlace) -> LeaseSpec:
    """The present Lease, empty if there is none yet. Raises NoLease if it cannot be read."""
    from accelshare.install.commands import with_client
    from accelshare.kube.errors import KubeError
    from accelshare.kube.leases import read_lease

    if not Path(place.kubeconfig).exists():
        raise NoLease(f"kube-scheduler's kubeconfig {place.kubeconfig} does not exist")
    try:
        lease = with_client(
            Path(place.kubeconfig), None, lambda client: read_lease(client, place.namespace, place.name), timeout_s=3.0
        )
    except (KubeError, OSError) as error:
        raise NoLease(f"{place} cannot be read: {error}") from error
    return lease.spec if lease is not None else LeaseSpec()  # without a Lease nobody has ever led
