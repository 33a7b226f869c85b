"""Any order of facts, any interleaving of binds: never oversold, and a new ledger with all the facts is the same ledger."""

from dataclasses import dataclass, field, replace
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import structs

from accelshare.ledger.facts import Fact, NodeGone, NodeSeen, PodGone, PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Ask, Assignment, Card, LimitNeed, Request, Slice
from accelshare.report.view import NodeRow, rows

NODES = ("n1", "n2")
KINDS = ("gpu", "npu")


@dataclass
class World:
    """The cluster as it really is. Every change is written down as a fact that may reach the ledger late, or twice."""

    version: int = 0
    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    pods: dict[str, PodSeen] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)

    def write(self, fact: NodeSeen | PodSeen | NodeGone | PodGone) -> Fact:
        self.version += 1
        fact = replace(fact, version=self.version)
        match fact:
            case NodeSeen():
                self.nodes[fact.name] = fact
            case PodSeen():
                self.pods[fact.uid] = fact
            case NodeGone():
                self.nodes.pop(fact.name, None)
            case PodGone():
                self.pods.pop(fact.uid, None)
        self.facts.append(fact)
        return fact


asks = st.one_of(
    st.builds(Ask, kind=st.just("gpu"), cards=st.integers(1, 3), share=st.integers(1, 12), limits=st.sampled_from(LimitNeed)),
    st.builds(Ask, kind=st.sampled_from(KINDS), cards=st.integers(1, 2), whole=st.just(True)),
)
requests = st.one_of(asks.map(lambda ask: (ask,)), st.tuples(st.just(Ask("gpu", share=4)), st.just(Ask("npu", whole=True))))

