"""What the pods of a node take of it."""

from accelshare.extender.promises.node_usage import NodeUsage
from accelshare.wire.scheduling import HostPort, NodeChoice, SchedulingNode, Taint

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
