"""How containers get their cards on each node: as its agent has found out, or by its container runtime's version.

Belongs here: what an agent's word means for an operator. Never: which version can do what (`runtime_versions.py`).
"""

from collections.abc import Iterator

from accelshare.install.preflight.findings import Finding, Grade
from accelshare.install.preflight.grouping import nodes_by
from accelshare.install.preflight.inventories import told
from accelshare.install.preflight.objects import Node
from accelshare.install.preflight.runtime_versions import judged, shown
from accelshare.install.preflight.snapshot import Snapshot
from accelshare.vendors.catalog import Catalog
from accelshare.wire.inventory import BY_RUNTIME

_BY_KUBELET = "device-plugin"


def check(snapshot: Snapshot, catalog: Catalog) -> Iterator[Finding]:
    alike: dict[tuple[str, bool], list[Node]] = {}
    for node in snapshot.nodes:
        alike.setdefault(_found_out(node), []).append(node)
    for (way, insists), nodes in sorted(alike.items(), key=lambda group: group[0]):
        for runtime, where in nodes_by(nodes, lambda node: node.status.node_info.container_runtime_version):
            yield _as_told(way, insists, runtime, where) if way else judged(runtime, where)


def _found_out(node: Node) -> tuple[str, bool]:
    """The way in which the node's agent delivers, and whether the runtime insists on that; no way where no agent has spoken."""
    kinds = [entry for entry in told(node).values() if entry.delivery]
    return (kinds[0].delivery, all(entry.insists for entry in kinds)) if kinds else ("", False)


def _as_told(way: str, insists: bool, runtime: str, where: str) -> Finding:
    this = f"{shown(runtime)} on {where}"
    by_version = judged(runtime, where)
    if way == BY_RUNTIME and insists:
        return Finding("runtimes", Grade.FINE, f"{this} delivers by pod identity, exactly: it insists on the agent")
    if way == BY_RUNTIME:
        says = f"{this} delivers by pod identity, but does not insist on the agent: containers made while it is away have no card"
        return Finding("runtimes", Grade.WARNING, says, by_version.do)
    also = "" if way == _BY_KUBELET else ", and NRI corrects it by pod identity"
    says = f"{this} does not insist on the agent: the device plugin interface delivers{also}"
    return Finding("runtimes", by_version.grade, says, by_version.do)
