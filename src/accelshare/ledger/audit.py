"""Checks the invariants of the ledger from the outside.

Belongs here: reporting what is violated, for tests and for people. Never: repairing it.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from accelshare.ledger.node_ledger import CardLedger, NodeLedger
from accelshare.ledger.nouns import LimitNeed, Request, Slice
from accelshare.ledger.placing import Fit, fit
from accelshare.ledger.rankings import Ranking

if TYPE_CHECKING:
    from accelshare.ledger.ledger import Ledger


def audit(ledger: "Ledger", rankings: Iterable[tuple[Request, Ranking]]) -> list[str]:
    return [
        *(problem for node in ledger.nodes() for problem in oversold(node)),
        *_pods_count_once(ledger),
        *_sums_follow_from_pods(ledger),
        *(problem for request, ranking in rankings for problem in _ranking_is_right(ledger, request, ranking)),
    ]


def oversold(node: NodeLedger) -> Iterator[str]:
    """Cards with more held than they have, in too many slices, or held whole and shared at once. Facts can add up to this; offers
    never do.
    """
    for card in node.all_cards():
        where = f"{node.name}/{card.card.kind}/{card.card.index}"
        if card.used < 0 or any(units < 0 for units in card.holders.values()):
            yield f"{where}: a negative amount is held ({card.used})"
        if not card.present:
            continue
        if card.used > card.card.size:
            yield f"{where}: {card.used} held of {card.card.size} by {_names(card)}"
        elif card.wholes and len(card.holders) > 1:
            yield f"{where}: held whole and shared at once by {_names(card)}"
        elif 0 < card.card.max_slices < len(card.holders):
            yield f"{where}: {len(card.holders)} slices of at most {card.card.max_slices}, held by {_names(card)}"


def _pods_count_once(ledger: "Ledger") -> Iterator[str]:
    homes: dict[str, list[str]] = {}
    for node in ledger.nodes():
        for uid in node.pods:
            homes.setdefault(uid, []).append(node.name)
    for pod in ledger.pods():
        expected = [pod.place[0]] if pod.place else []
        found = homes.pop(pod.seen.uid, [])
        if found != expected:
            yield f"pod {pod.seen.namespace}/{pod.seen.name} is counted on {found}, it belongs on {expected}"
    for uid, nodes in homes.items():
        yield f"pod {uid} has ended and is still counted on {nodes}"


def _sums_follow_from_pods(ledger: "Ledger") -> Iterator[str]:
    for node in ledger.nodes():
        again = NodeLedger(node.name)
        again.reset(node.fact)
        for uid in node.pods:
            pod = ledger.pod(uid)
            if pod is not None and pod.place is not None:
                again.add_pod(uid, pod.seen.request, pod.place[1])
        if again.unplaced != node.unplaced or _sums(again) != _sums(node):
            yield f"node {node.name}: the running sums {_sums(node)} are not what its pods add up to {_sums(again)}"


def _ranking_is_right(ledger: "Ledger", request: Request, ranking: Ranking) -> Iterator[str]:
    remembered = dict(ranking.answers())
    for node in ledger.nodes():
        if node.fact is None:
            continue
        answer = fit(node, request, ledger.policy)
        if isinstance(answer, Fit):
            yield from _offer_is_allowed(node, request, answer.assignment.slices)
        truth = answer.rank if isinstance(answer, Fit) else answer
        if remembered.pop(node.name, None) != truth:
            yield f"node {node.name}: remembered answer to {request} is out of date"
    for name in remembered:
        yield f"node {name} is gone and its answer to {request} is still remembered"


def _offer_is_allowed(node: NodeLedger, request: Request, slices: Iterable[Slice]) -> Iterator[str]:
    """Cards change while pods are on them, so only an offer must follow these rules; a pod keeps the card that it has."""
    asks = {(ask.kind, ask.whole): ask for ask in request}
    for slice_ in slices:
        ask = asks[slice_.kind, slice_.whole]
        card = next(card.card for card in node.cards[slice_.kind] if card.card.index == slice_.index)
        where = f"{node.name}/{card.kind}/{card.index}"
        if not card.healthy:
            yield f"{where} is unhealthy and offered to {request}"
        if ask.limits is LimitNeed.REQUIRED and not card.limited:
            yield f"{where} is not limited and offered to {request}, which requires a limit"
        if not ask.whole and slice_.units < card.min_units:
            yield f"{where}: {slice_.units} units are offered to {request}, and a container needs at least {card.min_units}"


def _sums(node: NodeLedger) -> dict[tuple[str, int, str], tuple[dict[str, int], frozenset[str]]]:
    return {(card.card.kind, card.card.index, card.card.id): (card.holders, card.wholes) for card in node.all_cards()}


def _names(card: CardLedger) -> str:
    return ", ".join(card.holders)
