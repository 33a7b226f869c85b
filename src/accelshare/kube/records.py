"""What others than its owner write on a pod: a corrected record, a touch that makes kube-scheduler look again, a condition.

Belongs here: the patches, and the end of a pod that must be replaced. Each names the pod's uid, so that another pod of the same
name is never written on.
"""

from collections.abc import Mapping

import msgspec

from accelshare.kube import paths
from accelshare.kube.client import Client


async def annotate_pod(client: Client, *, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]) -> None:
    """Write these annotations on the pod; None takes one away."""
    await _patch(client, paths.pod(namespace, name), uid, annotations)


async def touch_pod(client: Client, *, namespace: str, name: str, uid: str, annotations: Mapping[str, str]) -> None:
    """The same by way of the pod's status: a right that cannot change what the pod runs."""
    await _patch(client, f"{paths.pod(namespace, name)}/status", uid, annotations)


async def set_condition(
    client: Client, *, namespace: str, name: str, uid: str, condition: Mapping[str, str], timeout_s: float | None = None
) -> bytes:
    """Set one condition of the pod's status, and give the pod as it is then. kube-scheduler does not look again for that."""
    body = msgspec.json.encode({"metadata": {"uid": uid}, "status": {"conditions": [condition]}})
    path = f"{paths.pod(namespace, name)}/status"
    kind = "application/strategic-merge-patch+json"  # conditions are merged by their type
    return await client.request("PATCH", path, body=body, content_type=kind, timeout_s=timeout_s)


async def delete_pod(client: Client, *, namespace: str, name: str, uid: str) -> None:
    """End this very pod; Conflict if another has taken its name."""
    body = msgspec.json.encode({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}})
    await client.request("DELETE", paths.pod(namespace, name), body=body)


async def _patch(client: Client, path: str, uid: str, annotations: Mapping[str, str | None]) -> None:
    body = msgspec.json.encode({"metadata": {"uid": uid, "annotations": dict(annotations)}})
    await client.request("PATCH", path, body=body, content_type="application/merge-patch+json")
