"""Lists in protobuf: the same objects as in JSON, and one error for everything that cannot be read."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from accelshare.vendors import catalog
from accelshare.wire import kubernetes_pb2 as messages
from accelshare.wire import protobuf
from accelshare.wire.decoding import PROTOBUF_MAGIC, UnreadableError
from accelshare.wire.listed_pods import ListedPodReader
from accelshare.wire.nodes import NodeReader
from accelshare.wire.objects import node_decoder, pod_decoder
from accelshare.wire.pods import PodReader

CATALOG = catalog.load()
RECORD = json.dumps({"nvidia": [{"index": 0, "id": "GPU-0", "units": 4}]})
AMOUNTS = {"aliyun.com/gpu-mem": "4", "cpu": "500m"}

POD: dict[str, Any] = {
    "metadata": {
        "name": "train",
        "namespace": "ml",
        "uid": "u1",
        "resourceVersion": "77",
        "creationTimestamp": "2026-11-17T12:01:28Z",
        "labels": {"baidu.com/xpu-count": "2"},
        "annotations": {"accelshare.io/assignment": RECORD},
    },
    "spec": {
        "nodeName": "n1",
        "serviceAccountName": "trainer",
        "priority": 7,
        "containers": [{"name": "main", "resources": {"limits": AMOUNTS, "requests": AMOUNTS}}],
        "initContainers": [{"name": "first", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
        "overhead": {"cpu": "250m"},
        "resources": {"requests": {"memory": "1Gi"}},
    },
    "status": {
        "phase": "Failed",
        "reason": "UnexpectedAdmissionError",
        "message": "aliyun.com/gpu-mem",
        "startTime": "2026-11-17T12:02:00Z",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
    },
}
NODE: dict[str, Any] = {
    "metadata": {"name": "n1", "resourceVersion": "5", "annotations": {"accelshare.io/inventory": "{}"}},
    "status": {
        "capacity": {"aliyun.com/gpu-mem": "32", "aliyun.com/gpu-count": "2"},
        "allocatable": {"aliyun.com/gpu-mem": "32"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    },
}


def quantities(amounts: dict[str, str]) -> dict[str, messages.Quantity]:
    return {name: messages.Quantity(text=text) for name, text in amounts.items()}


def resources(of: dict[str, dict[str, str]]) -> bytes:
    message = messages.ResourceRequirements(limits=quantities(of.get("limits", {})), requests=quantities(of.get("requests", {})))
    return message.SerializeToString(deterministic=True)


def pod_message() -> messages.Pod:
    metadata = messages.ObjectMeta(
        name="train",
        namespace="ml",
        uid="u1",
        resource_version="77",
        creation_timestamp=messages.Time(seconds=1794916888),
        labels=POD["metadata"]["labels"],
        annotations=POD["metadata"]["annotations"],
    )
    first = messages.Container(name="first", restart_policy="Always", resources=resources({"requests": {"cpu": "1"}}))
    spec = messages.PodSpec(
        node_name="n1",
        service_account_name="trainer",
        priority=7,
        containers=[messages.Container(name="main", resources=resources({"limits": AMOUNTS, "requests": AMOUNTS}))],
        init_containers=[first],
        overhead=quantities({"cpu": "250m"}),
        resources=resources({"requests": {"memory": "1Gi"}}),
    )
    status = messages.PodStatus(
        phase="Failed",
        reason="UnexpectedAdmissionError",
        message="aliyun.com/gpu-mem",
        start_time=messages.Time(seconds=1794916920),
        conditions=[messages.PodCondition(type="PodScheduled", status="True")],
    )
    return messages.Pod(metadata=metadata, spec=spec, status=status)


def node_message() -> messages.Node:
    status = messages.NodeStatus(
        capacity=quantities(NODE["status"]["capacity"]),
        allocatable=quantities(NODE["status"]["allocatable"]),
        addresses=[messages.NodeAddress(type="InternalIP", address="10.0.0.1")],
    )
    metadata = messages.ObjectMeta(name="n1", resource_version="5", annotations=NODE["metadata"]["annotations"])
    return messages.Node(metadata=metadata, status=status)


def pods_page(*pods: messages.Pod, more: str = "") -> bytes:
    listed = messages.PodList(metadata=messages.ListMeta(resource_version="9", continue_token=more), items=pods)
    return PROTOBUF_MAGIC + messages.PodListEnvelope(list=listed).SerializeToString()


def nodes_page(*nodes: messages.Node) -> bytes:
    listed = messages.NodeList(metadata=messages.ListMeta(resource_version="9"), items=nodes)
    return PROTOBUF_MAGIC + messages.NodeListEnvelope(list=listed).SerializeToString()


def test_a_page_has_its_version_and_where_the_next_one_begins() -> None:
    page = protobuf.PODS.page(pods_page(pod_message(), messages.Pod(), more="next"))
    assert (page.resource_version, page.continue_token, len(page.items)) == ("9", "next", 2)


def test_a_pod_is_the_same_as_in_json() -> None:
    (message,) = protobuf.PODS.page(pods_page(pod_message())).items
    assert protobuf.pod_of(message) == pod_decoder.decode(json.dumps(POD))


def test_a_node_is_the_same_as_in_json() -> None:
    (message,) = protobuf.NODES.page(nodes_page(node_message())).items
    in_json = node_decoder.decode(json.dumps(NODE))
    in_json.metadata.labels = {}
    assert protobuf.node_of(message) == in_json


def test_facts_are_the_same_as_from_json() -> None:
    pods, nodes = PodReader(CATALOG), NodeReader(CATALOG)
    fact = pods.decode(json.dumps(POD).encode())
    assert fact is not None
    assert ListedPodReader(pods).read(pod_message()) == fact
    assert nodes.fact(protobuf.node_of(node_message())) == nodes.decode(json.dumps(NODE).encode())


def _pending(pod: messages.Pod) -> None:
    pod.spec.node_name = ""
    pod.status.Clear()
    pod.metadata.labels["scheduling.x-k8s.io/pod-group"] = "gang"


def _running(pod: messages.Pod) -> None:
    pod.status.phase = "Running"
    pod.status.reason = ""
    pod.status.message = ""


def _without_binding(pod: messages.Pod) -> None:
    _running(pod)
    del pod.status.conditions[:]
    pod.status.ClearField("start_time")
    pod.metadata.ClearField("creation_timestamp")
    pod.spec.priority = 0


def _resized(pod: messages.Pod) -> None:
    _running(pod)
    pod.metadata.annotations["accelshare.io/resize"] = "6"
    pod.metadata.annotations["accelshare.io/granted"] = "6 1"


def _unreadable_record(pod: messages.Pod) -> None:
    _running(pod)
    pod.metadata.annotations["accelshare.io/assignment"] = "{"


def _other_card_count(pod: messages.Pod) -> None:
    _running(pod)
    pod.metadata.annotations["accelshare.io/card-count"] = "2"


def _more_overhead(pod: messages.Pod) -> None:
    _running(pod)
    pod.spec.overhead["cpu"].text = "1"


def _first_ends(pod: messages.Pod) -> None:
    _running(pod)
    pod.spec.init_containers[0].restart_policy = ""


def _without_request(pod: messages.Pod) -> None:
    _running(pod)
    del pod.spec.containers[:]


def _agent(pod: messages.Pod) -> None:
    _without_request(pod)
    pod.metadata.labels["accelshare.io/agent"] = "true"


CHANGES = [
    _pending,
    _running,
    _without_binding,
    _resized,
    _unreadable_record,
    _other_card_count,
    _more_overhead,
    _first_ends,
    _without_request,
    _agent,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_pod_is_the_same_fact_whether_its_template_is_known_or_not(change: Callable[[messages.Pod], None]) -> None:
    known = ListedPodReader(PodReader(CATALOG))
    known.read(pod_message())
    message = pod_message()
    change(message)
    expected = PodReader(CATALOG).read(protobuf.pod_of(message))
    assert [known.read(message) for _ in range(2)] == [expected] * 2
    assert expected != PodReader(CATALOG).read(protobuf.pod_of(pod_message()))


def test_an_empty_pod_is_the_same_fact_as_in_json() -> None:
    reader = PodReader(CATALOG)
    assert ListedPodReader(reader).read(messages.Pod()) == reader.decode(b'{"metadata":{}}')


def test_reading_a_pod_changes_nothing_in_its_message() -> None:
    """A message's map adds a key that is read and not there."""
    (message,) = protobuf.PODS.page(pods_page(pod_message())).items
    reader = ListedPodReader(PodReader(CATALOG))
    assert reader.read(message) == reader.read(message)
    assert message == pod_message()


