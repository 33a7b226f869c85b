"""kube-scheduler's hard rules, one by one."""

import pytest

from accelshare.extender.promises import rules
from accelshare.wire.scheduling import (
    HostPort,
    NodeChoice,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    SchedulingNode,
    Taint,
    Toleration,
)


def node(*, unschedulable: bool = False, taints: tuple[Taint, ...] = (), **labels: str) -> SchedulingNode:
    return SchedulingNode("n1", labels, taints, unschedulable, {})


GPU = Taint("gpu", "yes", "NoSchedule")


@pytest.mark.parametrize(
    ("operator", "values", "label", "matches"),
    [
        ("In", ("a", "b"), "a", True),
        ("In", ("a", "b"), "c", False),
        ("In", ("a",), None, False),
        ("NotIn", ("a",), "b", True),
        ("NotIn", ("a",), "a", False),
        ("NotIn", ("a",), None, True),
        ("Exists", (), "", True),
        ("Exists", (), None, False),
        ("DoesNotExist", (), None, True),
        ("DoesNotExist", (), "a", False),
        ("Gt", ("5",), "6", True),
        ("Gt", ("5",), "5", False),
        ("Gt", ("5",), "x", False),
        ("Gt", ("-5",), "-4", True),
        ("Lt", ("5",), "4", True),
        ("Lt", ("5",), None, False),
        ("Lt", ("5", "6"), "4", False),
        ("Near", ("5",), "5", False),
    ],
)
def test_required_node_affinity(operator: str, values: tuple[str, ...], label: str | None, matches: bool) -> None:
    term = NodeSelectorTerm((NodeSelectorRequirement("size", operator, values),))
    assert rules.matches_affinity((term,), node() if label is None else node(size=label)) is matches


def test_one_term_must_match_and_all_its_requirements() -> None:
    zone, size = NodeSelectorRequirement("zone", "In", ("a",)), NodeSelectorRequirement("size", "Exists")
    assert rules.matches_affinity((NodeSelectorTerm((zone, size)), NodeSelectorTerm((zone,))), node(zone="a"))
    assert not rules.matches_affinity((NodeSelectorTerm((zone, size)),), node(zone="a"))


def test_a_term_without_requirements_matches_no_node() -> None:
    assert not rules.matches_affinity((NodeSelectorTerm(),), node())
    assert not rules.matches_affinity((), node())
    assert rules.matches_affinity(None, node())


def test_affinity_by_the_name_of_the_node() -> None:
    first, second = (NodeSelectorRequirement("metadata.name", "In", (name,)) for name in ("n1", "n2"))
    assert rules.matches_affinity((NodeSelectorTerm(None, (first,)),), node())
    assert not rules.matches_affinity((NodeSelectorTerm(None, (second,)),), node())


def test_every_label_of_the_selector_must_match() -> None:
    assert rules.matches_selector((("a", "1"), ("b", "2")), {"a": "1", "b": "2", "c": "3"})
    assert not rules.matches_selector((("a", "1"), ("b", "2")), {"a": "1"})


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("gpu", "Equal", "yes", "NoSchedule"), True),
        (Toleration("gpu", "", "yes"), True),
        (Toleration("gpu", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("", "Equal", "yes"), False),
        (Toleration("gpu", "Equal", "no"), False),
        (Toleration("gpu", "Exists", effect="NoExecute"), False),
        (Toleration("cpu", "Exists"), False),
        (Toleration("gpu", "Gt", "1"), False),
    ],
)
def test_taints_and_tolerations(toleration: Toleration, tolerated: bool) -> None:
    assert rules.tolerates_all((toleration,), (GPU,)) is tolerated


def test_only_hard_taints_keep_a_pod_off() -> None:
    assert rules.tolerates_all((), (Taint("gpu", "", "PreferNoSchedule"),))
    assert not rules.tolerates_all((), (Taint("gpu", "", "NoExecute"),))


def test_a_cordoned_node_takes_only_pods_that_tolerate_it() -> None:
    assert not rules.may_be_on(NodeChoice(), node(unschedulable=True))
    tolerant = NodeChoice(tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),))
    assert rules.may_be_on(tolerant, node(unschedulable=True))
    assert rules.may_be_on(NodeChoice(), node())


def test_every_amount_must_fit_beside_what_is_taken() -> None:
    needs = (("cpu", 500), ("example.com/nic", 1000), ("gpu-mem", 4000))
    free = {"cpu": 1000, "example.com/nic": 1000}
    assert rules.fits_amounts(needs, {"cpu": 500}, free, uncounted={"gpu-mem"})
    assert not rules.fits_amounts(needs, {"cpu": 501}, free, uncounted={"gpu-mem"})
    assert not rules.fits_amounts(needs, {}, free)


def test_a_node_has_a_largest_number_of_pods() -> None:
    assert rules.fits_one_more(109, {"pods": 110_000})
    assert not rules.fits_one_more(110, {"pods": 110_000})
    assert not rules.fits_one_more(0, {})


@pytest.mark.parametrize(
    ("mine", "theirs", "free"),
    [
        (("0.0.0.0", "TCP", 80), ("0.0.0.0", "TCP", 81), True),
        (("0.0.0.0", "TCP", 80), ("0.0.0.0", "UDP", 80), True),
        (("0.0.0.0", "TCP", 80), ("10.0.0.1", "TCP", 80), False),
        (("10.0.0.2", "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.1", "TCP", 80), False),
        (("::", "TCP", 80), ("10.0.0.1", "TCP", 80), False),
    ],
)
def test_host_ports(mine: HostPort, theirs: HostPort, free: bool) -> None:
    assert rules.ports_are_free((mine,), (theirs,)) is free