PROBES: tuple[Request, ...] = (
    *((Ask("gpu", share=units, limits=limits),) for units in (1, 4, 8, 16) for limits in (LimitNeed.ANY, LimitNeed.REQUIRED)),
    (Ask("npu", whole=True),),
)


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.ledger = Ledger(cached_requests=4)
        self.post: list[Fact] = []  # written, not delivered
        self.made = 0

    @initialize(
        sizes=st.lists(st.lists(st.sampled_from([4, 8, 16]), min_size=1, max_size=4), min_size=2, max_size=2),
        shuffling=st.randoms(use_true_random=False),
    )
    def some_nodes(self, sizes: list[list[int]], shuffling: Random) -> None:
        self.shuffling = shuffling
        self.sizes = {
            name: (*(Card("gpu", index, size, id=f"{name}-{index}") for index, size in enumerate(given)), Card("npu", 0, 0))
            for name, given in zip(NODES, sizes, strict=True)
        }
        for name in NODES:
            self.ledger.apply(self.world.write(NodeSeen(name, cards=self.sizes[name])))

    def send(self, fact: Fact) -> None:
        self.post.append(fact)

    @rule(request=requests, node=st.sampled_from(NODES), answer=st.sampled_from(["bound", "bound", "bound", "failed", "later"]))
    def a_pod_comes(self, request: Request, node: str, answer: str) -> None:
        self.made += 1
        pod = PodSeen(f"u{self.made}", "default", f"p{self.made % 3}", request)
        self.ledger.apply(self.world.write(pod))
        if answer != "later":
            self._bind(pod.uid, node, answer)

    @precondition(lambda self: self.post)
    @rule(data=st.data(), keep=st.booleans())
    def some_facts_arrive(self, data: st.DataObject, keep: bool) -> None:
        """Any facts, not the oldest first; sometimes they will come again."""
        for _ in range(data.draw(st.integers(1, len(self.post)))):
            place = data.draw(st.integers(0, len(self.post) - 1))
            self._apply(self.post[place])
            if not keep:
                del self.post[place]

    def _apply(self, fact: Fact) -> None:
        """If a pod fits on a node only since this fact, the ledger has named that node."""
        before = self._fitting()
        freed = self.ledger.apply(fact)
        assert {node for node, _ in self._fitting() - before} <= {freed}

    def _fitting(self) -> set[tuple[str, Request]]:
        return {(node, ask) for node in NODES for ask in PROBES if isinstance(self.ledger.offer(node, ask), Assignment)}

    @rule(data=st.data(), node=st.sampled_from(NODES), answer=st.sampled_from(["bound", "failed"]))
    def a_pod_is_tried_again(self, data: st.DataObject, node: str, answer: str) -> None:
        waiting = [uid for uid, pod in self.world.pods.items() if not pod.node and self.ledger.pod(uid) is not None]
        if waiting:
            self._bind(data.draw(st.sampled_from(waiting)), node, answer)

    def _bind(self, uid: str, node: str, answer: str) -> None:
        known = self.ledger.pod(uid)
        assert known is not None
        offer = known.hold or self.ledger.offer(node, known.seen.request)
        if not isinstance(offer, Assignment):
            return
        if known.hold is None:
            self._cards_may_serve(offer, known.seen.request)
        self.ledger.hold(uid, offer)
        if answer == "failed":
            self.ledger.release(uid)
        else:
            self.send(self.world.write(replace(self.world.pods[uid], node=offer.node, slices=offer.slices)))

    def _cards_may_serve(self, offer: Assignment, request: Request) -> None:
        """No pod that requires a limit is ever placed on a card without one, and none below the card's minimum."""
        node = self.ledger.node(offer.node)
        assert node is not None
        assert node.fact is not None
        cards = {(card.kind, card.index): card for card in node.fact.cards}
        required = {ask.kind for ask in request if ask.limits is LimitNeed.REQUIRED}
        for slice_ in offer.slices:
            card = cards[slice_.kind, slice_.index]
            assert card.limited or slice_.kind not in required
            assert slice_.whole or slice_.units >= card.min_units

    @rule(data=st.data(), limits=st.sampled_from(LimitNeed))
    def an_owner_edits_what_the_pod_requires(self, data: st.DataObject, limits: LimitNeed) -> None:
        """On a bound pod this moves nothing and changes no sum."""
        bound = sorted(uid for uid, pod in self.world.pods.items() if pod.node)
        if bound:
            pod = self.world.pods[data.draw(st.sampled_from(bound))]
            request = tuple(ask if ask.whole else replace(ask, limits=limits) for ask in pod.request)
            self.send(self.world.write(replace(pod, request=request)))

    @rule(data=st.data(), node=st.sampled_from(NODES), units=st.integers(1, 12))
    def a_pod_lands_past_us(self, data: st.DataObject, node: str, units: int) -> None:
        """Its card has free capacity; the ledger gets the pod at once, and its card later."""
        if node not in self.world.nodes:
            return
        held: dict[str, int] = {}
        for pod in self.world.pods.values():
            hold = self.ledger.pod(pod.uid)
            for slice_ in pod.slices or (hold.hold.slices if hold and hold.hold else ()):
                size = next((card.size for card in self.sizes[node] if card.id == slice_.id), 0)
                held[slice_.id] = held.get(slice_.id, 0) + (size if slice_.whole else slice_.units)
        # Nor is it placed where a pod was whose end is not yet known: then facts alone would oversell the card.
        known = self.ledger.node(node)
        for node_ledger in known.all_cards() if known is not None else ():
            held[node_ledger.card.id] = max(held.get(node_ledger.card.id, 0), node_ledger.used)
        # Also if the ledger does not know its card yet: the node may report that before the pod's end arrives.
        hidden = known.unplaced.items() if known is not None else ()
        left = sum(ask.units for uid, asks in hidden if uid not in self.world.pods for ask in asks)
        free = [card for card in self.sizes[node] if card.kind == "gpu" and card.size - held.get(card.id, 0) - left >= units]
        if not free:
            return
        self.made += 1
        card = data.draw(st.sampled_from(free))
        pod = PodSeen(f"u{self.made}", "default", f"stranger{self.made}", (Ask("gpu", share=units),), node=node)
        self.ledger.apply(self.world.write(pod))
        # Its node reports which card it has, and then the pod's record has it too.
        slices = (Slice("gpu", card.index, units, id=card.id),)
        now = self.world.nodes[node]
        self.send(self.world.write(replace(now, corrected={**now.corrected, pod.uid: slices})))
        self.send(self.world.write(replace(pod, slices=slices)))

    @rule(data=st.data(), how=st.sampled_from(["ended", "gone"]))
    def a_pod_ends(self, data: st.DataObject, how: str) -> None:
        if not self.world.pods:
            return
        pod = self.world.pods[data.draw(st.sampled_from(sorted(self.world.pods)))]
        if how == "ended":
            self.send(self.world.write(replace(pod, ended=True)))
        self.send(self.world.write(PodGone(pod.uid)))

    @rule(data=st.data(), node=st.sampled_from(NODES))
    def cards_change(self, data: st.DataObject, node: str) -> None:
        """Cards turn unhealthy, vanish and return, get limits and lose them; their sizes stay what they are."""
        kept = [card for card in self.sizes[node] if data.draw(st.integers(0, 4)) > 0]
        cards = tuple(
            replace(
                card, healthy=data.draw(st.integers(0, 4)) > 0, limited=(way := data.draw(st.integers(0, 2))) > 0, min_units=way
            )
            for card in kept
        )
        corrected = self.world.nodes[node].corrected if node in self.world.nodes else {}
        self.send(self.world.write(NodeSeen(node, cards=cards, corrected=corrected)))

    @rule(data=st.data(), index=st.integers(0, 5), id=st.sampled_from(["n1-0", "n2-1", "nowhere"]))
    def a_user_rewrites_a_record(self, data: st.DataObject, index: int, id: str) -> None:
        """The agent of the node undoes it; whatever arrives first, nothing moves."""
        bound = sorted(uid for uid, pod in self.world.pods.items() if pod.slices and pod.node in self.world.nodes)
        if not bound:
            return
        pod = self.world.pods[data.draw(st.sampled_from(bound))]
        self.send(self.world.write(replace(pod, slices=(Slice("gpu", index, 1, id=id),))))
        now = self.world.nodes[pod.node]
        self.send(self.world.write(replace(now, corrected={**now.corrected, pod.uid: pod.slices})))
        self.send(self.world.write(pod))

    @rule(node=st.sampled_from(NODES))
    def a_node_leaves(self, node: str) -> None:
        """Not one that knows better than the records of its pods: a new ledger could not know that any more."""
        if node in self.world.nodes and self.world.nodes[node].corrected:
            return
        self.send(self.world.write(NodeGone(node)))

    @rule(request=requests)
    def somebody_asks(self, request: Request) -> None:
        """Rankings come into memory, where they must stay true."""
        self.ledger.ranking(request)

    @invariant()
    def the_book_is_sound(self) -> None:
        assert self.ledger.check() == []

    def teardown(self) -> None:
        """All facts once more and in any order: the ledger equals the one that a restart builds from a list."""
        facts = [*self.post, *self.world.facts]
        self.shuffling.shuffle(facts)
        for fact in facts:
            self.ledger.apply(fact)
        for uid in list(self.world.pods):
            self.ledger.release(uid)
        fresh = Ledger()
        for node in self.world.nodes.values():
            fresh.apply(node)
        for pod in self.world.pods.values():
            fresh.apply(pod)
        assert self.ledger.check() == []
        assert _shown(self.ledger) == _shown(fresh)


def _shown(ledger: Ledger) -> list[NodeRow]:
    """All visible content of a ledger, without the order in which pods came."""
    return [
        structs.replace(
            row,
            cards=tuple(structs.replace(card, pods=tuple(sorted(card.pods, key=repr))) for card in sorted(row.cards, key=repr)),
            unplaced=tuple(sorted(row.unplaced, key=repr)),
            problems=tuple(sorted(row.problems)),
        )
        for row in rows(ledger)
    ]


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