def test_large_resources_are_decoded_too() -> None:
    many = {f"example.com/resource-{number:04}": "1" for number in range(100)}
    encoded = resources({"limits": many})
    assert len(encoded) > protobuf.LONGEST_CACHED
    pod = messages.Pod(spec=messages.PodSpec(containers=[messages.Container(resources=encoded)]))
    containers = protobuf.pod_of(pod).spec.containers or []
    assert [container.resources.limits for container in containers if container.resources] == [many]


NOT_UTF_8 = pods_page(pod_message()).replace(b"trainer", b"\xff\xff\xff\xff\xff\xff\xff")
TOO_DEEP = PROTOBUF_MAGIC + b"\x3b" * 1_000 + b"\x3c" * 1_000  # groups of field 7, which nobody reads


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", pods_page(pod_message())[4:], pods_page(pod_message())[:-9], NOT_UTF_8, TOO_DEEP, PROTOBUF_MAGIC + b"\xff" * 50],
    ids=["empty", "json", "no-magic", "truncated", "not-utf-8", "too-deep", "noise"],
)
def test_what_cannot_be_read_is_one_error(body: bytes) -> None:
    with pytest.raises(UnreadableError):
        protobuf.PODS.page(body)


@pytest.mark.parametrize(
    "pod",
    [
        messages.Pod(spec=messages.PodSpec(containers=[messages.Container(resources=b"\xff\xff")])),
        messages.Pod(metadata=messages.ObjectMeta(creation_timestamp=messages.Time(seconds=2**62))),
        messages.Pod(metadata=messages.ObjectMeta(creation_timestamp=messages.Time(seconds=2**40))),
    ],
    ids=["resources", "time", "year"],
)
def test_a_part_that_cannot_be_read_is_one_error(pod: messages.Pod) -> None:
    with pytest.raises(UnreadableError):
        protobuf.pod_of(pod)


@pytest.mark.parametrize("field", ["scheduling_group", "workload_ref"])
def test_a_pending_member_of_a_gang_is_known_as_one(field: str) -> None:
    """A new extender refuses the bind of a member that only an earlier one was asked for; it knows the pod from the list."""
    message = pod_message()
    message.spec.node_name = ""
    assert not PodReader(CATALOG).read(protobuf.pod_of(message)).in_gang  # type: ignore[union-attr]
    setattr(message.spec, field, b"\x0a\x05train")
    assert PodReader(CATALOG).read(protobuf.pod_of(message)).in_gang  # type: ignore[union-attr]
