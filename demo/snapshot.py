"""A snapshot of the demo's cluster: its nodes and pods, read from the API server with accelshare's own readers.

Belongs here: listing nodes and pods, and the ledger that follows from them. Never: the extender's state.
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
class PodSnapshot:
    """A pod that asks for cards: its object, and the ledger's fact of it."""

    object: dict[str, Any]
    fact: PodSeen


@dataclass(frozen=True, slots=True)
class DemoSnapshot:
    catalog: Catalog
    nodes: dict[str, Node]
    pods: dict[str, PodSnapshot]  # by namespace/name

    def ledger(self) -> Ledger:
        """A ledger of exactly these nodes and pods."""
        ledger, reader = Ledger(), NodeReader(self.catalog)
        for node in self.nodes.values():
            ledger.apply(reader.fact(node))
        for pod in self.pods.values():
            ledger.apply(pod.fact)
        return ledger


async def take_snapshot(client: Client, catalog: Catalog) -> DemoSnapshot:
    reader = PodReader(catalog)
    nodes: dict[str, Node] = {}
    pods: dict[str, PodSnapshot] = {}
    async for page in client.pages("/api/v1/nodes"):
        nodes |= {node.metadata.name: node for node in map(node_decoder.decode, page.items)}
    async for page in client.pages("/api/v1/pods"):
        for raw in page.items:
            fact = reader.decode(raw)
            if isinstance(fact, PodSeen):
                pods[f"{fact.namespace}/{fact.name}"] = PodSnapshot(orjson.loads(bytes(raw)), fact)
    return DemoSnapshot(catalog, nodes, pods)
