"""A node's own story on its object: the inventory annotation and the count of its cards.

Belongs here: its patches. Never: what there is to tell (agent/), or reading it (wire/).
"""

from collections.abc import Iterable, Mapping

import msgspec

from accelshare.kube import paths
from accelshare.kube.client import Client

MERGE = "application/merge-patch+json"


async def annotate_node(client: Client, node: str, annotations: Mapping[str, str | None]) -> None:
    """Write these annotations on the node; None takes one away."""
    body = msgspec.json.encode({"metadata": {"annotations": dict(annotations)}})
    await client.request("PATCH", paths.node(node), body=body, content_type=MERGE)


async def show_amounts(client: Client, node: str, amounts: Mapping[str, int]) -> None:
    """Write these resources into the node's capacity; kubelet copies them to what can be allocated, and keeps them."""
    said = {name: str(amount) for name, amount in amounts.items()}
    body = msgspec.json.encode({"status": {"capacity": said, "allocatable": said}})
    await client.request("PATCH", f"{paths.node(node)}/status", body=body, content_type=MERGE)


async def hide_amounts(client: Client, node: str, names: Iterable[str]) -> None:
    """Take these resources out of the node's status. kubelet soon writes those again that a device plugin told it of, as 0."""
    gone = dict.fromkeys(names)
    body = msgspec.json.encode({"status": {"capacity": gone, "allocatable": gone}})
    await client.request("PATCH", f"{paths.node(node)}/status", body=body, content_type=MERGE)
