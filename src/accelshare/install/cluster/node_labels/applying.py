"""Reading all nodes, and writing the changes.

Belongs here: two kinds of request. Never: what a node's labels should be (marks.py).
"""

from collections.abc import Mapping, Sequence

import msgspec

from accelshare.install.cluster.node_labels import marks
from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import NotFound
from accelshare.wire.objects import node_decoder

MERGE = "application/merge-patch+json"


class UnknownNodesError(Exception):
    """Nodes were named that the cluster does not have."""


async def apply(client: Client, labels: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """These nodes have these labels of ours, no other node has one of ours. All names are checked before anything is written."""
    nodes = await _all_nodes(client)
    unknown = sorted(set(names) - {node.name for node in nodes})
    if unknown:
        known = ", ".join(sorted(node.name for node in nodes)[:20]) or "none"
        raise UnknownNodesError(f"the cluster has no node {', '.join(unknown)}; there are {known}")
    # All of them before the first is written: a refusal changes nothing.
    changes = [marks.change(node, labels if node.name in names else {}) for node in nodes]
    return [line for change in changes if change is not None for line in await _write(client, change)]


async def _all_nodes(client: Client) -> list[marks.NodeLabels]:
    nodes = [node_decoder.decode(raw) async for page in client.pages("/api/v1/nodes") for raw in page.items]
    return [marks.read(node.metadata.name, node.metadata.labels, node.metadata.annotations) for node in nodes]


async def _write(client: Client, change: marks.Change) -> tuple[str, ...]:
    metadata = {"labels": dict(change.labels), "annotations": {marks.KEY: marks.written(change.ours)}}
    body = msgspec.json.encode({"metadata": metadata})
    try:
        await client.request("PATCH", paths.node(change.node), body=body, content_type=MERGE)
    except NotFound:  # autoscalers take nodes away at any moment
        return (f"node {change.node}: it has left the cluster in the meantime",)
    return change.lines
