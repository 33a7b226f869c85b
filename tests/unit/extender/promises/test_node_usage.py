"""What the pods of a node take of it."""

import tracemalloc

import pytest

from accelshare.extender.promises import node_usage, rules
from accelshare.extender.promises.node_usage import MOST_CHOICES, NodeUsage
from accelshare.ledger.ledger import Ledger
from accelshare.wire.scheduling import HostPort, NodeChoice, SchedulingNode, Taint, Toleration
from tests.unit.extender.promises.test_plan import Bench

GPU = NodeChoice(selector=(("pool", "gpu"),))
WEB: tuple[HostPort, ...] = (("0.0.0.0", "TCP", 80),)


def node(name: str, *, cpu: int = 1000, pods: int = 10, **labels: str) -> SchedulingNode:
    return SchedulingNode(name, labels, (), False, {"cpu": cpu, "pods": pods * 1000})


def test_pods_fit_until_the_node_is_full() -> None:
    usage = NodeUsage()
    usage.node_seen(node("n1"))
    assert usage.fits("n1", (("cpu", 1000),))
    usage.add("a", "n1", (("cpu", 600),))
    assert not usage.fits("n1", (("cpu", 600),))
    usage.add("a", "n1", (("cpu", 600),))  # counted once
    assert usage.fits("n1", (("cpu", 400),))
    usage.remove("a")
    usage.remove("a")
    assert usage.fits("n1", (("cpu", 1000),))


def test_a_pod_that_moves_is_counted_on_its_new_node() -> None:
    usage = NodeUsage()
    usage.node_seen(node("n1"))
    usage.node_seen(node("n2"))
    usage.add("a", "n1", (("cpu", 600),))
    usage.add("a", "n2", (("cpu", 600),))
    assert usage.fits("n1", (("cpu", 1000),))
    assert not usage.fits("n2", (("cpu", 1000),))


def test_a_counted_pod_fits_beside_the_others_or_not() -> None:
    usage = NodeUsage()
    usage.node_seen(node("n1"))
    usage.add("a", "n1", (("cpu", 600),))
    assert usage.fits("n1", (("cpu", 600),), uid="a")
    usage.add("b", "n1", (("cpu", 600),))
    assert not usage.fits("n1", (("cpu", 600),), uid="a")


def test_the_number_of_pods_and_their_ports_are_limits() -> None:
    usage = NodeUsage()
    usage.node_seen(node("n1", pods=2))
    usage.add("a", "n1", (), WEB)
    assert not usage.fits("n1", (), WEB)
    assert usage.fits("n1", (), WEB, uid="a")
    assert usage.fits("n1", ())
    usage.add("b", "n1", ())
    assert not usage.fits("n1", ())


def test_an_unknown_node_fits_nothing() -> None:
    assert not NodeUsage().fits("n1", ())


def test_the_nodes_of_a_choice_follow_the_nodes() -> None:
    usage = NodeUsage()
    usage.node_seen(node("n1", pool="gpu"))
    usage.node_seen(node("n2"))
    assert usage.nodes_for(GPU) == {"n1"}
    assert usage.node_seen(node("n2", pool="gpu"))
    usage.node_seen(SchedulingNode("n1", {"pool": "gpu"}, (Taint("t", effect="NoSchedule"),), False, {}))
    assert usage.nodes_for(GPU) == {"n2"}
    usage.node_gone("n2")
    assert usage.nodes_for(GPU) == set()


def test_a_heartbeat_changes_no_choice() -> None:
    usage = NodeUsage()
    assert usage.node_seen(node("n1"))
    assert not usage.node_seen(node("n1", cpu=2000))
    assert usage.fits("n1", (("cpu", 2000),))


def test_many_choices_and_changes_are_forgotten_and_read_again() -> None:
    usage = NodeUsage()
    usage.node_seen(node("n1", pool="gpu"))
    usage.nodes_for(GPU)
    for number in range(10_000):
        usage.node_seen(node("n2", pool="gpu" if number % 2 else "cpu"))
    assert usage.nodes_for(GPU) == {"n1", "n2"}
    for number in range(100):
        usage.nodes_for(NodeChoice(selector=(("pool", str(number)),)))
    assert usage.nodes_for(GPU) == {"n1", "n2"}


def test_all_host_ports_of_a_pod_must_be_free() -> None:
    usage = NodeUsage()
    usage.node_seen(node("n1"))
    usage.add("a", "n1", (), WEB)
    assert not usage.fits("n1", (), (("0.0.0.0", "TCP", 79), *WEB))


def test_amounts_of_pods_that_are_gone_are_forgotten() -> None:
    """A user can request 0 of thousands of resources that no node has, again and again."""
    usage = NodeUsage()
    usage.node_seen(node("n1"))
    usage.add("stays", "n1", (("cpu", 100),))
    tracemalloc.start()
    try:
        for number in range(50):
            usage.add("a", "n1", tuple((f"example.com/r{number}-{part}", 0) for part in range(3_000)))
            usage.remove("a")
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_change_of_a_node_is_compared_with_its_promises_only(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pod of a user may have rules of its own: all nodes for each of 100 pods would take the event loop for seconds."""
    compared: list[str] = []

    def may_be_on(choice: NodeChoice, node: SchedulingNode) -> bool:
        compared.append(node.name)
        return may_be_on_(choice, node)

    may_be_on_ = rules.may_be_on
    monkeypatch.setattr(node_usage, "may_be_on", may_be_on)
    bench = Bench(ledger)
    nodes, promises = 400, MOST_CHOICES + 20
    bench.node("n1", *[16] * 16)
    for number in range(nodes):
        bench.plan.node_seen(SchedulingNode(f"other{number}", {"tier": "x"}, (), False, {}))
    bench.served()
    for number in range(promises):
        bench.pod(f"p{number}", 1, choice=NodeChoice(tolerations=(Toleration(f"k{number}", "Exists"),)))
        bench.promise(f"p{number}")
    compared.clear()
    bench.node("n1", *[16] * 16)
    assert len(compared) <= promises
