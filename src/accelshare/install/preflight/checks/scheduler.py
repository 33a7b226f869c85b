"""How kube-scheduler is run here, which decides how it is told of the extender.

Belongs here: recognising it. Never: changing it (`scheduler_config`).
"""

from collections.abc import Iterator, Sequence
from typing import Final

from accelshare.install.preflight.findings import Finding, Grade
from accelshare.install.preflight.grouping import named
from accelshare.install.preflight.objects import Pod
from accelshare.install.preflight.snapshot import Snapshot
from accelshare.vendors.catalog import Catalog

_MIRROR: Final = "kubernetes.io/config.mirror"  # kubelet's mark on the picture of a static pod
_OPENSHIFT: Final = "openshift-kube-scheduler"
_CONFIGURED: Final = ("--config", "--policy-config-file", "--policy-configmap")
_ROLES: Final = {"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}


def check(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    if "pods" in snapshot.unread or "nodes" in snapshot.unread:
        return
    pods = [pod for pod in snapshot.pods if (pod.metadata.labels or {}).get("component") == "kube-scheduler"]
    static = [pod for pod in pods if _MIRROR in (pod.metadata.annotations or {})]
    if any(pod.metadata.namespace == _OPENSHIFT for pod in snapshot.pods):
        yield _second("an OpenShift operator owns kube-scheduler")
    elif static:
        yield Finding("scheduler", Grade.FINE, f"kube-scheduler is a static pod on {named([p.spec.node_name for p in static])}")
        yield from _configured(static)
    elif pods:
        where = named([pod.metadata.title for pod in pods])
        yield _second(f"kube-scheduler runs in {where}, which is no static pod and has no file to change")
    elif host := _host(snapshot):
        yield Finding(
            "scheduler",
            Grade.NOTE,
            f"kube-scheduler runs on {host}, but not in a pod: a unit of systemd, probably",
            (
                "install with --set scheduler.mode=none",
                f"on {host} and every other control-plane node: accelshare scheduler-config apply --target systemd --url URL",
            ),
        )
    else:
        yield _second("kube-scheduler runs on none of the nodes: somebody else manages the control plane")


def _host(snapshot: Snapshot) -> str:
    """The node that runs it outside a pod, as its Lease says, or where nobody shows a Lease, a control-plane node; else none."""
    names = {node.metadata.name for node in snapshot.nodes}
    holder = snapshot.scheduler_holder.partition("_")[0]
    if holder:
        return holder if holder in names else ""
    controlling = [node.metadata.name for node in snapshot.nodes if _ROLES & (node.metadata.labels or {}).keys()]
    return min(controlling, default="")


def _configured(pods: Sequence[Pod]) -> Iterator[Finding]:
    for pod in pods:
        words = [word for container in pod.spec.containers for word in (*container.command, *container.args)]
        for word in words:
            if word.partition("=")[0] in _CONFIGURED:
                says = (
                    f"{pod.metadata.title} has {word}: what it configures is kept, and one more extender is added to a copy of it"
                )
                yield Finding("scheduler", Grade.NOTE, says)


def _second(says: str) -> Finding:
    return Finding(
        "scheduler",
        Grade.NOTE,
        f"{says}; a second scheduler beside it asks the extender",
        ("install with --set scheduler.mode=second; pods choose it with schedulerName: accelshare-scheduler",),
    )
