"""Checks of nodes: an agent on each node that shares cards, what it published, the runtime's validator, clocks.

Belongs here: one node at a time. Never: pods that hold cards (pods.py).
"""

from collections.abc import Iterator
from typing import Final

from accelshare.doctor.findings import Finding
from accelshare.doctor.live_cluster import AGENT, LiveCluster, title
from accelshare.doctor.objects import LiveNode
from accelshare.inspect_cli.cluster_reader import unknown_kinds
from accelshare.install.preflight.checks.nodes import has_validator, shown
from accelshare.install.preflight.findings import Grade, nodes_by
from accelshare.wire import inventory

NODE_LEASES: Final = "kube-node-lease"  # kubelet renews the Lease of its node here
SKEW_S: Final = 5.0
LARGE_SKEW_S: Final = 300.0  # certificates begin this much before they were made
_LONGEST: Final = 80  # characters of a value that a node reports about itself


def check_agents(live: LiveCluster) -> Iterator[Finding]:
    """Nodes that share cards, by their label or by an inventory, without an agent that is ready."""
    for node in live.nodes:
        why = _shares(live, node)
        pod = live.agents.get(node.metadata.name)
        if not why or (pod is not None and pod.ready):
            continue
        name = f"node/{node.metadata.name}"
        if not node.ready:
            what = f"{why}, and the node is not Ready: its cards are not delivered"
            yield Finding("agents", Grade.PROBLEM, name, what, f"kubectl describe node {node.metadata.name}")
        elif pod is None:
            sets = live.ours(AGENT, live.daemon_sets)
            fix = (
                f"kubectl describe daemonset/{sets[0].metadata.name} -n {sets[0].metadata.namespace}"
                if sets
                else "helm upgrade accelshare deploy/chart/accelshare --reuse-values --set vendors.VENDOR.enabled=true"
            )
            what = f"{why}, but no agent runs there (its vendor is not enabled, or a taint keeps it away)"
            yield Finding("agents", Grade.PROBLEM, name, what, fix)
        else:
            what = f"{why}, but its agent {title(pod)} is not ready: pods bound there would not get their cards"
            fix = f"kubectl logs -n {pod.metadata.namespace} {pod.metadata.name}"
            yield Finding("agents", Grade.PROBLEM, name, what, fix)


def _shares(live: LiveCluster, node: LiveNode) -> str:
    """Why this node should have an agent; empty: it should not."""
    for profile in live.catalog:
        if profile.node_label is not None and node.labels.get(profile.node_label[0]) == profile.node_label[1]:
            return f"it has the label {'='.join(profile.node_label)}"
    return f"it has the annotation {inventory.KEY}" if inventory.KEY in (node.metadata.annotations or {}) else ""


def check_inventories(live: LiveCluster) -> Iterator[Finding]:
    """What an agent published and cannot be used: an unreadable inventory, a vendor with a problem, a paused delivery."""
    for ledger in live.ledger.nodes():
        fact = ledger.fact
        if fact is None:
            continue
        name = f"node/{ledger.name}"
        for problem in fact.problems:
            fix = f"kubectl get node {ledger.name} -o yaml, and the log of its agent"
            yield Finding("inventories", Grade.PROBLEM, name, problem, fix)
        agent = live.agents.get(ledger.name)
        if agent is not None and agent.ready:
            for kind in sorted(fact.paused):
                what = f"delivers no {kind} cards although its agent is ready"
                fix = f"kubectl logs -n {agent.metadata.namespace} {agent.metadata.name}"
                yield Finding("inventories", Grade.WARNING, name, what, fix)
    entries = {node.metadata.name: node.inventory() for node in live.nodes}
    for message in unknown_kinds(entries, live.catalog):
        yield Finding("inventories", Grade.NOTE, "cluster", message, "accelshare doctor --profiles DIR")


def check_validator(live: LiveCluster) -> Iterator[Finding]:
    """Nodes whose runtime could refuse containers without their cards, and does not."""
    could = [
        node
        for node in live.nodes
        if has_validator(node.status.node_info.container_runtime_version[:_LONGEST])
        and any(entry.delivery and not entry.insists for entry in node.inventory().values())
    ]
    for runtime, where in nodes_by(could, lambda node: node.status.node_info.container_runtime_version):
        what = f"the validator of {shown(runtime)} is off: a container can start without its card while the agent is away"
        yield Finding("validator", Grade.NOTE, f"node/{where}", what, "accelshare runtime-config apply, on each of these nodes")


def check_clocks(live: LiveCluster) -> Iterator[Finding]:
    """Nodes whose clock differs from the API server's, by the renewals of their Leases."""
    for lease in live.leases:
        skew = lease.skew_s if lease.metadata.namespace == NODE_LEASES else None
        if skew is None or abs(skew) <= SKEW_S:
            continue
        grade = Grade.PROBLEM if abs(skew) > LARGE_SKEW_S else Grade.WARNING
        which = "ahead of" if skew > 0 else "behind"
        what = f"its clock is {abs(skew):.0f} s {which} the API server's: tokens and certificates are judged by it"
        yield Finding("clocks", grade, f"node/{lease.metadata.name}", what, "timedatectl set-ntp true, on this node")
