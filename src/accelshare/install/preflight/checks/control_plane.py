"""Checks of the control plane: rights of the installing user, how kube-scheduler runs, free node ports.

Belongs here: what an install needs from the control plane. Never: changing it (`install/scheduler`), the rights that accelshare
itself gets (the chart).
"""

from collections.abc import Iterator, Sequence
from typing import Final

from accelshare.install.preflight.findings import Finding, Grade, named
from accelshare.install.preflight.snapshot import PodWithCommands, Right, Snapshot, is_ours, title
from accelshare.vendors.catalog import Catalog

# What the chart creates: plural and group of each kind, in the release's namespace and in the cluster.
IN_NAMESPACE: Final = (
    ("configmaps", ""),
    ("pods", ""),
    ("secrets", ""),
    ("serviceaccounts", ""),
    ("services", ""),
    ("daemonsets", "apps"),
    ("deployments", "apps"),
    ("cronjobs", "batch"),
    ("jobs", "batch"),
    ("leases", "coordination.k8s.io"),
    ("networkpolicies", "networking.k8s.io"),
    ("poddisruptionbudgets", "policy"),
    ("roles", "rbac.authorization.k8s.io"),
    ("rolebindings", "rbac.authorization.k8s.io"),
)
IN_CLUSTER: Final = (
    ("clusterroles", "rbac.authorization.k8s.io"),
    ("clusterrolebindings", "rbac.authorization.k8s.io"),
    ("validatingadmissionpolicies", "admissionregistration.k8s.io"),
    ("validatingadmissionpolicybindings", "admissionregistration.k8s.io"),
)
# Where agents may read ConfigMaps that mark cards as unhealthy, in the shipped profiles.
UNHEALTHY_NAMESPACE: Final = "kube-system"
FOR_AGENTS: Final = (("roles", "rbac.authorization.k8s.io"), ("rolebindings", "rbac.authorization.k8s.io"))
_MIRROR: Final = "kubernetes.io/config.mirror"  # on the mirror pod of a static pod
_OPENSHIFT: Final = "openshift-kube-scheduler"
_CONFIGURED: Final = ("--config", "--policy-config-file", "--policy-configmap")
_ROLES: Final = {"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}


def needed_rights(namespace: str) -> tuple[Right, ...]:
    """The rights that an install into this namespace needs."""
    elsewhere = namespace != UNHEALTHY_NAMESPACE
    return (
        *(Right("create", resource, group, namespace) for resource, group in IN_NAMESPACE),
        *(Right("create", resource, group, UNHEALTHY_NAMESPACE) for resource, group in FOR_AGENTS if elsewhere),
        *(Right("create", resource, group) for resource, group in IN_CLUSTER),
        Right("patch", "nodes"),  # labels of nodes that share cards
    )


def check_permissions(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    missing = [str(right) for right, granted in snapshot.rights.items() if not granted]
    if missing:
        message = f"you may not: {'; '.join(missing)}"
        yield Finding("permissions", Grade.PROBLEM, message, ("install as a cluster administrator, or ask one for these rights",))
    elif snapshot.rights:
        yield Finding("permissions", Grade.FINE, f"you have all rights that an install needs ({len(snapshot.rights)})")


def check_scheduler(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    if "pods" in snapshot.unread or "nodes" in snapshot.unread:
        return
    pods = [pod for pod in snapshot.pods if _is_scheduler(pod)]
    static = [pod for pod in pods if is_static_scheduler(pod)]
    if any(pod.metadata.namespace == _OPENSHIFT for pod in snapshot.pods):
        yield _second("an OpenShift operator owns kube-scheduler")
    elif static:
        yield Finding(
            "scheduler", Grade.FINE, f"kube-scheduler is a static pod on {named([pod.spec.node_name or '' for pod in static])}"
        )
        yield from _configured(static)
    elif pods:
        where = named([title(pod.metadata) for pod in pods])
        yield _second(f"kube-scheduler runs in {where}, which is not a static pod and has no file to change")
    elif host := _host(snapshot):
        yield Finding(
            "scheduler",
            Grade.NOTE,
            f"kube-scheduler runs on {host}, but not in a pod: probably as a systemd unit",
            (
                "install with --set scheduler.mode=none",
                f"on {host} and every other control-plane node: accelshare scheduler-config apply --target systemd --url URL",
            ),
        )
    else:
        yield _second("kube-scheduler runs on no node: the control plane is managed by somebody else")


def is_static_scheduler(pod: PodWithCommands) -> bool:
    """Whether it is the mirror pod of a static pod of kube-scheduler."""
    return _is_scheduler(pod) and _MIRROR in (pod.metadata.annotations or {})


def is_configured(pod: PodWithCommands) -> bool:
    """Whether this kube-scheduler reads a configuration file, which may name an extender."""
    return any(word.partition("=")[0] in _CONFIGURED for word in pod.words)


def _is_scheduler(pod: PodWithCommands) -> bool:
    return (pod.metadata.labels or {}).get("component") == "kube-scheduler"


def _host(snapshot: Snapshot) -> str:
    """The node that runs it outside a pod: by its Lease, else a control-plane node; empty if there is none."""
    names = {node.metadata.name for node in snapshot.nodes}
    holder = snapshot.scheduler_holder.partition("_")[0]
    if holder:
        return holder if holder in names else ""
    control_plane = [node.metadata.name for node in snapshot.nodes if _ROLES & (node.metadata.labels or {}).keys()]
    return min(control_plane, default="")


def _configured(pods: Sequence[PodWithCommands]) -> Iterator[Finding]:
    for pod in pods:
        for word in pod.words:
            if word.partition("=")[0] in _CONFIGURED:
                message = f"{title(pod.metadata)} has {word}: it is kept, and the extender is added to a copy of it"
                yield Finding("scheduler", Grade.NOTE, message)


def _second(message: str) -> Finding:
    return Finding(
        "scheduler",
        Grade.NOTE,
        f"{message}; a second scheduler beside it calls the extender",
        ("install with --set scheduler.mode=second; pods choose it with schedulerName: accelshare-scheduler",),
    )


def check_ports(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    if "services" in snapshot.unread:
        return
    wanted = {profile.http.node_port for profile in catalog} - {None}
    taken = {
        port.node_port: title(service.metadata)
        for service in snapshot.services
        for port in service.spec.ports
        if port.node_port in wanted and not is_ours(service.metadata)
    }
    for port, name in sorted(taken.items()):
        yield Finding(
            "ports",
            Grade.WARNING,
            f"Service {name} has node port {port}, so service.nodePort {port} would be refused; the default needs no node port",
            ("leave service.type at ClusterIP, or delete that Service first",),
        )
    if not taken:
        shown = ", ".join(str(port) for port in sorted(port for port in wanted if port is not None))
        yield Finding("ports", Grade.FINE, f"the node ports {shown} are free")
