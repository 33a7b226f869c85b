"""filter, prioritize and preempt as synchronous functions of the ledger.

Belongs here: decoded requests of kube-scheduler to their results. Never: HTTP, waiting, writing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from accelshare.ledger.facts import PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Card
from accelshare.ledger.preemption import victims
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.vendors.catalog import Catalog
from accelshare.wire.objects import PodToSchedule
from accelshare.wire.pods import PodReader, prefers_some_nodes
from accelshare.wire.scheduler import FilterAnswer, FilterCall, PreemptionCall, Victims

BEST_SCORE: Final = 10  # kube-scheduler's MaxExtenderPriority
FEW: Final = 12  # it is cheaper to report this many refused nodes that kube-scheduler did not name …
MANY: Final = 100  # … than to read this many names
FAILED_BINDS: Final = 2  # of different pods: one pod's bind may fail for a reason of its own


class Filtered(msgspec.Struct, frozen=True):
    """The result, and the counts for its log line."""

    answer: FilterAnswer
    refused: dict[Reason, int] = {}


class Decisions:
    def __init__(self, ledger: Ledger, catalog: Catalog, reader: PodReader, *, shortlist: int) -> None:
        """`shortlist` is how many nodes filter names to a pod without preferences of its own; 0 names all that fit."""
        self._ledger = ledger
        self._catalog = catalog
        self._pods = reader
        self._shortlist = shortlist
        self._failing: dict[str, tuple[set[str], tuple[Card, ...]]] = {}  # node → pods not bound there in a row, its cards then

    def bind_ended(self, node: str, uid: str, *, bound: bool) -> None:
        """Count failed binds of this node. The failed bind of a pod that is gone proves nothing about the node."""
        node_ledger = self._ledger.node(node)
        if bound or node_ledger is None or node_ledger.fact is None:
            self._failing.pop(node, None)
        elif self._ledger.pod(uid) is not None:
            uids, cards = self._failing.get(node, (set(), node_ledger.fact.cards))
            self._failing[node] = (
                ({uid}, node_ledger.fact.cards) if cards != node_ledger.fact.cards else ({*list(uids)[:FAILED_BINDS], uid}, cards)
            )

    def _last(self) -> set[str]:
        """Nodes on which binds of several pods failed in a row, until one succeeds or the node's cards change."""
        last: set[str] = set()
        for node, (uids, cards) in list(self._failing.items()):
            node_ledger = self._ledger.node(node)
            if node_ledger is None or node_ledger.fact is None or node_ledger.fact.cards != cards:
                del self._failing[node]
            elif len(uids) >= FAILED_BINDS:
                last.add(node)
        return last

    def filter(self, call: FilterCall) -> Filtered:
        pod = self._pods.fact(call.pod)
        if pod is None:
            return Filtered(FilterAnswer(call.names))
        if pod.refusal is not None:
            return self._refuse_everywhere(call.names, pod.refusal)
        held = self._possible_node(pod)
        if held and held in call.nodes:
            return Filtered(FilterAnswer([held]))
        ranking = self._ledger.ranking(pod.request)
        most = None if not self._shortlist or prefers_some_nodes(call.pod.spec) else self._shortlist
        if most is not None and ranking.refused_nodes <= FEW and len(call.nodes) >= MANY:
            # Search only for the best node and report every refused one: kube-scheduler ignores those that it had refused
            # before us. Unknown nodes are left out like all others.
            names = ranking.best(call.nodes, most, last=self._last())
            if names:
                return self._filtered(names, ranking.refused)
        among = frozenset(call.names)
        refused: dict[Refusal, Collection[str]] = {why: nodes & among for why, nodes in ranking.refused.items()}
        refused[Refusal(Reason.UNKNOWN_NODE, pod.request[0].kind)] = among.difference(self._ledger.known_nodes)
        return self._filtered(ranking.best(among, most, last=self._last()), refused)

    def _filtered(self, names: list[str], refused: Mapping[Refusal, Collection[str]]) -> Filtered:
        curable: dict[str, str] = {}
        incurable: dict[str, str] = {}
        counts: dict[Reason, int] = {}
        for refusal, nodes in refused.items():
            if nodes:
                (curable if refusal.reason.eviction_could_help else incurable).update(dict.fromkeys(nodes, self.text(refusal)))
                counts[refusal.reason] = counts.get(refusal.reason, 0) + len(nodes)
        return Filtered(FilterAnswer(names, curable, incurable), counts)

    def prioritize(self, call: FilterCall) -> dict[str, int]:
        """10 for the best node, then 9, 8, …; all others score 0. kube-scheduler breaks ties at random, so there are none."""
        pod = self._pods.fact(call.pod)
        if pod is None or pod.refusal is not None:
            return {}
        best = self._ledger.ranking(pod.request).best(frozenset(call.names), BEST_SCORE, last=self._last())
        return {node: BEST_SCORE - place for place, node in enumerate(best)}

    def preempt(self, call: PreemptionCall) -> Iterator[tuple[str, Victims | None]]:
        """The victims of each node, one node at a time because each takes a moment; None: the node is no candidate."""
        pod = self._pods.fact(call.pod)
        for node, proposal in call.proposals.items():
            if pod is None:
                yield node, proposal
            elif pod.refusal is not None:
                yield node, None
            else:
                uids = victims(self._ledger, node, pod.request, priority=pod.priority, proposed=proposal.uids)
                yield node, Victims(uids, proposal.pdb_violations) if uids else None

    def text(self, refusal: Refusal) -> str:
        return self._catalog[refusal.kind].text(refusal.reason)

    def pod(self, pod: PodToSchedule) -> PodSeen | None:
        return self._pods.fact(pod)

    def _possible_node(self, pod: PodSeen) -> str:
        """The node of a bind whose response was lost: the pod may be there already, so no other node is offered."""
        known = self._ledger.pod(pod.uid)
        return known.hold.node if known is not None and known.hold is not None else ""

    def _refuse_everywhere(self, names: Iterable[str], refusal: Refusal) -> Filtered:
        refused = dict.fromkeys(names, self.text(refusal))
        return Filtered(FilterAnswer([], incurable=refused), {refusal.reason: len(refused)})
