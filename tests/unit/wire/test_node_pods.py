"""A pod as its own node reads it."""

import json
from typing import Any

import pytest

from accelshare.vendors.catalog import load
from accelshare.wire.node_pods import NodePodReader
from tests.unit.wire.objects import pod

READER = NodePodReader(load())
BOUND = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
STARTED = {"startTime": "2026-01-01T00:00:01Z", "conditions": BOUND}
CREATED = {"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:containers": {}}}}
NAMED = {**CREATED, "fieldsV1": {"f:spec": {"f:containers": {}, "f:nodeName": {}}}}
STATUS = {**CREATED, "manager": "kubelet", "subresource": "status", "fieldsV1": {"f:status": {"f:phase": {}}}}


@pytest.mark.parametrize(
    ("status", "fields", "by_hand"),
    [
        ({}, [CREATED], True),
        ({"conditions": BOUND}, [CREATED], False),
        (STARTED, [CREATED, STATUS], False),
        (STARTED, [NAMED, STATUS], True),
        (STARTED, [NAMED], True),
        ({"conditions": BOUND}, [NAMED], True),
        (STARTED, [], False),
        (STARTED, None, False),
        (STARTED, "x", False),
        (STARTED, [{"fieldsV1": {"f:spec": 7}}], False),
        (STARTED, [{"fieldsV1": None}, {"fieldsV1": {"f:spec": None}}, {}], False),
    ],
)
def test_a_pod_created_with_a_node_name_is_recognized_after_kubelet_started_it(
    status: dict[str, Any], fields: Any, by_hand: bool
) -> None:
    """kubelet writes the condition that a bind leaves. But a bind has no field manager: an owner of nodeName created it so."""
    content = pod({"aliyun.com/gpu-mem": "3"}, node="n1")
    content["status"] |= status
    content["metadata"]["managedFields"] = fields
    read = READER.decode(json.dumps(content).encode())
    assert read is not None
    assert read.by_hand is by_hand
