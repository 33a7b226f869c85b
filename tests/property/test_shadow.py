"""Promises beside any order of facts and binds: no card is oversold, and the promises could all be kept at once."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from accelshare.ledger.nouns import Assignment
from accelshare.ledger.shadow import Promise, Shadow
from tests.property.test_ledger import NODES, PROBES, AnyOrder


class WithPromises(AnyOrder):
    def __init__(self) -> None:
        super().__init__()
        self.shadow = Shadow(self.ledger, cached_requests=4)

    @rule(data=st.data(), node=st.sampled_from(NODES))
    def a_pod_is_promised_cards(self, data: st.DataObject, node: str) -> None:
        waiting = [
            uid
            for uid, pod in self.world.pods.items()
            if not pod.node and (known := self.ledger.pod(uid)) is not None and known.place is None and uid not in self.shadow
        ]
        if not waiting:
            return
        uid = data.draw(st.sampled_from(waiting))
        known = self.ledger.pod(uid)
        assert known is not None
        promise = self.shadow.add(uid, known.seen.request, node)
        if isinstance(promise, Promise):
            assert self.ledger.offers_cards(promise.assignment, known.seen.request)

    @rule(data=st.data())
    def a_promised_pod_is_bound_as_promised(self, data: st.DataObject) -> None:
        self._forget_placed()
        promises = list(self.shadow.promises())
        if not promises:
            return
        promise = data.draw(st.sampled_from(promises))
        known, pod = self.ledger.pod(promise.uid), self.world.pods.get(promise.uid)
        if known is None or pod is None or known.place is not None:
            self.shadow.remove(promise.uid)
            return
        assert known.seen.request == promise.request
        assert self.ledger.offers_cards(promise.assignment, promise.request)
        self.ledger.hold(promise.uid, promise.assignment)
        if data.draw(st.booleans()):
            self.send(
                self.world.write(replace(pod, node=promise.assignment.node, slices=promise.assignment.slices)),
            )
            if data.draw(st.booleans()):
                self.shadow.remove(promise.uid)
        else:
            self.ledger.release(promise.uid)

    @rule(data=st.data())
    def a_promise_is_withdrawn(self, data: st.DataObject) -> None:
        promises = [promise.uid for promise in self.shadow.promises()]
        if promises:
            self.shadow.remove(data.draw(st.sampled_from(promises)))

    @rule()
    def rankings_are_asked_for(self) -> None:
        for request in PROBES[:3]:
            self.shadow.ranking(request)

    def _forget_placed(self) -> None:
        self.shadow.broken()
        for promise in list(self.shadow.promises()):
            known = self.ledger.pod(promise.uid)
            if known is None or (known.place is not None and known.place[0] != promise.assignment.node):
                self.shadow.remove(promise.uid)

    @invariant()
    def the_shadow_counts_what_it_has_promised(self) -> None:
        assert self.shadow.check() == []

    @invariant()
    def all_promises_can_be_kept_at_once(self) -> None:
        self._forget_placed()
        held: list[str] = []
        for promise in list(self.shadow.promises()):
            known = self.ledger.pod(promise.uid)
            assert known is not None
            if known.place is None:
                self.ledger.hold(promise.uid, Assignment(promise.assignment.node, promise.assignment.slices))
                held.append(promise.uid)
        for uid in held:
            self.ledger.release(uid)


WithPromises.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestPromises = WithPromises.TestCase
