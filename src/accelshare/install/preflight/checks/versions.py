"""The versions of the API server and of kubelets.

Belongs here: which are too old, and what an old one lacks. Never: container runtimes (`runtimes.py`).
"""

import re
from collections.abc import Iterator
from typing import Final

from accelshare.install.preflight.findings import Finding, Grade
from accelshare.install.preflight.grouping import nodes_by
from accelshare.install.preflight.snapshot import Snapshot
from accelshare.vendors.catalog import Catalog

OLDEST: Final = 11  # extenders with managedResources
OLDEST_TRIED: Final = 18
NEWEST_TRIED: Final = 36
ADVICE: Final = 19  # kubelet asks the device plugin which ids it would take
CONFIGURATION_BEGINS: Final = 22  # what `scheduler-config` writes where there is nothing yet


def check(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    yield _api_server(snapshot.version)
    for version, where in nodes_by(snapshot.nodes, lambda node: node.status.node_info.kubelet_version):
        minor = minor_of(version)
        if minor is None:
            yield Finding("versions", Grade.WARNING, f"kubelet on {where} says {version!r}, which is no version")
        elif minor < ADVICE:
            yield Finding(
                "versions",
                Grade.WARNING,
                f"kubelet {version} on {where} takes no advice on which devices to give: a pod's units may be strewn over cards, "
                "and then only the pod's record says which card it has",
                (f"prefer kubelet 1.{ADVICE} or newer",),
            )
        else:
            yield Finding("versions", Grade.FINE, f"kubelet {version} on {where}")


def _api_server(version: str) -> Finding:
    minor = minor_of(version)
    if minor is None:
        return Finding("versions", Grade.WARNING, f"the API server says {version!r}, which is no version of Kubernetes")
    if minor < OLDEST:
        return Finding("versions", Grade.PROBLEM, f"Kubernetes {version} is older than 1.{OLDEST}: its scheduler shares no cards")
    if not OLDEST_TRIED <= minor <= NEWEST_TRIED:
        tried = f"1.{OLDEST_TRIED} to 1.{NEWEST_TRIED}"
        return Finding("versions", Grade.WARNING, f"Kubernetes {version} is none of those that accelshare knows, {tried}")
    form = "a policy" if minor < CONFIGURATION_BEGINS else "a configuration file"
    return Finding("versions", Grade.FINE, f"Kubernetes {version}; kube-scheduler is told by {form}")


def minor_of(version: str) -> int | None:
    """The second number of `v1.36.4`, `1.20` or `v1.28.3+vendor`."""
    found = re.match(r"v?1\.(\d+)", version)
    return int(found[1]) if found else None
