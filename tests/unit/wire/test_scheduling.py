"""What kube-scheduler's rules look at, read from pods and nodes."""

import json
import tracemalloc
from typing import Any

import pytest

from accelshare.wire import scheduling
from accelshare.wire.decoding import UnreadableError
from accelshare.wire.scheduling import (
    NodeChoice,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    SchedulingPod,
    Taint,
    Toleration,
    pod_decoder,
    read_node,
    scheduling_pod,
)


def pod(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any) -> SchedulingPod:
    containers = [{"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": "4", "cpu": "500m"}}}]
    content = {
        "metadata": {"uid": "u1", "namespace": "ml", "name": "a", "resourceVersion": "7", **metadata},
        "spec": {"containers": containers, **(spec or {})},
        "status": status or {},
    }
    return scheduling_pod(pod_decoder.decode(json.dumps(content).encode()))


def test_a_waiting_pod_has_its_rules() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    spec = {
        "nodeSelector": {"pool": "gpu"},
        "affinity": affinity,
        "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 30}],
        "schedulerName": "second",
        "priority": 5,
    }
    assert pod(spec, creationTimestamp="2026-01-01T00:00:00Z") == SchedulingPod(
        "u1",
        "ml",
        "a",
        7,
        "",
        (("aliyun.com/gpu-mem", 4000), ("cpu", 500)),
        priority=5,
        created="2026-01-01T00:00:00Z",
        scheduler="second",
        choice=NodeChoice(
            selector=(("pool", "gpu"),),
            terms=(NodeSelectorTerm((NodeSelectorRequirement("zone", "In", ("a",)),)),),
            tolerations=(Toleration("gpu", "Exists"),),
        ),
    )


@pytest.mark.parametrize(
    ("spec", "unchecked"),
    [
        ({}, ""),
        ({"schedulingGates": [{"name": "later"}]}, "gated"),
        ({"resourceClaims": [{"name": "claim"}]}, "resource-claims"),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "topology-spread"),
        ({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}, "pod-affinity"),
        ({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}, "pod-affinity"),
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}, "preferred-nodes"),
        ({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}, "volumes"),
        ({"volumes": [{"name": "data", "csi": {"driver": "d"}}]}, "volumes"),
        ({"volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/srv"}}]}, ""),
        ({"workloadRef": {"name": "w", "podGroup": "g"}}, "group"),
        ({"schedulingGroup": {"podGroupName": "g"}}, "group"),
    ],
)
def test_a_pod_with_a_rule_that_we_do_not_check_is_left_alone(spec: dict[str, Any], unchecked: str) -> None:
    read = pod(spec)
    assert read.unchecked == unchecked


@pytest.mark.parametrize("label", ["scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io"])
def test_a_member_of_a_group_is_left_alone(label: str) -> None:
    read = pod(labels={label: "g"})
    assert read.unchecked == "group"


def test_a_deleted_pod_is_left_alone() -> None:
    read = pod(deletionTimestamp="2026-01-01T00:00:00Z")
    assert read.unchecked == "deleted"


def test_the_state_of_a_pod_that_kube_scheduler_has_tried() -> None:
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    read = pod({"preemptionPolicy": "Never"}, {"nominatedNodeName": "n1", "conditions": conditions})
    assert (read.nominated, read.refused, read.preempts) == ("n1", True, False)


def test_a_bound_pod_has_its_needs_and_ports() -> None:
    ports = [
        {"containerPort": 80, "hostPort": 8080},
        {"containerPort": 81},
        {"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"},
    ]
    read = pod({"nodeName": "n1", "containers": [{"name": "main", "ports": ports}]})
    assert read == SchedulingPod("u1", "ml", "a", 7, "n1", (), (("0.0.0.0", "TCP", 8080), ("10.0.0.1", "UDP", 53)))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_takes_nothing(phase: str) -> None:
    assert pod({"nodeName": "n1"}, {"phase": phase}) == SchedulingPod("u1", "ml", "a", 7, "n1", (), ended=True)


def test_a_node_with_what_rules_look_at() -> None:
    content = {
        "metadata": {"name": "n1", "labels": {"pool": "gpu"}},
        "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]},
        "status": {"allocatable": {"cpu": "8", "memory": "1Ki", "pods": "110"}},
    }
    node = read_node(json.dumps(content).encode())
    assert (node.name, node.labels, node.unschedulable) == ("n1", {"pool": "gpu"}, True)
    assert node.taints == (Taint("gpu", effect="NoSchedule"),)
    assert node.allocatable == {"cpu": 8000, "memory": 1_024_000, "pods": 110_000}


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"metadata": 1}', b'{"metadata": {}, "spec": {"tolerations": [1]}}'])
def test_what_is_no_pod_is_unreadable(raw: bytes) -> None:
    with pytest.raises(UnreadableError):
        scheduling_pod(pod_decoder.decode(raw))


def test_a_pod_of_many_containers_is_read_and_not_remembered() -> None:
    containers = [{"name": f"c{number}", "resources": {"requests": {"cpu": f"{number}m"}}} for number in range(1, 101)]
    read = pod({"containers": containers})
    assert read.needs == (("cpu", 5050),)


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {f"k{number}": "v" for number in range(100)}},
        {"tolerations": [{"key": f"k{number}"} for number in range(100)]},
        {"containers": [{"name": "main", "ports": [{"hostPort": number} for number in range(1, 101)]}]},
    ],
    ids=["selector", "tolerations", "ports"],
)
def test_a_pod_with_very_many_rules_is_left_to_kube_scheduler(spec: dict[str, Any]) -> None:
    """Each rule is compared with every node, in the only event loop."""
    found = pod(spec)
    assert found is not None
    assert found.unchecked == "many-rules"


def test_requirements_count_as_rules_with_all_their_values() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [str(number) for number in range(100)]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    found = pod({"affinity": affinity})
    assert found is not None
    assert (found.unchecked, found.choice) == ("many-rules", NodeChoice())


def test_needs_of_large_pods_are_not_cached() -> None:
    """A user who may create pods could otherwise fill the memory, long after these pods are gone."""
    scheduling._needs.cache_clear()
    tracemalloc.start()
    try:
        for number in range(50):
            limits = {f"example.com/r{number}-{part}": "1" for part in range(3_000)}
            pod({"containers": [{"name": "main", "resources": {"limits": limits}}]})
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_pod_whose_scheduling_gates_were_removed_was_not_refused() -> None:
    """The API server wrote the condition when the pod was created, and leaves it there until kube-scheduler tries the pod."""
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    assert not pod(status={"conditions": conditions}).refused
