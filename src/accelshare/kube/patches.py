"""Patches of pods and nodes: annotations, conditions, capacity; and deleting a pod.

Belongs here: one request each. A write to a pod names the pod's uid, so that another pod of the same name is never changed.
Never: what is written, or reading it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from accelshare.kube import paths
from accelshare.kube.client import Client

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
# Without them the API server looks for unknown and duplicate fields, and writes the whole object.
UNVALIDATED: Final = {"fieldValidation": "Ignore"}
ONLY_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
EVICTION_S: Final = 5.0
NOMINATION_S: Final = 5.0


async def annotate_pod(client: Client, *, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]) -> None:
    """Set these annotations of the pod; None removes one."""
    await _patch(client, paths.pod(namespace, name), uid, annotations)


async def touch_pod(client: Client, *, namespace: str, name: str, uid: str, annotations: Mapping[str, str]) -> None:
    """The same through the status subresource, whose permission cannot change what the pod runs."""
    await _patch(client, f"{paths.pod(namespace, name)}/status", uid, annotations)


async def grant_resize(
    client: Client, *, namespace: str, name: str, uid: str, version: str, annotations: Mapping[str, str]
) -> None:
    """Set these annotations if the pod has this version, through the status subresource; Conflict if it has another one."""
    metadata = {"uid": uid, "resourceVersion": version, "annotations": dict(annotations)}
    path = f"{paths.pod(namespace, name)}/status"
    await client.request("PATCH", path, body=msgspec.json.encode({"metadata": metadata}), content_type=MERGE_PATCH)


async def set_condition(
    client: Client, *, namespace: str, name: str, uid: str, condition: Mapping[str, str], timeout_s: float | None = None
) -> bytes:
    """Set one condition of the pod's status and return the pod. kube-scheduler does not requeue a pod for that."""
    body = msgspec.json.encode({"metadata": {"uid": uid}, "status": {"conditions": [condition]}})
    path = f"{paths.pod(namespace, name)}/status"
    # Conditions are merged by their type.
    return await client.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH, timeout_s=timeout_s)


async def nominate_node(client: Client, *, namespace: str, name: str, uid: str, version: int, node: str) -> bytes:
    """Set the node that kube-scheduler tries first, if the pod has this version. Conflict if it has another.

    An empty node removes it. Returns the pod's metadata; an API server may send the whole pod.
    """
    content = {"metadata": {"uid": uid, "resourceVersion": str(version)}, "status": {"nominatedNodeName": node or None}}
    path = f"{paths.pod(namespace, name)}/status"
    return await client.request(
        "PATCH",
        path,
        body=msgspec.json.encode(content),
        content_type=STRATEGIC_MERGE_PATCH,  # for which the API server does not turn the pod into JSON and back
        accept=ONLY_METADATA,
        params=UNVALIDATED,
        timeout_s=NOMINATION_S,
    )


async def delete_pod(client: Client, *, namespace: str, name: str, uid: str) -> None:
    """Delete this pod; Conflict if another pod has its name now."""
    body = msgspec.json.encode({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}})
    await client.request("DELETE", paths.pod(namespace, name), body=body)


async def check_eviction(client: Client, *, namespace: str, name: str, uid: str) -> None:
    """Ask whether this pod may be evicted, without doing it; TooManyRequests if a disruption budget does not allow it.

    An admission policy cannot see the node of a pod that is evicted, but it sees that of a pod that is deleted. So an agent may
    only ask here, and deletes the pod itself.
    """
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    path = f"{paths.pod(namespace, name)}/eviction"
    await client.request("POST", path, body=msgspec.json.encode(eviction), params={"dryRun": "All"}, timeout_s=EVICTION_S)


async def annotate_node(client: Client, node: str, annotations: Mapping[str, str | None]) -> None:
    """Set these annotations of the node; None removes one."""
    body = msgspec.json.encode({"metadata": {"annotations": dict(annotations)}})
    await client.request("PATCH", paths.node(node), body=body, content_type=MERGE_PATCH)


async def set_capacity(client: Client, node: str, amounts: Mapping[str, int]) -> None:
    """Set these resources in the node's capacity; kubelet copies them to allocatable and keeps them."""
    quantities = {name: str(amount) for name, amount in amounts.items()}
    body = msgspec.json.encode({"status": {"capacity": quantities, "allocatable": quantities}})
    await client.request("PATCH", f"{paths.node(node)}/status", body=body, content_type=MERGE_PATCH)


async def remove_capacity(client: Client, node: str, names: Iterable[str]) -> None:
    """Remove these resources from the node's status. kubelet soon writes those of a device plugin again, as 0."""
    removed = dict.fromkeys(names)
    body = msgspec.json.encode({"status": {"capacity": removed, "allocatable": removed}})
    await client.request("PATCH", f"{paths.node(node)}/status", body=body, content_type=MERGE_PATCH)


async def _patch(client: Client, path: str, uid: str, annotations: Mapping[str, str | None]) -> None:
    body = msgspec.json.encode({"metadata": {"uid": uid, "annotations": dict(annotations)}})
    await client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
