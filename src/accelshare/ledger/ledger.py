"""The ledger: facts in, offers out, and a hold in between while the API server is asked.

Belongs here: applying facts, holding and releasing, asking for offers. Never: how cards are chosen (placing.py), sums of one
node (node_book.py), what to say about it (report/).

The cluster is the database and this is its running sum: a restart is a new list of facts, and the same facts in any order
give the same book.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from accelshare.ledger.facts import AgentSeen, Fact, NodeGone, NodeSeen, PodGone, PodSeen
from accelshare.ledger.node_ledger import NodeLedger
from accelshare.ledger.nouns import Ask, Assignment, Request, Slice, spread_as
from accelshare.ledger.placing import DEFAULT, Fit, Policy, fit
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.ledger.shapes import MOST_SHAPES, Ranking, Shapes

ENDED_REMEMBERED: Final = 16_384  # uids of pods that have ended and names of nodes, so that a late fact brings none back


class CannotHoldError(Exception):
    """The book refused a hold and is unchanged; the message says why."""


class Pod:
    """A pod as the book knows it, and what we hold for it until that is seen.

    `seen` is what is believed of it. What a bound pod asks and has stays as it was at its bind, or when it was first seen bound:
    afterwards its owner can edit the pod. Only its node can say that it has other cards.
    """

    __slots__ = ("first", "hold", "latest", "seen")

    def __init__(self, seen: PodSeen) -> None:
        self.seen = seen
        self.latest = seen  # as the API server last told it
        self.first = seen if seen.node else None  # the oldest fact that has a node
        self.hold: Assignment | None = None

    @property
    def place(self) -> tuple[str, tuple[Slice, ...]] | None:
        """The node it counts against, and its cards there; no cards means that nobody has said which."""
        if self.seen.node:
            return self.seen.node, self.seen.slices
        return (self.hold.node, self.hold.slices) if self.hold else None

    @property
    def rewritten(self) -> bool:
        """Does its record name other cards than it has? Their order says nothing: whole cards are chosen first."""
        return bool(self.seen.node) and set(self.latest.slices) != set(self.seen.slices)


class Ledger:
    def __init__(self, policy: Policy = DEFAULT, *, shapes: int = MOST_SHAPES) -> None:
        self.policy = policy
        self._nodes: dict[str, NodeLedger] = {}  # also nodes we only know from pods that are bound to them
        self._known: dict[str, None] = {}  # the nodes that have been seen and are not gone
        self._pods: dict[str, Pod] = {}
        self._agents: dict[str, AgentSeen] = {}
        self._agents_on: dict[str, set[str]] = {}  # node → uids
        self._ended: dict[str, None] = {}
        self._gone_nodes: dict[str, int] = {}
        self._shapes = Shapes(self._answer, most=shapes)
        # What was answered last: filter, bind and hold ask one after the other for the same pod.
        self._asked: tuple[str, Request] | None = None
        self._answered: Fit | Refusal | None = None

    # Facts.

    def apply(self, fact: Fact) -> str:
        """Take a fact in. An old one, or one seen before, changes nothing.

        Returns the node on which there may now be more room than before, or nothing.
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
            pod = self._pods[fact.uid] = Pod(fact)
            pod.seen = self._believed(pod)
            self._book(pod)
            return ""
        before, asked = pod.place, pod.seen.request
        if fact.node and (pod.first is None or fact.version < pod.first.version):
            pod.first = self._bound(pod, fact)
        if self._is_new(fact):
            pod.latest = fact
        # A fact without a node may be older than our own bind, so it never ends a hold; one with a node is the bind's echo.
        if pod.latest.node:
            pod.hold = None
        pod.seen = self._believed(pod)
        if pod.place == before and pod.seen.request == asked:
            return ""
        freed = self._strike(fact.uid, before)
        self._book(pod)
        return freed

    def _is_new(self, fact: PodSeen) -> bool:
        pod = self._pods.get(fact.uid)
        return pod is None or fact.version >= pod.latest.version

    def _bound(self, pod: Pod, fact: PodSeen) -> PodSeen:
        """A pod that is seen bound for the first time. What we bound it with is known better than what stands on it by now."""
        if pod.hold is None or pod.hold.node != fact.node or not pod.hold.slices:
            return fact
        return replace(fact, request=pod.seen.request, slices=pod.hold.slices, version=-1)

    def _believed(self, pod: Pod) -> PodSeen:
        latest = pod.latest
        if pod.first is None or not latest.node:
            return replace(latest, request=pod.seen.request) if pod.hold else latest
        node = self._nodes.get(latest.node)
        said = node.fact.corrected.get(latest.uid) if node is not None and node.fact is not None else None
        request, slices = pod.first.request, pod.first.slices
        if said is not None:
            request, slices = _serving(request, said)
        if (request, slices) == (latest.request, latest.slices):
            return latest
        return replace(latest, request=request, slices=slices)

    def _pod_ended(self, uid: str) -> str:
        pod = self._pods.pop(uid, None)
        self._ended[uid] = None
        if len(self._ended) > ENDED_REMEMBERED:
            del self._ended[next(iter(self._ended))]
        return self._strike(uid, pod.place) if pod is not None else ""

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
        """Whether the node's kubelet rejects pods, because nobody serves its device plugins."""
        node = self._nodes.get(name)
        if node is not None and node.rejecting != rejecting:
            node.rejecting = rejecting
            self._touch(name)

    def _agent_is_away(self, node: str) -> bool:
        """A node whose agent we have never seen, or that has none any more, is not judged by it: its inventory tells."""
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
        node.fact = fact
        moved = self._correct(node, before.corrected if before else {}, fact.corrected)
        if before and before.cards == fact.cards:
            if not moved and before.paused == fact.paused:
                return ""
            self._touch(fact.name)
            return fact.name
        self._lay_out(node, fact)
        self._known[fact.name] = None
        return fact.name

    def _correct(self, node: NodeLedger, before: Mapping[str, tuple[Slice, ...]], now: Mapping[str, tuple[Slice, ...]]) -> bool:
        """The node tells anew which cards some of its pods have."""
        moved = False
        for uid in before.keys() | now.keys() if before != now else ():
            pod = self._pods.get(uid)
            if pod is None or pod.latest.node != node.name:
                continue
            place = pod.place
            pod.seen = self._believed(pod)
            if pod.place != place:
                moved = True
                node.strike(uid)
                self._book(pod)
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
        # Its pods are forgotten when they themselves are gone: the node may come back with them.
        self._lay_out(node, None)
        if not node.pods:
            del self._nodes[fact.name]
        return ""

    def _lay_out(self, node: NodeLedger, fact: NodeSeen | None) -> None:
        uids = list(node.pods)
        node.lay_out(fact)
        for uid in uids:
            pod = self._pods[uid]
            node.book(uid, pod.seen.request, pod.place[1] if pod.place else ())
        self._touch(node.name)

    def _book(self, pod: Pod) -> None:
        if pod.place is None:
            return
        name, slices = pod.place
        node = self._nodes.get(name)
        if node is None:
            node = self._new_node(name)
        node.book(pod.seen.uid, pod.seen.request, slices)
        self._touch(name)

    def _strike(self, uid: str, place: tuple[str, tuple[Slice, ...]] | None) -> str:
        if place is None:
            return ""
        node = self._nodes[place[0]]
        node.strike(uid)
        if node.fact is None and not node.pods:
            del self._nodes[node.name]
        self._touch(node.name)
        return node.name

    # Offers and holds.

    def offer(self, node: str, request: Request) -> Assignment | Refusal:
        """The cards this node would give to the request now, or why it gives none."""
        answer = self._answer(node, request)
        if answer is None:
            return Refusal(Reason.UNKNOWN_NODE, request[0].kind if request else "")
        return answer.assignment if isinstance(answer, Fit) else answer

    def ranking(self, request: Request) -> Ranking:
        """What every node says to this request. It is the ledger's own memory: read it, do not keep it."""
        return self._shapes.ranking(request, self._known)

    def hold(self, uid: str, assignment: Assignment) -> None:
        """Count the assignment as given from now on, before the API server has heard of it.

        The same hold twice changes nothing. A hold that does not fit is refused, and then nothing has changed.
        """
        pod = self._pods.get(uid)
        if pod is None:
            raise CannotHoldError(f"pod {uid} is not known, or has ended")
        if pod.hold == assignment:
            return
        if pod.place is not None:
            raise CannotHoldError(f"pod {pod.seen.namespace}/{pod.seen.name} already holds cards on node {pod.place[0]}")
        if self.offer(assignment.node, pod.seen.request) != assignment:
            raise CannotHoldError(f"node {assignment.node} no longer gives these cards to {pod.seen.namespace}/{pod.seen.name}")
        pod.hold = assignment
        self._book(pod)

    def release(self, uid: str) -> str:
        """Give a hold back, because the bind has definitely not happened. A pod that was seen bound keeps its cards.

        Returns the node on which there is more room now, or nothing.
        """
        pod = self._pods.get(uid)
        if pod is None or pod.hold is None or pod.seen.node:
            return ""
        place, pod.hold = pod.place, None
        pod.seen = pod.latest
        return self._strike(uid, place)

    def _answer(self, node: str, request: Request) -> Fit | Refusal | None:
        if self._asked == (node, request):
            return self._answered
        book = self._nodes.get(node)
        if book is None or book.fact is None:
            return None
        self._asked, self._answered = (node, request), fit(book, request, self.policy)
        return self._answered

    def _touch(self, node: str) -> None:
        """This node answers differently from now on."""
        self._shapes.touch(node)
        if self._asked is not None and self._asked[0] == node:
            self._asked = None

    # Reading.

    def pod(self, uid: str) -> Pod | None:
        return self._pods.get(uid)

    def pods(self) -> Iterator[Pod]:
        return iter(self._pods.values())

    def node(self, name: str) -> NodeLedger | None:
        return self._nodes.get(name)

    def nodes(self) -> Iterator[NodeLedger]:
        """Every node, those included that are gone but still have pods bound to them; by name."""
        return (self._nodes[name] for name in sorted(self._nodes))

    def ready_agents(self, node: str) -> int:
        """How many agents that could hand out this node's cards are ready; one is what a healthy node has."""
        return sum(self._agents[uid].ready for uid in self._agents_on.get(node, ()))

    @property
    def known_nodes(self) -> Mapping[str, None]:
        """The names of the nodes that have been seen and are not gone. A dict, because a set is subtracted from one fastest."""
        return self._known

    def facts(self) -> Iterable[Fact]:
        """What a new ledger would have to hear to become this one, but for the holds."""
        yield from (node.fact for node in self.nodes() if node.fact)
        yield from (pod.seen for pod in self._pods.values())

    # Audit.

    def check(self) -> list[str]:
        """Every broken promise of this book, in words. An empty list is a sound book."""
        from accelshare.ledger.audit import audit

        return audit(self, self._shapes.rankings(self._known))


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
