"""The pods that wait for cards, each with its reason in one word.

Belongs here: which pods wait, the reason that is closest to serving them, and both as text. Never: what would help (explain.py);
the number of nodes for each reason (waiting_reasons.py).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from accelshare.ledger.facts import PodSeen
from accelshare.ledger.nouns import Request
from accelshare.ledger.placing import Fit, fit
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.report.cluster_state import ClusterState, NodeConstraints, PodDetails, obstacles
from accelshare.report.lines import NARROWEST, Line, Paint, Piece, painted, piece, plain, wrapped
from accelshare.report.request_texts import RequestTexts

# Two words beside the reasons of refusals: a node has the cards.
FITS: Final = "fits-now"  # kube-scheduler has not tried since, or something else than cards keeps the pod away
OBSTACLE: Final = "obstacle"  # a taint, CPU, memory or the number of pods keeps kube-scheduler from each of these nodes
NO_NODE: Final = "no-node-selected"  # no node has the labels of its nodeSelector


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod without a node. `nodes` have the cards if the reason is FITS or OBSTACLE; else they refuse for this reason."""

    namespace: str
    name: str
    requests: str
    reason: str
    message: str
    nodes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()  # of cards that it requests


def waiting_pods(state: ClusterState, details: Mapping[str, PodDetails] | None = None) -> list[WaitingPod]:
    """By namespace and name. `details` by uid: what kube-scheduler looks at besides cards; it is not considered without them."""
    known = details or {}
    texts, answers = RequestTexts(state), dict[Request, dict[str, Fit | Refusal]]()
    found = [
        _waiting(state, texts, pod.seen, known.get(pod.seen.uid), answers)
        for pod in state.ledger.pods()
        if pod.place is None and not pod.seen.ended
    ]
    return sorted(found, key=lambda pod: (pod.namespace, pod.name))


def _waiting(
    state: ClusterState,
    texts: RequestTexts,
    pod: PodSeen,
    details: PodDetails | None,
    answers: dict[Request, dict[str, Fit | Refusal]],
) -> WaitingPod:
    requests = texts.text(pod.request) or _written(state, details)
    kinds = tuple(dict.fromkeys(ask.kind for ask in pod.request))
    if pod.refusal is not None:
        text = state.catalog[pod.refusal.kind].text(pod.refusal.reason) if pod.refusal.kind in state.catalog else ""
        return WaitingPod(pod.namespace, pod.name, requests, pod.refusal.reason.value, text, kinds=kinds or (pod.refusal.kind,))
    if pod.request not in answers:
        answers[pod.request] = _answers(state, pod.request)
    reason, message, nodes = _reason(state, pod, details, answers[pod.request])
    return WaitingPod(pod.namespace, pod.name, requests, reason, message, tuple(nodes), kinds)


def _written(state: ClusterState, details: PodDetails | None) -> str:
    """A request that cannot be read, as it is written."""
    resources = details.resources.items() if details is not None else ()
    return ", ".join(f"{key}: {value}" for key, value in resources if state.catalog.by_resource(key) is not None)


def _answers(state: ClusterState, request: Request) -> dict[str, Fit | Refusal]:
    """Of every node that has cards of a vendor in the request."""
    kinds = {ask.kind for ask in request}
    return {
        node.name: fit(node, request, state.ledger.policy)
        for node in state.ledger.nodes()
        if node.fact is not None and any(node.cards.get(kind) for kind in kinds)
    }


def _reason(
    state: ClusterState, pod: PodSeen, details: PodDetails | None, answers: Mapping[str, Fit | Refusal]
) -> tuple[str, str, list[str]]:
    wanted = details.node_selector if details is not None else {}
    selected = {
        node: answer
        for node, answer in answers.items()
        if all(state.labels.get(node, {}).get(key) == value for key, value in wanted.items())
    }
    if answers and not selected:
        return NO_NODE, "no node with such cards has the labels of its nodeSelector", []
    fitting = [node for node, answer in selected.items() if isinstance(answer, Fit)]
    if fitting:
        return _fitting(state, pod, details, fitting)
    refusals = [answer for answer in selected.values() if isinstance(answer, Refusal)]
    if not refusals:
        nouns = " or ".join(dict.fromkeys(state.catalog[ask.kind].noun for ask in pod.request))
        return Reason.NO_CARDS.value, f"no node of this cluster shows a {nouns}", []
    # The reason that is closest to serving it: pods could leave; then the one that most nodes have.
    counts = Counter(refusals)
    closest = min(counts, key=lambda each: (not each.reason.eviction_could_help, -counts[each], each.reason.value))
    nodes = [node for node, answer in selected.items() if answer == closest]
    return closest.reason.value, state.catalog[closest.kind].text(closest.reason), nodes


def _fitting(state: ClusterState, pod: PodSeen, details: PodDetails | None, fitting: list[str]) -> tuple[str, str, list[str]]:
    if details is None:
        return FITS, f"{fitting[0]} has the cards", fitting
    first = ""
    for node in fitting:
        found = list(obstacles(state.constraints.get(node, NodeConstraints()), details.tolerations, pod.needs))
        if not found:
            return FITS, f"{node} can serve it now", fitting
        first = first or f"{node} has the cards, but {found[0]}"
    return OBSTACLE, first, fitting


def as_lines(pods: Sequence[WaitingPod]) -> list[list[str]]:
    """A table with one line for each pod."""
    return [
        ["POD", "REQUESTS", "REASON", "MEANING"],
        *([f"{pod.namespace}/{pod.name}", pod.requests, pod.reason, pod.message] for pod in pods),
    ]


def narrow_text(pods: Sequence[WaitingPod], columns: int, *, paint: Paint = plain) -> str:
    """The same for a screen on which the table has no room: the message of each pod is below it."""
    columns = max(columns, NARROWEST)
    lines: list[Line] = []
    for pod in pods:
        parts = [piece(f"{pod.namespace}/{pod.name}", "title"), piece(pod.requests), piece(pod.reason, "warn")]
        lines += wrapped([part for part in parts if part.text], columns, separator="  ")
        lines += [[Piece("  "), *line] for line in wrapped([piece(pod.message)], columns - 2)]
    return "".join(f"{painted(line, paint)}\n" for line in lines)


def document(pods: Sequence[WaitingPod]) -> dict[str, Any]:
    """For programs."""
    return {"waiting": [asdict(pod) for pod in pods]}
