"""The cluster as it is now, read from the API server with accelshare's own readers.

Belongs here: one list of nodes and pods, and the ledger they make. Never: what the extender thinks; the cluster is the truth.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from accelshare.kube.client import Client
from accelshare.ledger.facts import PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.vendors.catalog import Catalog
from accelshare.wire.nodes import NodeReader
from accelshare.wire.objects import Node, node_decoder
from accelshare.wire.pods import PodReader


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod that asks for cards: the whole object, and what it means."""

    object: dict[str, Any]
    fact: PodSeen


@dataclass(frozen=True, slots=True)
class View:
    catalog: Catalog
    nodes: dict[str, Node]
    pods: dict[str, PodView]  # by namespace/name

    def ledger(self) -> Ledger:
        """The running sum of what stands in the cluster; nothing else goes in."""
        ledger, reader = Ledger(), NodeReader(self.catalog)
        for node in self.nodes.values():
            ledger.apply(reader.fact(node))
        for pod in self.pods.values():
            ledger.apply(pod.fact)
        return ledger


async def look(client: Client, catalog: Catalog) -> View:
    reader = PodReader(catalog)
    nodes: dict[str, Node] = {}
    pods: dict[str, PodView] = {}
    async for page in client.pages("/api/v1/nodes"):
        nodes |= {node.metadata.name: node for node in map(node_decoder.decode, page.items)}
    async for page in client.pages("/api/v1/pods"):
        for raw in page.items:
            fact = reader.decode(raw)
            if isinstance(fact, PodSeen):
                pods[f"{fact.namespace}/{fact.name}"] = PodView(orjson.loads(bytes(raw)), fact)
    return View(catalog, nodes, pods)
