"""Which pods would have to leave a node so that a more important one really finds its cards.

Belongs here: choosing victims on one node. Never: who may be evicted at all beyond priority (disruption budgets are the
scheduler's), and evicting.

The scheduler proposes victims that free enough of the node's total. That may be spread over several cards and help nobody,
so the proposal is kept where it is enough, and otherwise changed into the least harmful set that empties the right card and
still gives the node back at least as much of everything as the proposal did.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from accelshare.ledger.book import Ledger, Pod
from accelshare.ledger.node_book import NodeBook
from accelshare.ledger.nouns import Request
from accelshare.ledger.placing import Fit, fit


def victims(ledger: Ledger, node: str, request: Request, *, priority: int, proposed: Collection[str]) -> list[str] | None:
    """The uids to evict, or None where no eviction of less important pods makes room."""
    book = ledger.node(node)
    if book is None or book.fact is None:
        return None
    if _serves(ledger, book, request, proposed):
        return list(proposed)
    pods = [pod for uid in book.pods if (pod := ledger.pod(uid)) is not None]
    evictable = {pod.seen.uid: pod for pod in pods if pod.seen.node and pod.seen.priority < priority}
    sets = [_least(ledger, book, request, evictable, last) for last in _ways(book, request)]
    enough = [chosen for chosen in sets if chosen is not None]
    if not enough:
        return None
    chosen = min(enough, key=lambda uids: _harm(evictable[uid] for uid in uids))
    return _give_back_as_much(chosen, proposed, evictable)


def _serves(ledger: Ledger, book: NodeBook, request: Request, gone: Collection[str]) -> bool:
    return isinstance(fit(book.without(gone), request, ledger.policy), Fit)


def _ways(book: NodeBook, request: Request) -> Iterator[frozenset[str]]:
    """Orders worth trying: empty this card rather than another, for each card; and no preference at all."""
    yield frozenset()
    for kind in {ask.kind for ask in request}:
        for card in book.cards.get(kind, ()):
            if card.holders:
                yield frozenset(card.holders)


def _least(ledger: Ledger, book: NodeBook, request: Request, evictable: dict[str, Pod], last: frozenset[str]) -> list[str] | None:
    """Evict all, then take back one by one, the most important first and those on the card to be emptied last."""
    gone = set(evictable)
    if not _serves(ledger, book, request, gone):
        return None
    for uid in sorted(gone, key=lambda uid: (uid in last, -evictable[uid].seen.priority, uid)):
        if _serves(ledger, book, request, gone - {uid}):
            gone.discard(uid)
    return sorted(gone)


def _harm(pods: Iterable[Pod]) -> tuple[int, int, int]:
    """kube-scheduler's own order: the least important top victim, then the smallest sum, then the fewest."""
    priorities = [pod.seen.priority for pod in pods]
    return max(priorities), sum(priority + 2**31 for priority in priorities), len(priorities)


def _give_back_as_much(chosen: list[str], proposed: Collection[str], evictable: dict[str, Pod]) -> list[str]:
    # A proposed pod that asks for no card of ours is not in the book: it frees something else, so it stays a victim.
    result = [*chosen, *(uid for uid in proposed if uid not in evictable)]
    missing = Counter(_needs(proposed, evictable))
    missing.subtract(_needs(chosen, evictable))
    for uid in proposed:
        needs = dict(evictable[uid].seen.needs) if uid in evictable and uid not in chosen else {}
        if any(missing[name] > 0 for name in needs):
            result.append(uid)
            missing.subtract(needs)
    return result


def _needs(uids: Iterable[str], evictable: dict[str, Pod]) -> Counter[str]:
    total: Counter[str] = Counter()
    for uid in uids:
        if uid in evictable:
            total.update(dict(evictable[uid].seen.needs))
    return total
