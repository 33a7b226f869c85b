"""Kubernetes objects as tests write them."""

from typing import Any


def pod(
    limits: dict[str, Any] | None = None,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    node: str = "",
    phase: str | None = "Pending",
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": "u",
            "resourceVersion": "7",
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}], **({"nodeName": node} if node else {})},
        "status": {"phase": phase},
    }


def node(amounts: dict[str, Any] | None = None, *, inventory: str | None = None) -> dict[str, Any]:
    annotations = {"accelshare.io/inventory": inventory} if inventory is not None else None
    return {
        "metadata": {"name": "n1", "resourceVersion": "3", "annotations": annotations},
        "status": {
            "capacity": amounts,
            "addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }
