"""The Lease by which one of several kube-schedulers leads: the sign that pods are scheduled.

kube-scheduler takes it only after it has reached the API server and all its caches are full, whereas /healthz says ok before.

Belongs here: which Lease it is, by flags and configuration, and reading it with kube-scheduler's own kubeconfig. Never: what
follows from it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from accelshare.install.errors import NoLease
from accelshare.install.scheduler import documents
from accelshare.install.scheduler.arguments import flags
from accelshare.install.scheduler.plan import Plan
from accelshare.install.scheduler.release import FLAGS_OVERRIDE_LEADER_ELECTION, OLDEST_READ, Release


@dataclass(frozen=True, slots=True)
class Place:
    """Where the Lease is, and the kubeconfig that may read it."""

    kubeconfig: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"Lease {self.namespace}/{self.name}"


class Lease(
    msgspec.Struct, frozen=True, rename={"holder": "holderIdentity", "renewed": "renewTime", "duration_s": "leaseDurationSeconds"}
):
    """Who leads, when that was last renewed, in the API server's words, and how long the others wait if it is not."""

    holder: str | None = None
    renewed: str | None = None
    duration_s: int | None = None


class _Object(msgspec.Struct, frozen=True):
    spec: Lease


_decoder = msgspec.json.Decoder(_Object)


ReadLease = Callable[[Place], Lease]


def place(plan: Plan, release: Release) -> Place:
    """The Lease of the kube-scheduler that this plan starts. Raises NoLease where there is none, or it is not known."""
    given = flags(plan.words)
    data: dict[str, Any] = {}
    if given.get("config") == plan.configuration.path:
        data = documents.plain(documents.read(plan.configuration.content, plan.configuration.path).data)
    elif given.get("config"):
        raise NoLease(f"leader election is configured in {given['config']}, beside the Policy")
    election = data.get("leaderElection") or {}
    counting = given if not data or release.minor >= FLAGS_OVERRIDE_LEADER_ELECTION else {}

    def said(key: str, default: str, *names: str) -> str:
        by_flag = [counting[name] for name in names if name in counting]
        in_file = election.get(key)
        # kube-scheduler takes its default for a key that is there without a value.
        return str(by_flag[-1] if by_flag else default if in_file in (None, "") else in_file)

    if said("leaderElect", "true", "leader-elect").lower() in ("false", "f", "0"):
        raise NoLease("leader election is switched off")
    lock = said("resourceLock", "leases", "leader-elect-resource-lock")
    if release.minor < OLDEST_READ:
        raise NoLease(f"what kube-scheduler {release} leads by is not known here")
    if not lock.endswith("leases"):  # endpointsleases, the default up to 1.19, keeps a Lease as well
        raise NoLease(f"leader election goes by {lock}, not by a Lease")
    old = () if data else ("lock-object-name", "lock-object-namespace")
    name = said("resourceName", "kube-scheduler", *old[:1], "leader-elect-resource-name")
    namespace = said("resourceNamespace", "kube-system", *old[1:], "leader-elect-resource-namespace")
    kubeconfig = (data.get("clientConnection") or {}).get("kubeconfig") if data else given.get("kubeconfig")
    if not kubeconfig:
        raise NoLease("kube-scheduler has no kubeconfig to read its Lease with")
    return Place(str(kubeconfig), namespace, name)


def read(place: Place) -> Lease:
    """The Lease as it is now, empty where there is none yet. Raises NoLease if it cannot be read."""
    from accelshare.kube import config
    from accelshare.kube.client import Client
    from accelshare.kube.errors import KubeError, NotFound

    async def ask() -> bytes:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{place.namespace}/leases/{place.name}"
        async with Client(config.load(Path(place.kubeconfig)), user_agent="accelshare", timeout_s=3.0) as client:
            return bytes(await client.request("GET", path))

    if not Path(place.kubeconfig).exists():
        raise NoLease(f"{place.kubeconfig}, with which kube-scheduler reaches the API server, is not there")
    try:
        return _decoder.decode(asyncio.run(ask())).spec
    except NotFound:
        return Lease()  # nobody has ever led
    except (KubeError, OSError, msgspec.MsgspecError) as error:
        raise NoLease(f"{place} cannot be read: {error}") from error
