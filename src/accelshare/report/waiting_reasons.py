"""Pods that wait for cards: what each requests, and why no node serves it, as one short reason for each group of nodes.

Belongs here: the ledger's refusals of waiting pods, as rows. Never: one reason for each pod, with selectors and taints
(waiting.py); the long answer for one pod (explain.py).
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from accelshare.ledger.facts import PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Request
from accelshare.ledger.refusals import Reason
from accelshare.report.cluster_state import ClusterState
from accelshare.report.request_texts import RequestTexts

MOST_REQUESTS: Final = 50  # different ones that are compared with every node: 5,000 nodes take 70 ms for each


class WaitingReason(Struct, frozen=True):
    code: str  # the constant word of the reason
    text: str
    nodes: int  # that refuse for this reason; 0: the request itself is wrong


class WaitingRow(Struct, frozen=True):
    """One waiting pod. `fits` nodes have the cards: something else keeps the pod waiting."""

    namespace: str
    name: str
    uid: str
    created: str
    kinds: tuple[str, ...]
    request: str
    fits: int
    reasons: tuple[WaitingReason, ...]  # the most frequent first; empty with `fits` 0: not compared with the nodes


def waiting_by_age(ledger: Ledger) -> list[PodSeen]:
    """The pods that count on no node, the oldest first."""
    pods = [pod.seen for pod in ledger.pods() if pod.place is None]
    return sorted(pods, key=lambda pod: (pod.created, pod.namespace, pod.name))


class WaitingReasons:
    """The rows of one moment: equal requests are compared with the nodes once."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._answers: dict[Request, tuple[int, tuple[WaitingReason, ...]]] = {}
        self._texts = RequestTexts(state)

    def row(self, pod: PodSeen) -> WaitingRow:
        fits, reasons = self._answer(pod)
        return WaitingRow(
            pod.namespace,
            pod.name,
            pod.uid,
            pod.created,
            tuple(dict.fromkeys(ask.kind for ask in pod.request)),
            self._texts.text(pod.request),
            fits,
            reasons,
        )

    def _answer(self, pod: PodSeen) -> tuple[int, tuple[WaitingReason, ...]]:
        if pod.refusal is not None:
            text = self._state.catalog[pod.refusal.kind].text(pod.refusal.reason)
            return 0, (WaitingReason(pod.refusal.reason.value, text, 0),)
        answer = self._answers.get(pod.request)
        if answer is None:
            if len(self._answers) == MOST_REQUESTS:
                return 0, ()
            ranking = self._state.ledger.ranking(pod.request)
            answer = self._answers[pod.request] = len(ranking), tuple(self._reasons(pod.request))
        return answer

    def _reasons(self, request: Request) -> Iterator[WaitingReason]:
        refused = [(refusal, len(nodes)) for refusal, nodes in self._state.ledger.ranking(request).refused.items() if nodes]
        # Nodes without such cards are no news, unless there are only these.
        with_cards = [each for each in refused if each[0].reason is not Reason.NO_CARDS]
        for refusal, nodes in sorted(with_cards or refused, key=lambda each: (-each[1], each[0].reason.value, each[0].kind)):
            yield WaitingReason(refusal.reason.value, self._state.catalog[refusal.kind].text(refusal.reason), nodes)
