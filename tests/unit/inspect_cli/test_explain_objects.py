"""One pod as its owner wrote it."""

import json

from accelshare.inspect_cli.explain_objects import read
from accelshare.vendors.catalog import load
from accelshare.wire.pods import PodReader

READER = PodReader(load())


def test_everything_an_explanation_needs_is_read() -> None:
    seen, details = read(
        json.dumps(
            {
                "metadata": {"name": "p", "namespace": "ml", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"}},
                "spec": {
                    "containers": [
                        {"resources": {"limits": {"aliyun.com/gpu-mem": 3}, "requests": {"cpu": "1"}}},
                        {"resources": {"limits": {"aliyun.com/gpu-mem": 1}}},
                    ],
                    "nodeSelector": {"disk": "ssd"},
                    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
                },
                "status": {
                    "phase": "Pending",
                    "conditions": [
                        {"type": "Ready", "status": "False", "message": "not this"},
                        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"},
                    ],
                },
            }
        ).encode(),
        READER,
    )
    assert seen is not None
    assert [ask.units for ask in seen.request] == [4]
    assert (details.namespace, details.name, details.phase, details.scheduler_message) == ("ml", "p", "Pending", "0/1 nodes")
    assert (details.labels, details.annotations, details.node_selector) == ({"a": "b"}, {"c": "d"}, {"disk": "ssd"})
    assert details.resources == {"aliyun.com/gpu-mem": "3", "cpu": "1"}
    assert details.has_affinity


def test_a_pod_without_requests_and_status() -> None:
    seen, details = read(b'{"metadata": {"name": "p", "namespace": "ml"}, "spec": {"containers": [{}]}}', READER)
    assert seen is None
    assert not details.has_affinity
    assert details.resources == {}


def test_kubelets_message_about_a_failed_pod() -> None:
    _, details = read(
        b'{"metadata": {"name": "p"}, "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no"}}',
        READER,
    )
    assert (details.phase, details.reason) == ("Failed", "UnexpectedAdmissionError: no")
