"""The shadow of the ledger: every node as it will be once the promised pods are bound.

Belongs here: counting promised pods beside the ledger's own, and finding promises that have become wrong. Never: changing the
ledger. The ledger knows nothing of promises: a hold needs cards that are free in the ledger, whatever was promised.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from accelshare.ledger.ledger import Ledger
from accelshare.ledger.node_ledger import NodeLedger
from accelshare.ledger.nouns import Assignment, Request
from accelshare.ledger.placing import Fit, fit, fit_on
from accelshare.ledger.rankings import MOST_REQUESTS, Ranking, RankingCache
from accelshare.ledger.refusals import Reason, Refusal


@dataclass(frozen=True, slots=True)
class Promise:
    """The cards that a pending pod is to get."""

    uid: str
    request: Request
    assignment: Assignment


class Shadow:
    """Reads the ledger, which changes on its own: every method first applies what has changed there."""

    def __init__(self, ledger: Ledger, *, cached_requests: int = MOST_REQUESTS) -> None:
        self._ledger = ledger
        self._promises: dict[str, Promise] = {}
        self._on: dict[str, dict[str, None]] = {}  # node → uids of its promises, oldest first
        self._nodes: dict[str, NodeLedger] = {}  # the nodes that have promises, with them
        self._cached_requests = cached_requests
        self._rankings = RankingCache(self._answer, most=cached_requests)
        self._position = ledger.changes_since(0)[1]
        self._broken: dict[str, Promise] = {}

    def __len__(self) -> int:
        return len(self._promises)

    def __contains__(self, uid: object) -> bool:
        return uid in self._promises

    def promise(self, uid: str) -> Promise | None:
        return self._promises.get(uid)

    def promises(self) -> Iterator[Promise]:
        return iter(self._promises.values())

    def ranking(self, request: Request) -> Ranking:
        """Every node's answer to this request if all promises are kept. It is the shadow's own cache: read it, do not keep it."""
        self._follow()
        return self._rankings.ranking(request, self._ledger.known_nodes)

    def add(self, uid: str, request: Request, node: str) -> Promise | Refusal:
        """Promise cards of this node to a pod, or the reason why none can be."""
        self._follow()
        answer = self._answer(node, request) if not self._is_placed(uid) else None
        if not isinstance(answer, Fit):
            return answer or Refusal(Reason.UNKNOWN_NODE, request[0].kind if request else "")
        promise = self._promises[uid] = Promise(uid, request, answer.assignment)
        self._on.setdefault(node, {})[uid] = None
        shadow = self._nodes.get(node)
        if shadow is None:
            self._nodes[node] = self._with_promises(node)
        else:
            shadow.add_pod(uid, request, answer.assignment.slices)
        self._rankings.touch(node)
        return promise

    def remove(self, uid: str) -> Promise | None:
        """Forget a promise: it was kept, or it is not to be kept."""
        self._follow()
        self._broken.pop(uid, None)
        promise = self._promises.get(uid)
        if promise is None:
            return None
        self._forget(promise)
        name = promise.assignment.node
        shadow, pod = self._nodes[name], self._ledger.pod(uid)
        if pod is None or pod.place != (name, promise.assignment.slices):
            shadow.remove_pod(uid)
            self._rankings.touch(name)
            if pod is not None and pod.place is not None and pod.place[0] == name:
                self._renew(name)  # it has other cards of the node
        if name not in self._on:
            self._nodes.pop(name, None)
        return promise

    def broken(self) -> list[Promise]:
        """The promises whose cards are no longer free, healthy or there, since this was last asked. They are forgotten."""
        self._follow()
        broken = list(self._broken.values())
        self._broken.clear()
        return broken

    def check(self) -> list[str]:
        """Every difference between this and the same promises counted again, as text; empty if there is none."""
        self._follow()
        problems = []
        for name in self._on:
            fresh, kept = self._counted(name), self._nodes[name]
            for new, old in zip(fresh.all_cards(), kept.all_cards(), strict=True):
                if (new.card, new.holders, new.wholes) != (old.card, old.holders, old.wholes):
                    problems.append(f"{name}/{old.card.kind}/{old.card.index}: {old.holders} instead of {new.holders}")
        for request, ranking in self._rankings.rankings(self._ledger.known_nodes):
            for node, answer in ranking.answers():
                now = self._answer(node, request)
                if answer != (now.rank if isinstance(now, Fit) else now):
                    problems.append(f"{node} is ranked {answer} for {request} instead of {now}")
        return problems

    def _follow(self) -> None:
        """Apply what has changed in the ledger since the last call."""
        changed, position = self._ledger.changes_since(self._position)
        if position == self._position:
            return
        self._position = position
        if changed is None:  # the rankings have missed changes, too
            self._rankings = RankingCache(self._answer, most=self._cached_requests)
            changed = set(self._on)
        for name in changed:
            if name not in self._on:
                self._rankings.touch(name)
            elif not self._is_right(name):
                self._renew(name)

    def _renew(self, name: str) -> None:
        """Count the promises of a node again. Those that do not fit any more are broken."""
        self._nodes.pop(name, None)
        if name in self._on:
            shadow = self._with_promises(name)
            if name in self._on:
                self._nodes[name] = shadow
        self._rankings.touch(name)

    def _with_promises(self, name: str) -> NodeLedger:
        shadow = self._counted(name)
        for uid in [uid for uid in self._on.get(name, ()) if uid not in shadow.pods]:
            promise = self._promises[uid]
            self._broken[uid] = promise
            self._forget(promise)
        return shadow

    def _counted(self, name: str) -> NodeLedger:
        """A copy of the node with its promises, without those that do not fit."""
        node = self._ledger.node(name)
        if node is None or node.fact is None:
            return NodeLedger(name)
        shadow = node.without(())
        for uid in self._on[name]:
            promise = self._promises[uid]
            if not self._is_placed(uid) and fit_on(shadow, promise.request, self._ledger.policy, promise.assignment.slices):
                shadow.add_pod(uid, promise.request, promise.assignment.slices)
        return shadow

    def _is_right(self, name: str) -> bool:
        """Whether the node with its promises is still the ledger's node and its promises: a promised pod that was bound to its
        promised cards changes nothing, and that is nearly every change.
        """
        shadow, node = self._nodes[name], self._ledger.node(name)
        if node is None or node.fact is None or shadow.fact is None:
            return False
        if node.fact is not shadow.fact and (node.fact.cards, node.fact.paused) != (shadow.fact.cards, shadow.fact.paused):
            return False
        if (node.away, node.rejecting, node.unplaced, node.claims) != (
            *(shadow.away, shadow.rejecting, shadow.unplaced, shadow.claims),
        ):
            return False
        if not node.pods.keys() <= shadow.pods.keys():
            return False
        extra = shadow.pods.keys() - node.pods.keys()
        if not extra <= self._on[name].keys() or any(self._is_placed(uid) for uid in extra):
            return False
        for kind, cards in node.cards.items():
            for mine, theirs in zip(cards, shadow.cards[kind], strict=True):
                if not mine.holders.items() <= theirs.holders.items() or not mine.wholes <= theirs.wholes:
                    return False
                if not (theirs.holders.keys() - mine.holders.keys()) <= extra:
                    return False
        return True

    def _is_placed(self, uid: str) -> bool:
        pod = self._ledger.pod(uid)
        return pod is not None and pod.place is not None

    def _forget(self, promise: Promise) -> None:
        node = promise.assignment.node
        del self._promises[promise.uid]
        del self._on[node][promise.uid]
        if not self._on[node]:
            del self._on[node]

    def _answer(self, name: str, request: Request) -> Fit | Refusal | None:
        node = self._nodes.get(name) or self._ledger.node(name)
        if node is None or node.fact is None:
            return None
        return fit(node, request, self._ledger.policy)
