"""Checks of pods: records that differ from what nodes deliver, oversold cards, labels of ours on other pods, pods that wait.

Belongs here: pods that request cards, and pods that claim to be ours. Never: sums of cards (`ledger/`).
"""

from collections.abc import Iterator
from typing import Final

from accelshare.doctor.findings import Finding
from accelshare.doctor.live_cluster import SECOND_SCHEDULER, LiveCluster, title
from accelshare.doctor.objects import LivePod, time_of
from accelshare.install.preflight.findings import Grade
from accelshare.ledger.audit import oversold
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.nouns import Assignment, Request
from accelshare.report.cluster_state import obstacles
from accelshare.wire.pods import AGENT_LABEL

MOST_NAMED: Final = 20  # waiting pods; more are counted
MOST_EXAMINED: Final = 500  # waiting pods: each is compared with the nodes that have its cards
_DEFAULT_SCHEDULER: Final = "default-scheduler"


def check_drift(live: LiveCluster) -> Iterator[Finding]:
    """Pods whose record differs from what their node delivers."""
    for node in live.ledger.nodes():
        for uid in node.pods:
            pod = live.ledger.pod(uid)
            if pod is None:
                continue
            lost = sorted(f"{card.card.kind} {card.card.index}" for card in node.missing.values() if uid in card.holders)
            if pod.rewritten:
                what = f"its record names other cards than it has on {node.name}: somebody changed it, or kubelet chose others"
            elif lost:
                what = f"its record names the card {lost[0]}, which {node.name} no longer has"
            elif uid in node.unplaced and pod.seen.slices and node.fact is not None:
                what = f"its record names a card that is not in the inventory of {node.name}"
            else:
                continue
            name = f"{pod.seen.namespace}/{pod.seen.name}"
            fix = f"kubectl delete pod {pod.seen.name} -n {pod.seen.namespace} (its owner creates it again)"
            yield Finding("drift", Grade.WARNING, f"pod/{name}", what, fix)


def check_oversold(live: LiveCluster) -> Iterator[Finding]:
    names = {uid: f"{pod.namespace}/{pod.name}" for uid, pod in live.requests.items()}
    for node in live.ledger.nodes():
        for problem in oversold(node):
            where, _, what = problem.partition(": ")
            for uid in node.pods:
                what = what.replace(uid, names.get(uid, uid))
            fix = f"accelshare inspect {node.name} -d, then delete one of the pods"
            yield Finding("oversold", Grade.PROBLEM, f"card/{where}", what, fix)


def check_tenant_labels(live: LiveCluster) -> Iterator[Finding]:
    """Pods of others with a label by which accelshare finds its own parts."""
    for pod in live.pods:
        identity = (pod.metadata.namespace, pod.spec.service_account_name)
        if AGENT_LABEL in pod.labels and identity != live.agent_identity:
            what = f"it has the label {AGENT_LABEL}, but is no agent: the extender ignores it, scrape rules and inspect may not"
            yield Finding("tenant-labels", Grade.WARNING, f"pod/{title(pod)}", what, _unlabel(pod, AGENT_LABEL))
    for service in live.extender_services:
        selector = service.spec.selector or {}
        for pod in live.pods:
            selected = pod.metadata.namespace == service.metadata.namespace and selector.items() <= pod.labels.items()
            if selector and selected and pod.spec.service_account_name != service.metadata.name:
                what = f"it has the labels of the Service {service.metadata.name}: kube-scheduler's calls may reach it"
                fix = _unlabel(pod, next(iter(selector)))
                yield Finding("tenant-labels", Grade.PROBLEM, f"pod/{title(pod)}", what, fix)


def _unlabel(pod: LivePod, label: str) -> str:
    return f"kubectl label pod {pod.metadata.name} -n {pod.metadata.namespace} {label}-"


