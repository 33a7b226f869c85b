"""The extender's own pod: where it is reached, and a change of it that shows how far the watch has come.

Belongs here: reading and touching that one pod, and finding extenders beside it that hold no Lease. Never: users' pods.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import BadAnswer
from accelshare.kube.patches import set_condition
from accelshare.wire.decoding import Decoder

CONDITION: Final = "accelshare.io/TookLease"
# The labels that all extenders of one release have in common.
RELEASE: Final = ("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component")
REQUEST_S: Final = 2.0


class _Metadata(msgspec.Struct, rename={"version": "resourceVersion"}):
    name: str = ""
    uid: str = ""
    version: str = ""
    labels: dict[str, str] | None = None


class _Container(msgspec.Struct):
    args: list[str] | None = None


class _Spec(msgspec.Struct, rename={"node": "nodeName"}):
    node: str = ""
    containers: list[_Container] = []


class _Ip(msgspec.Struct):
    ip: str = ""


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    pod_i_ps: list[_Ip] | None = msgspec.field(default=None, name="podIPs")


class OwnPod(msgspec.Struct):
    """What matters of a pod of the extender."""

    metadata: _Metadata
    spec: _Spec
    status: _Status

    @property
    def addresses(self) -> list[str]:
        return [entry.ip for entry in self.status.pod_i_ps or () if entry.ip]


class _Pods(msgspec.Struct):
    items: list[OwnPod] | None = None


_pod = Decoder(OwnPod)
_pods = Decoder(_Pods)


async def read(client: Client, namespace: str, name: str) -> OwnPod:
    return _decoded(await client.request("GET", paths.pod(namespace, name), timeout_s=REQUEST_S))


async def touch(client: Client, namespace: str, name: str, uid: str) -> OwnPod:
    """Change a condition of the pod and return the pod. Its version is newer than every bind before this call."""
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    condition = {"type": CONDITION, "status": "True", "message": f"This extender took the lease at {now}."}
    return _decoded(
        await set_condition(client, namespace=namespace, name=name, uid=uid, condition=condition, timeout_s=REQUEST_S)
    )


async def without_lease(client: Client, namespace: str, own: OwnPod) -> list[str]:
    """The names of other pods of the same release, not ended, whose extender has no --lease: those of an earlier version."""
    labels = own.metadata.labels or {}
    if any(key not in labels for key in RELEASE):
        return []
    params = {"labelSelector": ",".join(f"{key}={labels[key]}" for key in RELEASE)}
    answer = await client.request("GET", paths.pods(namespace), params=params, timeout_s=REQUEST_S)
    try:
        others = _pods.decode(answer).items or []
    except ValueError as error:
        raise BadAnswer(f"the extenders' pods in {namespace}: {error}") from error
    return [
        other.metadata.name
        for other in others
        if other.metadata.uid != own.metadata.uid
        and other.status.phase not in ("Succeeded", "Failed")
        and not _takes_lease(other)
    ]


def _takes_lease(pod: OwnPod) -> bool:
    return any(argument.startswith("--lease") for container in pod.spec.containers for argument in container.args or ())


def _decoded(body: bytes) -> OwnPod:
    try:
        return _pod.decode(body)
    except ValueError as error:
        raise BadAnswer(f"the extender's own pod: {error}") from error
