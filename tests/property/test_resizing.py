"""Slices grow and shrink while facts are late, grants get lost, agents die and extenders restart: no card is ever oversold."""

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from accelshare.ledger.facts import Fact, NodeSeen, PodGone, PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Ask, Assignment, Card, Resize

SIZE = 16


@dataclass(frozen=True)
class Grant:
    """A request of an extender that the API server carries out now, later or never."""

    uid: str
    resize: Resize
    version: int


class Resizing(RuleBasedStateMachine):
    """One node with two cards. `limits` is what the kernel enforces; the rest is what somebody knows."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self.made = 0
        self.node = NodeSeen("n1")
        self.pods: dict[str, PodSeen] = {}  # as the API server has them
        self.limits: dict[str, int] = {}
        self.agent_sees: dict[str, PodSeen] = {}  # perhaps not the newest
        self.in_force: dict[str, Resize] = {}  # in the agent's memory
        self.in_flight: list[Grant] = []
        self.post: list[Fact] = []  # written, and not seen by the extender yet
        self.ledger = Ledger()

    @initialize()
    def a_node(self) -> None:
        cards = tuple(Card("gpu", index, SIZE, id=f"c{index}", limited=True, way="dmem") for index in range(2))
        self._write_node(NodeSeen("n1", cards=cards, applied={}))
        self._deliver_all()

    def _write(self, pod: PodSeen) -> None:
        self.version += 1
        self.pods[pod.uid] = replace(pod, version=self.version)
        self.post.append(self.pods[pod.uid])

    def _write_node(self, node: NodeSeen) -> None:
        self.version += 1
        self.node = replace(node, version=self.version)
        self.post.append(self.node)

    def _facts(self) -> list[Fact]:
        return [self.node, *self.pods.values()]

    def _deliver_all(self) -> None:
        for fact in self.post:
            self.ledger.apply(fact)
        self.post.clear()

    @rule(share=st.integers(1, SIZE))
    def a_pod_is_bound(self, share: int) -> None:
        self.made += 1
        uid, request = f"u{self.made}", (Ask("gpu", share=share),)
        self._write(PodSeen(uid, "default", uid, request))
        self.ledger.apply(self.pods[uid])
        offer = self.ledger.offer("n1", request)
        if isinstance(offer, Assignment):
            self.ledger.hold(uid, offer)
            self._write(replace(self.pods[uid], node="n1", slices=offer.slices))
            self.limits[uid] = share

    @rule(data=st.data())
    def a_pod_ends(self, data: st.DataObject) -> None:
        if self.pods:
            uid = data.draw(st.sampled_from(sorted(self.pods)))
            self.version += 1
            del self.pods[uid]
            self.limits.pop(uid, None)
            self.agent_sees.pop(uid, None)
            self.in_force.pop(uid, None)
            self.post.append(PodGone(uid, self.version))

    @rule(data=st.data())
    def kubelet_writes_a_status(self, data: st.DataObject) -> None:
        if self.pods:
            self._write(self.pods[data.draw(st.sampled_from(sorted(self.pods)))])

    @rule(data=st.data(), units=st.integers(1, SIZE), outcome=st.sampled_from(["done", "late", "late", "refused"]))
    def the_extender_resizes(self, data: st.DataObject, units: int, outcome: str) -> None:
        """One resize of a pod at a time: it waits until the node has reported the last one."""
        ready = [pod for pod in self.ledger.pods() if pod.seen.node and pod.resize_hold is None and self._is_reported(pod.seen)]
        if not ready:
            return
        pod = data.draw(st.sampled_from(sorted(ready, key=lambda each: each.seen.uid)))
        uid = pod.seen.uid
        if self.ledger.resize_refusal(uid, units) is not None:
            return
        resize = Resize(units, (pod.seen.granted.number if pod.seen.granted else 0) + 1)
        self.ledger.hold_resize(uid, resize)
        grant = Grant(uid, resize, pod.latest.version)
        if outcome == "refused":
            self.ledger.release_resize(uid)
        elif outcome == "late":
            self.in_flight.append(grant)
        else:
            self._carry_out(grant)

    def _is_reported(self, seen: PodSeen) -> bool:
        node = self.ledger.node("n1")
        assert node is not None
        assert node.fact is not None
        applied = (node.fact.applied or {}).get(seen.uid)
        return seen.granted is None or (applied is not None and applied.number == seen.granted.number)

    def _carry_out(self, grant: Grant) -> None:
        """What the API server does: it refuses a grant for another version than the pod has."""
        pod = self.pods.get(grant.uid)
        if pod is not None and pod.version == grant.version:
            self._write(replace(pod, granted=grant.resize))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def a_late_grant_arrives(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.in_flight) - 1))
        self._carry_out(self.in_flight.pop(place))

    @precondition(lambda self: self.post)
    @rule(data=st.data(), keep=st.booleans())
    def the_extender_sees_some_facts(self, data: st.DataObject, keep: bool) -> None:
        for _ in range(data.draw(st.integers(1, len(self.post)))):
            place = data.draw(st.integers(0, len(self.post) - 1))
            self.ledger.apply(self.post[place])
            if not keep:
                del self.post[place]

    @rule()
    def the_agent_sees_its_pods(self) -> None:
        self.agent_sees = dict(self.pods)

    @rule(data=st.data(), does_it=st.booleans(), dies=st.booleans())
    def the_agent_answers_a_grant(self, data: st.DataObject, does_it: bool, dies: bool) -> None:
        """It sets the limit or keeps the old one, then reports the amount in force; it may die before that."""
        seen = self.agent_sees.values()
        pending = [pod for pod in seen if pod.granted is not None and pod.granted.number > self._last(pod.uid).number]
        if not pending:
            return
        pod = data.draw(st.sampled_from(sorted(pending, key=lambda each: each.uid)))
        assert pod.granted is not None
        units = pod.granted.units if does_it else self._last(pod.uid).units
        self.limits[pod.uid] = units
        if dies:
            return
        self.in_force[pod.uid] = Resize(units, pod.granted.number)
        self._report()

    def _last(self, uid: str) -> Resize:
        return self.in_force.get(uid, Resize(self.pods[uid].request[0].share, 0))

    def _report(self) -> None:
        self._write_node(replace(self.node, applied={uid: one for uid, one in self.in_force.items() if uid in self.pods}))

    @rule()
    def the_agent_starts_again(self) -> None:
        """It knows what it had reported, and sets the limits that were in force then."""
        self.in_force = {uid: one for uid, one in (self.node.applied or {}).items() if uid in self.pods}
        self.limits = {uid: self._last(uid).units for uid in self.limits}
        self.agent_sees = dict(self.pods)

    @rule()
    def the_extender_starts_again(self) -> None:
        """It changes the pods for which a grant may be on its way, and lists everything, before it decides."""
        for uid in {grant.uid for grant in self.in_flight} & self.pods.keys():
            self._write(self.pods[uid])
        self.post.clear()
        self.ledger = Ledger()
        for fact in self._facts():
            self.ledger.apply(fact)

    @invariant()
    def no_card_is_oversold(self) -> None:
        for index in range(2):
            on_card = [uid for uid, pod in self.pods.items() if pod.slices and pod.slices[0].index == index]
            assert sum(self.limits[uid] for uid in on_card) <= SIZE
        assert self.ledger.check() == []

    def teardown(self) -> None:
        """When everything was seen, a new extender counts the same."""
        self.in_flight.clear()
        self._deliver_all()
        fresh = Ledger()
        for fact in self._facts():
            fresh.apply(fact)
        for pod in self.ledger.pods():
            self.ledger.release_resize(pod.seen.uid)
        assert {pod.seen.uid: pod.seen.slices for pod in self.ledger.pods()} == {
            pod.seen.uid: pod.seen.slices for pod in fresh.pods()
        }
        assert self.ledger.check() == []


TestResizing = Resizing.TestCase
TestResizing.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
