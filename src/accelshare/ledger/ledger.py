"""The ledger of the cluster: facts in, offers out, and a hold while a Binding is sent to the API server.

Belongs here: applying facts, holding and releasing, making offers. Never: how cards are chosen (placing.py), sums of one
node (node_ledger.py), how it is shown (report/).

The cluster is the database and this is its running sum: a restart is a new list of facts, and the same facts in any order
give the same ledger.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from accelshare.ledger.facts import AgentSeen, Fact, NodeGone, NodeSeen, PodGone, PodSeen, shared, sharing
from accelshare.ledger.node_ledger import NodeLedger
from accelshare.ledger.nouns import Ask, Assignment, Request, Resize, Slice, spread_as
from accelshare.ledger.placing import DEFAULT, Fit, Policy, fit, fit_on
from accelshare.ledger.rankings import MOST_REQUESTS, Ranking, RankingCache
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.ledger.resizing import ResizeReason, ResizeRefusal, counted_units, is_one_slice, resize_refusal, resized

ENDED_REMEMBERED: Final = 16_384  # uids of ended pods and names of deleted nodes, so that a late fact does not bring them back


class CannotHoldError(Exception):
    """A hold was refused and nothing has changed; the message gives the reason."""


class LedgerPod:
    """A pod in the ledger, and its hold until the Binding is confirmed by the watch.

    `seen` is the fact in force. The request and cards of a bound pod stay as at its bind, or as when it was first seen bound:
    afterwards its owner can edit the pod. Only its node can report that it has other cards.
    """

    __slots__ = ("bound_request", "bound_slices", "bound_version", "hold", "latest", "resize_hold", "seen")

    def __init__(self, seen: PodSeen) -> None:
        self.seen = seen
        self.latest = seen  # the last fact from the API server
        # Of the oldest fact that has a node, only what counts: all of it would be some 400 bytes more for each pod.
        self.bound_version = seen.version if seen.node else None
        self.bound_request = seen.request
        self.bound_slices = seen.slices
        self.hold: Assignment | None = None
        self.resize_hold: tuple[Resize, int] | None = None  # a grant that is being written, and the version that it is written on

    @property
    def place(self) -> tuple[str, tuple[Slice, ...]] | None:
        """The node it counts against, and its cards there; no cards: they are not known."""
        if self.seen.node:
            return self.seen.node, self.seen.slices
        return (self.hold.node, self.hold.slices) if self.hold else None

    @property
    def requested(self) -> Request:
        """What it requests, whatever it was resized to since its bind."""
        return self.seen.request if self.bound_version is None else self.bound_request

    @property
    def rewritten(self) -> bool:
        """Does its record name other cards than it has? The order does not matter: whole cards are chosen first."""
        return bool(self.seen.node) and cards_of(self.latest.slices) != cards_of(self.seen.slices)


def cards_of(slices: Iterable[Slice]) -> frozenset[tuple[str, int, str, bool]]:
    """Which cards these are, whatever the amounts: a resize changes those."""
    return frozenset((slice_.kind, slice_.index, slice_.id, slice_.whole) for slice_ in slices)


class Ledger:
    def __init__(self, policy: Policy = DEFAULT, *, cached_requests: int = MOST_REQUESTS) -> None:
        self.policy = policy
        self._nodes: dict[str, NodeLedger] = {}  # also nodes known only from pods bound to them
        self._known: dict[str, None] = {}  # the nodes that have been seen and are not gone
        self._pods: dict[str, LedgerPod] = {}
        self._agents: dict[str, AgentSeen] = {}
        self._agents_on: dict[str, set[str]] = {}  # node → uids
        self._ended: dict[str, None] = {}
        self._gone_nodes: dict[str, int] = {}
        self._rankings = RankingCache(self._answer, most=cached_requests)
        # The last answer: filter, bind and hold need it one after the other for the same pod.
        self._last_question: tuple[str, Request] | None = None
        self._last_answer: Fit | Refusal | None = None

    # Facts.

    def apply(self, fact: Fact) -> str:
        """Apply a fact. An old one, or one seen before, changes nothing.

        Returns the node that may now have more free capacity than before, or nothing.
        """
        match fact:
            case PodSeen():
                return self._pod_seen(fact)
            case AgentSeen():
                return self._agent_seen(fact)
            case PodGone():
                return self._pod_ended(fact.uid) or self._agent_gone(fact.uid)
            case NodeSeen():
                return self._node_seen(fact)
            case NodeGone():
                return self._node_gone(fact)

    def _pod_seen(self, fact: PodSeen) -> str:
        if fact.uid in self._ended:
            return ""
        if fact.ended:
            return self._pod_ended(fact.uid) if self._is_new(fact) else ""
        pod = self._pods.get(fact.uid)
        if pod is None:
            pod = self._pods[fact.uid] = LedgerPod(fact)
            pod.seen = self._effective(pod)
            self._add_pod(pod)
            return ""
        fact = sharing(pod.latest, fact)
        before, asked = pod.place, pod.seen.request
        if fact.node and (pod.bound_version is None or fact.version < pod.bound_version):
            self._bound(pod, fact)
        if self._is_new(fact):
            pod.latest = fact
        # A fact without a node may be older than our own bind, so it never ends a hold; one with a node confirms the bind.
        if pod.latest.node:
            pod.hold = None
        # The write names the version that it is made on: a newer one has the grant, or it can never get this one.
        if pod.resize_hold is not None and pod.latest.version > pod.resize_hold[1]:
            pod.resize_hold = None
        pod.seen = self._effective(pod)
        if pod.place == before and pod.seen.request == asked:
            return ""
        freed = self._remove_pod(fact.uid, before)
        self._add_pod(pod)
        return freed

    def _is_new(self, fact: PodSeen) -> bool:
        pod = self._pods.get(fact.uid)
        return pod is None or fact.version >= pod.latest.version

    def _bound(self, pod: LedgerPod, fact: PodSeen) -> None:
        """A pod that is seen bound for the first time. Its hold is more reliable than its record, which can be edited."""
        if pod.hold is None or pod.hold.node != fact.node or not pod.hold.slices:
            pod.bound_version, pod.bound_request, pod.bound_slices = fact.version, fact.request, fact.slices
            return
        pod.bound_version, pod.bound_request = -1, pod.seen.request
        pod.bound_slices = shared(fact.slices, pod.hold.slices)

    def _effective(self, pod: LedgerPod) -> PodSeen:
        latest = pod.latest
        if pod.bound_version is None or not latest.node:
            return replace(latest, request=pod.seen.request) if pod.hold else latest
        node = self._nodes.get(latest.node)
        correction = node.fact.corrected.get(latest.uid) if node is not None and node.fact is not None else None
        request, slices = pod.bound_request, pod.bound_slices
        if correction is not None:
            request, slices = _serving(request, correction)
        request, slices = self._resized(pod, node, request, slices)
        if (request, slices) == (latest.request, latest.slices):
            return latest
        return replace(latest, request=request, slices=slices)

    def _resized(
        self, pod: LedgerPod, node: NodeLedger | None, request: Request, slices: tuple[Slice, ...]
    ) -> tuple[Request, tuple[Slice, ...]]:
        applied = node.fact.applied if node is not None and node.fact is not None else None
        if applied is None or not is_one_slice(request):
            return request, slices
        held = pod.resize_hold[0] if pod.resize_hold is not None else None
        latest = pod.latest
        units = counted_units(request[0].share, granted=latest.granted, applied=applied.get(latest.uid), held=held)
        return resized(request, slices, units)

    def _pod_ended(self, uid: str) -> str:
        pod = self._pods.pop(uid, None)
        self._ended[uid] = None
        if len(self._ended) > ENDED_REMEMBERED:
            del self._ended[next(iter(self._ended))]
        return self._remove_pod(uid, pod.place) if pod is not None else ""

    def _agent_seen(self, fact: AgentSeen) -> str:
        before = self._agents.get(fact.uid)
        if fact.uid in self._ended or (before is not None and fact.version < before.version):
            return ""
        self._agents[fact.uid] = fact
        self._agents_on.setdefault(fact.node, set()).add(fact.uid)
        return self._agents_changed(fact.node)

    def _agent_gone(self, uid: str) -> str:
        agent = self._agents.pop(uid, None)
        if agent is None:
            return ""
        self._agents_on[agent.node].discard(uid)
        if not self._agents_on[agent.node]:
            del self._agents_on[agent.node]
        return self._agents_changed(agent.node)

    def _agents_changed(self, name: str) -> str:
        node = self._nodes.get(name)
        if node is None or node.away == self._agent_is_away(name):
            return ""
        node.away = not node.away
        self._touch(name)
        return name

    def set_rejecting(self, name: str, rejecting: bool) -> None:
        """Set whether the node's kubelet rejects pods because no device plugin serves them."""
        node = self._nodes.get(name)
        if node is not None and node.rejecting != rejecting:
            node.rejecting = rejecting
            self._touch(name)

    def _agent_is_away(self, node: str) -> bool:
        """A node without an agent in sight is not judged by it: its inventory decides."""
        return node in self._agents_on and not self.ready_agents(node)

    def _new_node(self, name: str) -> NodeLedger:
        node = self._nodes[name] = NodeLedger(name)
        node.away = self._agent_is_away(name)
        return node

    def _node_seen(self, fact: NodeSeen) -> str:
        node = self._nodes.get(fact.name)
        latest = node.fact.version if node and node.fact else self._gone_nodes.get(fact.name, -1)
        if fact.version < latest:
            return ""
        self._gone_nodes.pop(fact.name, None)
        if node is None:
            node = self._new_node(fact.name)
        before = node.fact
        if before and before.cards == fact.cards:
            fact = replace(fact, cards=before.cards)  # the sums have these cards in memory already
        node.fact = fact
        moved = self._correct(node, _reported_pods(before, fact))
        if before and before.cards == fact.cards and (before.applied is None) == (fact.applied is None):
            if not moved and before.paused == fact.paused:
                return ""
            self._touch(fact.name)
            return fact.name
        self._reset(node, fact)
        self._known[fact.name] = None
        return fact.name

    def _correct(self, node: NodeLedger, uids: Iterable[str]) -> bool:
        """The node reports new cards or amounts of some of its pods."""
        moved = False
        for uid in uids:
            pod = self._pods.get(uid)
            if pod is None or pod.latest.node != node.name:
                continue
            place = pod.place
            pod.seen = self._effective(pod)
            if pod.place != place:
                moved = True
                node.remove_pod(uid)
                self._add_pod(pod)
        return moved

    def _node_gone(self, fact: NodeGone) -> str:
        node = self._nodes.get(fact.name)
        if node and node.fact and fact.version < node.fact.version:
            return ""
        self._gone_nodes[fact.name] = max(fact.version, self._gone_nodes.pop(fact.name, -1))
        if len(self._gone_nodes) > ENDED_REMEMBERED:
            del self._gone_nodes[next(iter(self._gone_nodes))]
        self._known.pop(fact.name, None)
        if node is None:
            return ""
        # Its pods stay until they are gone themselves: the node may come back with them.
        self._reset(node, None)
        if not node.pods:
            del self._nodes[fact.name]
        return ""

    def _reset(self, node: NodeLedger, fact: NodeSeen | None) -> None:
        uids, before = list(node.pods), node.fact.applied if node.fact is not None else None
        node.reset(fact)
        pods = [self._pods[uid] for uid in uids]
        for pod in pods:
            if pod.latest.granted is not None or pod.resize_hold is not None or pod.seen.uid in (before or ()):
                pod.seen = self._effective(pod)  # whether amounts change depends on the node
        node.add_pods((pod.seen.uid, pod.seen.request, pod.place[1] if pod.place else ()) for pod in pods)
        self._touch(node.name)

    def _add_pod(self, pod: LedgerPod) -> None:
        place = pod.place
        if place is None:
            return
        name, slices = place
        node = self._nodes.get(name)
        if node is None:
            node = self._new_node(name)
        node.add_pod(pod.seen.uid, pod.seen.request, slices)
        self._touch(name)

    def _remove_pod(self, uid: str, place: tuple[str, tuple[Slice, ...]] | None) -> str:
        if place is None:
            return ""
        node = self._nodes[place[0]]
        node.remove_pod(uid)
        if node.fact is None and not node.pods:
            del self._nodes[node.name]
        self._touch(node.name)
        return node.name

    # Offers and holds.

    def offer(self, node: str, request: Request) -> Assignment | Refusal:
        """The cards this node would allocate to the request now, or the reason why none."""
        answer = self._answer(node, request)
        if answer is None:
            return Refusal(Reason.UNKNOWN_NODE, request[0].kind if request else "")
        return answer.assignment if isinstance(answer, Fit) else answer

    def offers_cards(self, assignment: Assignment, request: Request) -> bool:
        """Whether the node can allocate exactly these cards to the request now, also if it would offer others first."""
        if self.offer(assignment.node, request) == assignment:
            return True
        node = self._nodes.get(assignment.node)
        if node is None or node.fact is None or not assignment.slices:
            return False
        return fit_on(node, request, self.policy, assignment.slices) is not None

    def still_available(self, held: Assignment) -> bool:
        """Are these cards healthy and delivered now? Cards and agents may go away while they are held."""
        node = self._nodes.get(held.node)
        if node is None or node.fact is None:
            return False
        healthy = {(card.kind, card.index, card.id) for card in node.fact.cards if card.healthy}
        return all((s.kind, s.index, s.id) in healthy and not node.paused(s.kind) for s in held.slices)

    def ranking(self, request: Request) -> Ranking:
        """Every node's answer to this request. It is the ledger's own cache: read it, do not keep it."""
        return self._rankings.ranking(request, self._known)

    def hold(self, uid: str, assignment: Assignment) -> None:
        """Count the assignment as allocated from now on, before the Binding is sent.

        Safe to repeat. A hold that does not fit is refused, and nothing changes.
        """
        pod = self._pods.get(uid)
        if pod is None:
            raise CannotHoldError(f"pod {uid} is not known, or has ended")
        if pod.hold == assignment:
            return
        if pod.place is not None:
            raise CannotHoldError(f"pod {pod.seen.namespace}/{pod.seen.name} already holds cards on node {pod.place[0]}")
        if not self.offers_cards(assignment, pod.seen.request):
            raise CannotHoldError(f"node {assignment.node} no longer offers these cards to {pod.seen.namespace}/{pod.seen.name}")
        pod.hold = assignment
        self._add_pod(pod)

    def release(self, uid: str) -> str:
        """Release a hold after a bind that has certainly failed. A pod that was seen bound keeps its cards.

        Returns the node that has more free capacity now, or nothing.
        """
        pod = self._pods.get(uid)
        if pod is None or pod.hold is None or pod.seen.node:
            return ""
        place, pod.hold = pod.place, None
        pod.seen = pod.latest
        return self._remove_pod(uid, place)

    def resize_refusal(self, uid: str, units: int) -> ResizeRefusal | None:
        """Why the slice of a bound pod cannot have this amount now, or None if it can."""
        pod = self._pods.get(uid)
        node = self._nodes.get(pod.seen.node) if pod is not None else None
        if pod is None or node is None or node.fact is None:
            return ResizeRefusal(ResizeReason.CARD_UNKNOWN)
        return resize_refusal(node, uid, pod.seen.request, pod.seen.slices, units)

    def hold_resize(self, uid: str, to: Resize) -> None:
        """Count this amount from now on if it is more than before, before the grant is written on the pod as it was last seen.

        The next version of the pod ends the hold. A hold that does not fit is refused, and nothing changes.
        """
        pod = self._pods.get(uid)
        if pod is None or not pod.seen.node:
            raise CannotHoldError(f"pod {uid} is not bound, or has ended")
        if pod.resize_hold is not None:
            raise CannotHoldError(f"pod {pod.seen.namespace}/{pod.seen.name} is being resized already")
        refusal = self.resize_refusal(uid, to.units)
        if refusal is not None:
            name = f"{pod.seen.namespace}/{pod.seen.name}"
            raise CannotHoldError(f"pod {name} cannot have {to.units} units: {refusal.reason.value}")
        pod.resize_hold = (to, pod.latest.version)
        self._recount(pod)

    def release_resize(self, uid: str) -> str:
        """Release the hold of a grant that was certainly not written.

        Returns the node that has more free capacity now, or nothing.
        """
        pod = self._pods.get(uid)
        if pod is None or pod.resize_hold is None:
            return ""
        pod.resize_hold = None
        return self._recount(pod)

    def _recount(self, pod: LedgerPod) -> str:
        before = pod.place
        pod.seen = self._effective(pod)
        if pod.place == before:
            return ""
        freed = self._remove_pod(pod.seen.uid, before)
        self._add_pod(pod)
        return freed

    def _answer(self, node: str, request: Request) -> Fit | Refusal | None:
        if self._last_question == (node, request):
            return self._last_answer
        node_ledger = self._nodes.get(node)
        if node_ledger is None or node_ledger.fact is None:
            return None
        self._last_question, self._last_answer = (node, request), fit(node_ledger, request, self.policy)
        return self._last_answer

    def _touch(self, node: str) -> None:
        """This node's answers may have changed."""
        self._rankings.touch(node)
        if self._last_question is not None and self._last_question[0] == node:
            self._last_question = None

    # Reading.

    def changes_since(self, position: int) -> tuple[set[str] | None, int]:
        """The nodes whose answers may have changed since this position (0: the start), and the position now.

        None: too many to be remembered.
        """
        return self._rankings.changes_since(position)

    def pod(self, uid: str) -> LedgerPod | None:
        return self._pods.get(uid)

    def knows(self, uid: str) -> bool:
        """Whether there is a fact about this pod, or about this agent."""
        return uid in self._pods or uid in self._agents

    def pods(self) -> Iterator[LedgerPod]:
        return iter(self._pods.values())

    def node(self, name: str) -> NodeLedger | None:
        return self._nodes.get(name)

    def nodes(self) -> Iterator[NodeLedger]:
        """Every node, those included that are gone but still have pods bound to them; by name."""
        return (self._nodes[name] for name in sorted(self._nodes))

    def ready_agents(self, node: str) -> int:
        """How many ready agents this node has; a healthy node has one."""
        return sum(self._agents[uid].ready for uid in self._agents_on.get(node, ()))

    @property
    def known_nodes(self) -> Mapping[str, None]:
        """The names of the nodes that have been seen and are not gone. A dict, because a set is subtracted from one fastest."""
        return self._known

    def facts(self) -> Iterable[Fact]:
        """The facts that make a new ledger equal to this one, without its holds."""
        yield from (node.fact for node in self.nodes() if node.fact)
        yield from (pod.seen for pod in self._pods.values())

    # Audit.

    def check(self) -> list[str]:
        """Every violated invariant of this ledger, as text; empty if there is none."""
        from accelshare.ledger.audit import audit

        return audit(self, self._rankings.rankings(self._known))


def _reported_pods(before: NodeSeen | None, now: NodeSeen) -> set[str]:
    """The pods whose cards or amounts the node reports in another way than before."""
    uids: set[str] = set()
    corrected = before.corrected if before is not None else {}
    if corrected != now.corrected:
        uids |= corrected.keys() | now.corrected.keys()
    applied = (before.applied if before is not None else None) or {}
    if applied != (now.applied or {}):
        uids |= applied.keys() | (now.applied or {}).keys()
    return uids


def _serving(request: Request, named: Iterable[Slice]) -> tuple[Request, tuple[Slice, ...]]:
    """The request as these cards serve it, and the cards as slices of it; an ask that they do not serve has none."""
    asks: list[Ask] = []
    slices: list[Slice] = []
    for ask in request:
        cards = [slice_ for slice_ in named if (slice_.kind, slice_.whole) == (ask.kind, ask.whole)]
        served = spread_as(ask, cards)
        asks.append(served or ask)
        slices.extend(replace(slice_, units=served.share) for slice_ in cards if served)
    return tuple(asks), tuple(slices)
