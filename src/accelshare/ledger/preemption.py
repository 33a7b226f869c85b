"""Chooses the pods to evict from a node so that a more important pod gets its cards.

Belongs here: choosing victims on one node. Never: which pods may be evicted apart from priority (disruption budgets are the
scheduler's), and evicting.

The scheduler proposes victims that free enough of the node's total, but perhaps spread over several cards. A proposal that is
enough is kept. Otherwise it is changed into the least harmful set that frees a card and gives back at least as much of every
resource as the proposal.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from accelshare.ledger.ledger import Ledger, LedgerPod
from accelshare.ledger.node_ledger import NodeLedger
from accelshare.ledger.nouns import Request
from accelshare.ledger.placing import serves

LOWEST_PRIORITY: Final = -(2**31)


def victims(ledger: Ledger, node: str, request: Request, *, priority: int, proposed: Sequence[str]) -> list[str] | None:
    """The uids to evict, or None if evicting less important pods does not help, or is not needed.

    Proposal and answer have the most important pod first: the scheduler compares nodes by it.
    """
    node_ledger = ledger.node(node)
    if node_ledger is None or node_ledger.fact is None:
        return None
    if _serves(ledger, node_ledger.without(proposed), request):
        return list(proposed)
    pods = [pod for uid in node_ledger.pods if (pod := ledger.pod(uid)) is not None]
    evictable = {pod.seen.uid: pod for pod in pods if pod.seen.node and pod.seen.priority < priority}
    if _serves(ledger, node_ledger, request) or not _serves(ledger, node_ledger.without(evictable), request):
        return None
    enough = [_least(ledger, node_ledger, request, evictable, last) for last in _orders(node_ledger, request)]
    for chosen in sorted(enough, key=lambda uids: _harm(evictable[uid] for uid in uids)):
        result = _give_back_as_much(chosen, proposed, evictable)
        # If more pods leave, a card may fit a larger pod of unknown card, and then not this one.
        if _serves(ledger, node_ledger.without(result), request):
            return _by_importance(result, proposed, evictable)
    return _by_importance(_one_by_one(ledger, node_ledger, request, evictable, proposed), proposed, evictable)


def _serves(ledger: Ledger, node_ledger: NodeLedger, request: Request) -> bool:
    return serves(node_ledger, request, ledger.policy)


def _orders(node_ledger: NodeLedger, request: Request) -> Iterator[frozenset[str]]:
    """The orders to try: free this card rather than another, for each card; and no preference."""
    yield frozenset()
    for kind in {ask.kind for ask in request}:
        for card in node_ledger.cards.get(kind, ()):
            if card.holders:
                yield frozenset(card.holders)


def _least(
    ledger: Ledger, node_ledger: NodeLedger, request: Request, evictable: dict[str, LedgerPod], last: frozenset[str]
) -> list[str]:
    """Evict all, then keep every pod that can stay, the most important first and those on the card to be freed last."""
    order = sorted(evictable.values(), key=lambda pod: (-pod.seen.priority, pod.seen.uid))
    there = [pod for pod in order if pod.seen.uid in last]
    left = node_ledger.without({pod.seen.uid for pod in there})
    gone: list[str] = []
    if not _serves(ledger, left, request):
        left = node_ledger.without(evictable)
        gone.extend(_must_go(ledger, left, request, [pod for pod in order if pod.seen.uid not in last]))
    gone.extend(_must_go(ledger, left, request, there))
    return sorted(gone)


def _must_go(ledger: Ledger, left: NodeLedger, request: Request, pods: Sequence[LedgerPod]) -> Iterator[str]:
    """Which of these cannot stay; the others are added again. All at once and then by halves, because nearly all can stay."""
    if not pods:
        return
    left.add_pods((pod.seen.uid, pod.seen.request, pod.place[1] if pod.place else ()) for pod in pods)
    if _serves(ledger, left, request):
        return
    for pod in pods:
        left.remove_pod(pod.seen.uid)
    if len(pods) == 1:
        yield pods[0].seen.uid
        return
    half = len(pods) // 2
    yield from _must_go(ledger, left, request, pods[:half])
    yield from _must_go(ledger, left, request, pods[half:])


def _one_by_one(
    ledger: Ledger, node_ledger: NodeLedger, request: Request, evictable: dict[str, LedgerPod], proposed: Collection[str]
) -> list[str]:
    """Evict all, then keep each pod that can stay, the most important first: this always serves, and gives back as much."""
    left = node_ledger.without(evictable)
    gone = dict.fromkeys(evictable)
    wanted = _needs(proposed, evictable)
    for pod in sorted(evictable.values(), key=lambda pod: (-pod.seen.priority, pod.seen.uid)):
        uid = pod.seen.uid
        del gone[uid]
        left.add_pod(uid, pod.seen.request, pod.place[1] if pod.place else ())
        if not wanted <= _needs(gone, evictable) or not _serves(ledger, left, request):
            left.remove_pod(uid)
            gone[uid] = None
    return [*gone, *(uid for uid in proposed if uid not in evictable)]


def _harm(pods: Iterable[LedgerPod]) -> tuple[int, int, int]:
    """kube-scheduler's own order: the least important top victim, then the smallest sum, then the fewest."""
    priorities = [pod.seen.priority for pod in pods]
    return max(priorities), sum(priority - LOWEST_PRIORITY for priority in priorities), len(priorities)


def _give_back_as_much(chosen: list[str], proposed: Collection[str], evictable: dict[str, LedgerPod]) -> list[str]:
    # A proposed pod that requests no card is not in the ledger: it frees something else, so it stays a victim.
    result = [*chosen, *(uid for uid in proposed if uid not in evictable)]
    missing = Counter(_needs(proposed, evictable))
    missing.subtract(_needs(chosen, evictable))
    for uid in proposed:
        needs = dict(evictable[uid].seen.needs) if uid in evictable and uid not in chosen else {}
        if any(missing[name] > 0 for name in needs):
            result.append(uid)
            missing.subtract(needs)
    return result


def _by_importance(uids: Iterable[str], proposed: Sequence[str], evictable: dict[str, LedgerPod]) -> list[str]:
    """The most important first. A pod that is not in the ledger is at least as important as those that were proposed after it."""
    importance = {uid: pod.seen.priority for uid, pod in evictable.items()}
    least = LOWEST_PRIORITY
    for uid in reversed(proposed):
        least = max(least, importance.setdefault(uid, least))
    return sorted(uids, key=lambda uid: -importance[uid])


def _needs(uids: Iterable[str], evictable: dict[str, LedgerPod]) -> Counter[str]:
    total: Counter[str] = Counter()
    for uid in uids:
        if uid in evictable:
            total.update(dict(evictable[uid].seen.needs))
    return total
