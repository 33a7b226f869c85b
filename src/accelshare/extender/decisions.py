"""filter, prioritize and preempt as synchronous functions of the ledger.

Belongs here: decoded requests of kube-scheduler to their results. Never: HTTP, waiting, writing;
holding cards, except for members of gangs (gangs.py).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from accelshare.extender.failed_binds import FailedBinds
from accelshare.extender.gangs import GangHolds
from accelshare.extender.promises.plan import Plan
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.ledger import CannotHoldError, Ledger
from accelshare.ledger.nouns import Assignment
from accelshare.ledger.preemption import victims
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.vendors.catalog import Catalog
from accelshare.wire.groups import Group, group_of
from accelshare.wire.objects import PodToSchedule
from accelshare.wire.pods import PodReader, prefers_some_nodes
from accelshare.wire.scheduler import FilterAnswer, FilterCall, PreemptionCall, Victims

BEST_SCORE: Final = 10  # kube-scheduler's MaxExtenderPriority
MANY: Final = 100  # node names, which take longer to read than the best nodes to find


class FilterResult(msgspec.Struct, frozen=True):
    """The result, and the counts for its log line and the metrics; None: the refused nodes were not counted."""

    answer: FilterAnswer
    refused: dict[Reason, int] | None = {}


class Decisions:
    def __init__(
        self,
        ledger: Ledger,
        catalog: Catalog,
        reader: PodReader,
        *,
        shortlist: int,
        failed_binds: FailedBinds | None = None,
        plan: Plan | None = None,
        gangs: GangHolds | None = None,
    ) -> None:
        """`shortlist` is how many nodes filter names to a pod without preferences of its own; 0 names all that fit.

        `plan`: promises to pods that kube-scheduler has not asked for yet. `gangs`: where members of gangs have their cards held.
        """
        self._ledger = ledger
        self._catalog = catalog
        self._pods = reader
        self._shortlist = shortlist
        self._failed_binds = failed_binds or FailedBinds(ledger)
        self._plan = plan
        self._gangs = gangs

    def bind_ended(self, node: str, uid: str, *, bound: bool) -> None:
        self._failed_binds.bind_ended(node, uid, bound=bound)

    def filter(self, call: FilterCall) -> FilterResult:
        pod = self.pod(call.pod)
        if pod is None:
            return FilterResult(FilterAnswer(call.names))
        group = self._asked_group(call.pod)
        if pod.refusal is not None:
            if group and self._gangs is not None:
                self._gangs.refused(group)
            return self._refuse_everywhere(call.names, pod.refusal)
        held = self._possible_node(pod)
        if held and held in call.nodes:
            if group and self._gangs is not None:
                self._gangs.renew(pod.uid)
            return FilterResult(FilterAnswer([held]), refused=None)
        if group and self._gangs is not None:
            return self._filter_member(self._gangs, group, pod, call)
        if self._gangs is not None:
            self._gangs.release(pod.uid)  # it may have been a member before: labels can be changed
        most = None if not self._shortlist or prefers_some_nodes(call.pod.spec) else self._shortlist
        if self._plan is not None and (names := self._as_planned(self._plan, pod, call, most)):
            return FilterResult(FilterAnswer(names), refused=None)
        ranking = self._ledger.ranking(pod.request)
        if most is not None and len(call.nodes) >= MANY:
            # Search only for the best nodes. kube-scheduler uses reasons only if no node is left after its last extender.
            names = ranking.best(call.nodes, most, last=self._failed_binds.nodes())
            if names:
                return FilterResult(FilterAnswer(names), refused=None)
        among = frozenset(call.names)
        refused: dict[Refusal, Collection[str]] = {why: nodes & among for why, nodes in ranking.refused.items()}
        refused[Refusal(Reason.UNKNOWN_NODE, pod.request[0].kind)] = among.difference(self._ledger.known_nodes)
        return self._filtered(ranking.best(among, most, last=self._failed_binds.nodes()), refused)

    def _asked_group(self, pod: PodToSchedule) -> Group | None:
        if self._gangs is None:
            return None
        group = group_of(pod.metadata, pod.spec.scheduling_group, pod.spec.workload_ref)
        self._gangs.asked(group)
        return group

    def _filter_member(self, gangs: GangHolds, group: Group, pod: PodSeen, call: FilterCall) -> FilterResult:
        """One node, whose cards are held until the bind: the other members are asked for before, and must get other cards."""
        gangs.release(pod.uid)  # it was not on a node that is named now, or has lost its cards
        among = frozenset(call.names)
        ranking = self._ledger.ranking(pod.request)
        for node in ranking.best(among, 1, last=self._failed_binds.nodes()):
            if self._ledger.pod(pod.uid) is None:
                self._ledger.apply(pod)  # the watch has not shown it yet
            offer = self._ledger.offer(node, pod.request)
            known = self._ledger.pod(pod.uid)
            if isinstance(offer, Assignment) and known is not None and known.place is None:
                with suppress(CannotHoldError):  # it was edited, and the ledger has seen that; its bind is refused
                    gangs.hold(pod.uid, group, offer)
            return FilterResult(FilterAnswer([node]), refused=None)
        gangs.refused(group)
        refused: dict[Refusal, Collection[str]] = {why: nodes & among for why, nodes in ranking.refused.items()}
        refused[Refusal(Reason.UNKNOWN_NODE, pod.request[0].kind)] = among.difference(self._ledger.known_nodes)
        return self._filtered([], refused)

    def _as_planned(self, plan: Plan, pod: PodSeen, call: FilterCall, most: int | None) -> list[str]:
        """The node that the pod was promised, if it can still serve it; else nodes that keep the promises to others.

        No names: promises do not matter here. They never keep a pod from a node that has free cards.
        """
        promised = plan.asked(pod.uid, call.nodes)
        failing = self._failed_binds.nodes()
        if promised and promised not in failing and isinstance(self._ledger.offer(promised, pod.request), Assignment):
            return [promised]
        names = plan.best(pod.request, call.nodes, most, last=failing) if most is not None else []
        if len(names) == 1:
            plan.answered(pod.uid, pod.request, names[0])
        return names

    def _filtered(self, names: list[str], refused: Mapping[Refusal, Collection[str]]) -> FilterResult:
        curable: dict[str, str] = {}
        incurable: dict[str, str] = {}
        counts: dict[Reason, int] = {}
        for refusal, nodes in refused.items():
            if nodes:
                (curable if refusal.reason.eviction_could_help else incurable).update(dict.fromkeys(nodes, self.text(refusal)))
                counts[refusal.reason] = counts.get(refusal.reason, 0) + len(nodes)
        return FilterResult(FilterAnswer(names, curable, incurable), counts)

    def prioritize(self, call: FilterCall) -> dict[str, int]:
        """10 for the best node, then 9, 8, …; all others score 0. kube-scheduler breaks ties at random, so there are none."""
        pod = self.pod(call.pod)
        if pod is None or pod.refusal is not None:
            return {}
        best = self._ledger.ranking(pod.request).best(frozenset(call.names), BEST_SCORE, last=self._failed_binds.nodes())
        return {node: BEST_SCORE - place for place, node in enumerate(best)}

    def preempt(self, call: PreemptionCall) -> Iterator[tuple[str, Victims | None]]:
        """The victims of each node, one node at a time because each takes a moment; None: the node is no candidate."""
        pod = self.pod(call.pod)
        for node, proposal in call.proposals.items():
            if pod is None:
                yield node, proposal
            elif pod.refusal is not None:
                yield node, None
            else:
                uids = victims(self._ledger, node, pod.request, priority=pod.priority, proposed=proposal.uids)
                yield node, Victims(uids, proposal.pdb_violations) if uids else None

    def preempts(self, pod: PodToSchedule) -> None:
        """kube-scheduler has victims for this pod."""
        if self._plan is not None:
            self._plan.preempts(pod.metadata.uid)

    def text(self, refusal: Refusal) -> str:
        return self._catalog[refusal.kind].text(refusal.reason)

    def pod(self, pod: PodToSchedule) -> PodSeen | None:
        """What the pod requests. The watch has read most pods in the version that kube-scheduler sends."""
        known = self._ledger.pod(pod.metadata.uid)
        if known is not None and str(known.latest.version) == pod.metadata.resource_version:
            return known.latest
        return self._pods.fact(pod)

    def _possible_node(self, pod: PodSeen) -> str:
        """The node of a bind whose response was lost: the pod may be there already, so no other node is offered."""
        known = self._ledger.pod(pod.uid)
        return known.hold.node if known is not None and known.hold is not None else ""

    def _refuse_everywhere(self, names: Iterable[str], refusal: Refusal) -> FilterResult:
        refused = dict.fromkeys(names, self.text(refusal))
        return FilterResult(FilterAnswer([], incurable=refused), {refusal.reason: len(refused)})