def check_waiting_pods(live: LiveCluster) -> Iterator[Finding]:
    """Pods that wait for cards although nobody will serve them, or although a node could."""
    waiting = [pod for pod in live.pods if _waits(live, pod)]
    delivered = _delivered(live)
    fitting: dict[Request, list[str]] = {}  # the nodes that have the cards, by request
    found = 0
    for pod in waiting[:MOST_EXAMINED]:
        request = live.requests[pod.metadata.uid]
        finding = _unserved(live, pod, request, delivered)
        if finding is None:
            if request.request not in fitting:
                fitting[request.request] = _with_cards(live, request.request)
            finding = _fitting(live, pod, request, fitting[request.request])
        if finding is not None:
            found += 1
            if found <= MOST_NAMED:
                yield finding
    unnamed = found - MOST_NAMED
    if unnamed > 0:
        what = f"{unnamed} more of the first {min(MOST_EXAMINED, len(waiting))} waiting pods wait without need"
        yield Finding("waiting-pods", Grade.WARNING, "cluster", what, "accelshare doctor, after the pods above are solved")


def _waits(live: LiveCluster, pod: LivePod) -> bool:
    """Whether it waits for cards that it could get, and has done so for a while."""
    request = live.requests.get(pod.metadata.uid)
    if request is None or request.node or request.refusal is not None or pod.spec.scheduling_gates:
        return False
    created = time_of(pod.metadata.creation_timestamp)
    return created is None or live.now - created > live.patience


def _delivered(live: LiveCluster) -> frozenset[str]:
    """The kinds of cards that some node delivers."""
    return frozenset(
        kind
        for node in live.ledger.nodes()
        for kind, cards in node.cards.items()
        if cards and not node.paused(kind) and _agent_ready(live, node.name)
    )


def _with_cards(live: LiveCluster, request: Request) -> list[str]:
    """The nodes that have the cards for this request now, and an agent that would deliver them."""
    answers = ((node.metadata.name, live.ledger.offer(node.metadata.name, request)) for node in live.nodes if node.ready)
    return [name for name, answer in answers if isinstance(answer, Assignment) and _agent_ready(live, name)]


def _unserved(live: LiveCluster, pod: LivePod, request: PodSeen, delivered: frozenset[str]) -> Finding | None:
    name = pod.spec.scheduler_name or _DEFAULT_SCHEDULER
    second = [each.metadata.name for each in live.ours(SECOND_SCHEDULER, live.deployments)]
    nouns = sorted({ask.kind for ask in request.request})
    if not live.ready_extenders:
        return _waiting(pod, "no extender is ready to schedule it", "accelshare doctor: see the finding of the check extender")
    if second and name not in second:
        what = f"its schedulerName is {name}, but only {', '.join(second)} calls the extender"
        return _waiting(pod, what, f"set schedulerName: {second[0]} in its template")
    if missing := [kind for kind in nouns if kind not in delivered]:
        what = f"no node with a ready agent has {', '.join(missing)} cards"
        return _waiting(pod, what, "kubectl get nodes --show-labels, and label a node of this vendor")
    if not pod.condition("PodScheduled").status:
        what = f"no scheduler has looked at it: is there one with the name {name}?"
        return _waiting(pod, what, f"kubectl get pods -A | grep {name}, or change its schedulerName")
    return None


def _agent_ready(live: LiveCluster, node: str) -> bool:
    """A node without an agent of ours in sight may be served by an original device plugin."""
    agent = live.agents.get(node)
    return agent is None or agent.ready


def _fitting(live: LiveCluster, pod: LivePod, request: PodSeen, nodes: list[str]) -> Finding | None:
    """Whether nothing would keep the pod from one of these nodes. What cannot be evaluated here is not claimed."""
    if (pod.spec.affinity is not None and pod.spec.affinity.required) or pod.spec.topology_spread_constraints:
        return None
    for name in nodes:
        labels, constraints = live.labels[name], live.constraints[name]
        if any(labels.get(key) != value for key, value in (pod.spec.node_selector or {}).items()):
            continue
        if not any(obstacles(constraints, pod.spec.tolerations or (), request.needs)):
            what = f"it fits on {name} and waits all the same: {pod.condition('PodScheduled').message or 'no message'}"
            return _waiting(pod, what, f"accelshare explain {pod.metadata.name} -n {pod.metadata.namespace}")
    return None


def _waiting(pod: LivePod, what: str, fix: str) -> Finding:
    return Finding("waiting-pods", Grade.WARNING, f"pod/{title(pod)}", what, fix)
