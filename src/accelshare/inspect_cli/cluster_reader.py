"""Reads the cluster as it is now: nodes and pods from the API server into one ledger.

Belongs here: the requests, and the ledger made of the answers. Never: a write; error messages (error_messages.py).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from accelshare import __version__
from accelshare.kube import config, paths
from accelshare.kube.errors import NotFound
from accelshare.kube.sync_client import SyncClient
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.placing import DEFAULT, Policy
from accelshare.report.units import Inventories
from accelshare.vendors.catalog import Catalog
from accelshare.wire import inventory
from accelshare.wire.decoding import Decoder, UnreadableError
from accelshare.wire.nodes import NodeReader
from accelshare.wire.objects import Metadata, node_decoder
from accelshare.wire.pods import PodReader

if TYPE_CHECKING:
    from accelshare.inspect_cli.explain_objects import ConstraintReader

MOST_NAMED = 3  # nodes in a message
LONGEST_KIND = 63  # characters of a name that a node wrote
PROFILES_CONFIGMAP = "accelshare-profiles"
# Pods that have ended hold nothing, so the API server does not send them.
NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"


class ClusterConnection(NamedTuple):
    """A client for a cluster, and the namespace of its context."""

    client: SyncClient
    namespace: str


class ClusterSnapshot(NamedTuple):
    """The ledger, the nodes' inventories and labels, and messages about what could not be read."""

    ledger: Ledger
    inventories: Inventories
    labels: Mapping[str, Mapping[str, str]]
    problems: tuple[str, ...]


class _Named(msgspec.Struct):
    metadata: Metadata


decode_named = Decoder(_Named).decode


@contextmanager
def connect(kubeconfig: Path | None, context: str | None, *, timeout_s: float = 30.0) -> Iterator[ClusterConnection]:
    """A connection to the cluster that kubectl would use."""
    cluster = config.load(kubeconfig, context=context)
    with SyncClient(cluster, user_agent=f"accelshare-inspect/{__version__}", timeout_s=timeout_s) as client:
        yield ClusterConnection(client, cluster.namespace)


def names(client: SyncClient, path: str) -> list[str]:
    """The names in a list."""
    return [decode_named(raw).metadata.name for raw in client.items(path)]


class Reader:
    """Reads one part of a cluster, as often as it is called."""

    def __init__(
        self,
        client: SyncClient,
        catalog: Catalog,
        reader: PodReader,
        *,
        node: str = "",
        namespace: str = "",
        policy: Policy = DEFAULT,
        constraints: "ConstraintReader | None" = None,
    ) -> None:
        """`node`: read only this node and its pods. `namespace`: read only its pods. `constraints` gets every object too."""
        self._client = client
        self._node = node
        self._pods_path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        self._policy = policy
        self._constraints = constraints
        self._catalog = catalog
        self._read_node = NodeReader(catalog).fact
        self._read_pod = reader.decode

    def read(self) -> ClusterSnapshot:
        ledger = Ledger(self._policy)
        inventories: dict[str, dict[str, inventory.KindEntry]] = {}
        labels: dict[str, Mapping[str, str]] = {}
        problems: list[str] = []
        for raw in self._nodes():
            try:
                node = node_decoder.decode(raw)
                if self._constraints is not None:
                    self._constraints.node(raw)
            except UnreadableError as error:
                problems.append(f"a node cannot be read: {error}")
                continue
            ledger.apply(self._read_node(node))
            labels[node.metadata.name] = node.metadata.labels or {}
            text = (node.metadata.annotations or {}).get(inventory.KEY)
            if text is not None:
                inventories[node.metadata.name] = _entries(text)
        problems += unknown_kinds(inventories, self._catalog)
        for raw in self._pods():
            try:
                fact = self._read_pod(raw)
                if self._constraints is not None:
                    self._constraints.pod(raw)
            except UnreadableError as error:
                problems.append(f"a pod cannot be read: {error}")
                continue
            if fact is not None:
                ledger.apply(fact)
        return ClusterSnapshot(ledger, inventories, labels, tuple(problems))

    def _nodes(self) -> Iterator[msgspec.Raw | bytes]:
        if self._node:
            yield self._client.get(_node_path(self._node))
        else:
            yield from self._client.items("/api/v1/nodes")

    def _pods(self) -> Iterator[msgspec.Raw]:
        where = f",spec.nodeName={self._node}" if self._node else ""
        return self._client.items(self._pods_path, {"fieldSelector": NOT_ENDED + where})


def unknown_kinds(inventories: Inventories, catalog: Catalog) -> Iterator[str]:
    """A message for each kind of card that nodes have and no profile describes: its cards and pods are not shown."""
    nodes: dict[str, list[str]] = {}
    for node, entries in inventories.items():
        for kind in entries:
            if kind not in catalog:
                nodes.setdefault(kind, []).append(node)
    for kind, having in sorted(nodes.items()):
        more = f" and {len(having) - MOST_NAMED} more" if len(having) > MOST_NAMED else ""
        where = f"{', '.join(sorted(having)[:MOST_NAMED])}{more}"
        yield (
            f"no profile {kind[:LONGEST_KIND]} is known here; its cards on {where} are not shown. Give the directory of "
            f"the profile with --profiles or ACCELSHARE_PROFILES; profiles of the chart are in the ConfigMap {PROFILES_CONFIGMAP}"
        )


def _node_path(name: str) -> str:
    try:
        return paths.node(name)
    except ValueError as error:
        # There is no object of an impossible name.
        raise NotFound(404, "NotFound", str(error)) from error


def _entries(text: str) -> dict[str, inventory.KindEntry]:
    try:
        return inventory.entries_of(text)
    except UnreadableError:
        return {}  # the node's problems report it already
