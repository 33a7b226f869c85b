"""What keeps a pod from a node besides its cards."""

import pytest

from accelshare.report.cluster_state import NodeConstraints, Taint, Toleration, obstacles

GIB = 1000 * 2**30
DEDICATED = Taint("dedicated", "ml", "NoSchedule")


def test_an_ordinary_node_has_no_obstacles() -> None:
    node = NodeConstraints(allocatable={"cpu": 8000, "memory": 16 * GIB, "pods": 110}, taken={"cpu": 4000}, pods=109)
    assert list(obstacles(node, (), (("cpu", 4000), ("memory", 16 * GIB)))) == []
    assert list(obstacles(NodeConstraints(), (), (("cpu", 10**9),))) == [], "what is not known is not claimed"


def test_each_obstacle_is_reported() -> None:
    node = NodeConstraints(
        cordoned=True,
        taints=(Taint("node.kubernetes.io/unschedulable", effect="NoSchedule"), DEDICATED),
        allocatable={"cpu": 8000, "memory": 16 * GIB, "pods": 10},
        taken={"cpu": 7500, "memory": 17 * GIB},
        pods=10,
    )
    assert list(obstacles(node, (), (("cpu", 1000), ("memory", GIB // 2)))) == [
        "it is cordoned (kubectl uncordon)",
        "the pod does not tolerate its taint dedicated=ml:NoSchedule",
        "not enough cpu: 1 requested, 0.5 of 8 not requested by other pods",
        "not enough memory: 0.5 GiB requested, 0 GiB of 16 GiB not requested by other pods",
        "it already has 10 pods, its maximum",
    ]


@pytest.mark.parametrize(
    ("toleration", "accepts"),
    [
        (Toleration("dedicated", "Equal", "ml", "NoSchedule"), True),
        (Toleration("dedicated", "Equal", "ml"), True),
        (Toleration("dedicated", "Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration("dedicated", "Gt", "3"), True),  # an operator that we do not know: nothing is claimed
        (Toleration("dedicated", "Equal", "web"), False),
        (Toleration("dedicated", "Equal", "ml", "NoExecute"), False),
        (Toleration("other", "Exists"), False),
        (Toleration(), False),
    ],
)
def test_tolerations_are_read_as_kube_scheduler_reads_them(toleration: Toleration, accepts: bool) -> None:
    assert (list(obstacles(NodeConstraints(taints=(DEDICATED,)), (toleration,), ())) == []) is accepts


def test_a_taint_of_preference_is_no_obstacle() -> None:
    assert list(obstacles(NodeConstraints(taints=(Taint("slow", effect="PreferNoSchedule"),)), (), ())) == []


def test_a_pod_that_tolerates_cordons_is_not_rejected_by_one() -> None:
    """As the pods of a DaemonSet do."""
    toleration = Toleration("node.kubernetes.io/unschedulable", "Exists", effect="NoSchedule")
    assert list(obstacles(NodeConstraints(cordoned=True), (toleration,), ())) == []
