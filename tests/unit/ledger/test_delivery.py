"""No pod is bound to a node that cannot deliver the card: such a pod would fail."""

from dataclasses import replace

from accelshare.ledger.facts import AgentSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.refusals import Reason, Refusal
from tests.builders import KIND, given, gone, node, place, share

PAUSED = Refusal(Reason.DELIVERY_PAUSED, KIND)


def test_a_kind_that_is_not_delivered_is_refused_and_comes_back(ledger: Ledger) -> None:
    working = node("n1", 16)
    ledger.apply(replace(working, paused=frozenset({KIND})))
    assert ledger.offer("n1", share(4)) == PAUSED
    assert ledger.ranking(share(4)).best({"n1"}) == []
    ledger.apply(replace(working, version=working.version + 1))
    assert ledger.ranking(share(4)).best({"n1"}) == ["n1"]


def test_another_kind_on_the_node_is_not_affected(ledger: Ledger) -> None:
    ledger.apply(replace(node("n1", 16), paused=frozenset({"npu"})))
    assert ledger.offer("n1", share(4)) == given("n1/0", 4)


def test_a_node_waits_for_its_agent(ledger: Ledger) -> None:
    ledger.apply(node("n1", 16))
    ledger.apply(AgentSeen("agent", "n1", ready=True, version=1))
    place(ledger, "a", share(4), on="n1")
    ledger.apply(AgentSeen("agent", "n1", ready=False, version=2))
    assert ledger.offer("n1", share(4)) == PAUSED
    assert ledger.ranking(share(4)).best({"n1"}) == []
    ledger.apply(AgentSeen("agent", "n1", ready=True, version=1))  # late
    assert ledger.offer("n1", share(4)) == PAUSED
    ledger.apply(AgentSeen("new", "n1", ready=True, version=3))
    assert ledger.ranking(share(4)).best({"n1"}) == ["n1"]
    ledger.apply(gone("agent"))
    ledger.apply(gone("new"))
    assert ledger.offer("n1", share(4)) == given("n1/0", 4)


def test_an_agent_may_come_before_its_node(ledger: Ledger) -> None:
    ledger.apply(AgentSeen("agent", "n1", ready=False, version=1))
    ledger.apply(node("n1", 16))
    assert ledger.offer("n1", share(4)) == PAUSED
