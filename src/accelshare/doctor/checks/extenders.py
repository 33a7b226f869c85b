"""Checks of the extenders: one is ready, several share a Lease, their watches are current, all parts have one version.

Belongs here: what keeps the extender from deciding, or makes it decide wrongly. Never: how kube-scheduler reaches it
(scheduler.py).
"""

from collections.abc import Iterator
from typing import Final

from accelshare.doctor.findings import Finding
from accelshare.doctor.live_cluster import AGENT, EXTENDER, MANAGER, LiveCluster, title
from accelshare.install.preflight.findings import Grade, named

SILENT_S: Final = 180.0  # the API server sends a bookmark about every minute; the alert has the same limit
_WATCH_UP: Final = "accelshare_watch_up"
_WATCH_SILENT: Final = "accelshare_watch_silent_seconds"
_AGENT_CURRENT: Final = "accelshare_agent_watch_current"


def check_extender(live: LiveCluster) -> Iterator[Finding]:
    if live.ready_extenders:
        return
    for workload in live.ours(EXTENDER, live.deployments):
        namespace, name = workload.metadata.namespace, workload.metadata.name
        what = "has 0 replicas" if workload.spec.replicas == 0 else "has no ready pod"
        fix = (
            f"kubectl scale deployment/{name} -n {namespace} --replicas=1"
            if workload.spec.replicas == 0
            else f"kubectl describe pods -n {namespace} -l app.kubernetes.io/component=extender"
        )
        yield Finding(
            "extender", Grade.PROBLEM, f"deployment/{namespace}/{name}", f"{what}: pods that request cards are not scheduled", fix
        )
        return
    if live.requests or live.agents:
        yield Finding(
            "extender",
            Grade.PROBLEM,
            "cluster",
            "no extender is installed, but agents or pods that request cards are there: these pods are not scheduled",
            "helm install accelshare deploy/chart/accelshare --namespace kube-system --set vendors.VENDOR.enabled=true",
        )


def check_leases(live: LiveCluster) -> Iterator[Finding]:
    """Extenders that decide at the same time without a Lease hold cards that the others do not know of."""
    known = {(lease.metadata.namespace, lease.metadata.name) for lease in live.leases}
    for workload in live.ours(EXTENDER, live.deployments):
        namespace, name = workload.metadata.namespace, workload.metadata.name
        pods = [pod for pod in live.pods_of(EXTENDER) if pod.metadata.namespace == namespace]
        count = max(workload.spec.replicas, sum(pod.ready for pod in pods))
        if count < 2:
            continue
        leases = {pod.flag("lease") for pod in pods} or {""}
        missing = sorted(lease for lease in leases if (namespace, lease.rpartition("/")[2]) not in known)
        if missing:
            what = f"the Lease {missing[0]} does not exist" if missing[0] else "they have no --lease"
            yield Finding(
                "leases",
                Grade.PROBLEM,
                f"deployment/{namespace}/{name}",
                f"{count} extenders run and {what}: each assigns cards that the others do not know of",
                f"kubectl scale deployment/{name} -n {namespace} --replicas=1",
            )


def check_watches(live: LiveCluster) -> Iterator[Finding]:
    """Watches of extenders and agents that have stopped: they decide with outdated data."""
    for pod in live.pods_of(EXTENDER):
        for series, value in sorted(live.pages.get(title(pod), {}).items()):
            down = series.startswith(_WATCH_UP) and value == 0
            silent = series.startswith(_WATCH_SILENT) and value > SILENT_S
            if down or silent:
                what = "is interrupted" if down else f"has been silent for {value:.0f} s"
                yield _stale(title(pod), f"the extender's watch {series.partition('{')[2].rstrip('}')} {what}")
    for pod in live.agents.values():
        if live.pages.get(title(pod), {}).get(_AGENT_CURRENT) == 0:
            yield _stale(title(pod), "the agent's watch of its node's pods is interrupted or stalled: it delivers no cards")


def _stale(pod: str, what: str) -> Finding:
    namespace, _, name = pod.partition("/")
    return Finding("watches", Grade.PROBLEM, f"pod/{pod}", what, f"kubectl logs -n {namespace} {name} | grep interrupted")


def check_versions(live: LiveCluster) -> Iterator[Finding]:
    images: dict[str, list[str]] = {}
    for component in (EXTENDER, AGENT, MANAGER):
        for pod in live.pods_of(component):
            if pod.image:
                images.setdefault(pod.image, []).append(title(pod))
    if len(images) > 1:
        parts = "; ".join(f"{image} on {named(pods)}" for image, pods in sorted(images.items()))
        namespace = next(iter(live.namespaces), "kube-system")
        yield Finding(
            "versions",
            Grade.WARNING,
            f"namespace/{namespace}",
            f"extenders, agents and managers run {len(images)} different images, which is meant only for the time of an upgrade: "
            f"{parts}",
            f"kubectl rollout status daemonset,deployment -n {namespace} -l app.kubernetes.io/part-of=accelshare",
        )
