"""Whether whoever asks may install.

Belongs here: the rights that an install needs. Never: the rights that accelshare itself has afterwards (the chart's).
"""

from collections.abc import Iterator
from typing import Final

from accelshare.install.preflight.findings import Finding, Grade
from accelshare.install.preflight.snapshot import Snapshot
from accelshare.kube.access import Right
from accelshare.vendors.catalog import Catalog

# What the chart makes: plural and group of each kind, in the release's namespace and in the cluster.
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
# Where agents are given the right to read ConfigMaps that mark cards as unhealthy, as the shipped profiles have it.
UNHEALTHY_NAMESPACE: Final = "kube-system"
FOR_AGENTS: Final = (("roles", "rbac.authorization.k8s.io"), ("rolebindings", "rbac.authorization.k8s.io"))


def needed(namespace: str) -> tuple[Right, ...]:
    """All of them, for an install into this namespace."""
    elsewhere = namespace != UNHEALTHY_NAMESPACE
    return (
        *(Right("create", resource, group, namespace) for resource, group in IN_NAMESPACE),
        *(Right("create", resource, group, UNHEALTHY_NAMESPACE) for resource, group in FOR_AGENTS if elsewhere),
        *(Right("create", resource, group) for resource, group in IN_CLUSTER),
        Right("patch", "nodes"),  # labels of nodes that share
    )


def check(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    missing = [str(right) for right, given in snapshot.rights.items() if not given]
    if missing:
        says = f"you may not: {'; '.join(missing)}"
        yield Finding("permissions", Grade.PROBLEM, says, ("install as a cluster administrator, or ask one for these rights",))
    elif snapshot.rights:
        yield Finding("permissions", Grade.FINE, f"you may do all that an install needs ({len(snapshot.rights)} rights)")
