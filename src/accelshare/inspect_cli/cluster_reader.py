"""Reads the cluster as it is now: nodes and pods from the API server into one ledger.

Belongs here: the requests, and the ledger made of the answers. Never: a write; error messages (error_messages.py).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from accelshare import __version__
from accelshare.kube import config, paths
from accelshare.kube.errors import KubeError, NotFound
from accelshare.kube.sync_client import SyncClient
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.placing import DEFAULT, Policy
from accelshare.report.units import Inventories
from accelshare.vendors.catalog import Catalog
from accelshare.wire import inventory
from accelshare.wire.decoding import Decoder, UnreadableError
from accelshare.wire.nodes import NodeReader
from accelshare.wire.objects import Metadata, Node, node_decoder
from accelshare.wire.pods import PodReader

if TYPE_CHECKING:
    from accelshare.inspect_cli.cluster_profiles import ClusterProfiles
    from accelshare.inspect_cli.explain_objects import ConstraintReader
    from accelshare.report.cluster_state import ClusterState
    from accelshare.report.waiting import WaitingPod

MOST_NAMED = 3  # nodes in a message
LONGEST_KIND = 63  # characters of a name that a node wrote
# Pods that have ended hold nothing, so the API server does not send them.
NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"


class ClusterConnection(NamedTuple):
    """A client for a cluster, and the namespace of its context."""

    client: SyncClient
    namespace: str


class ClusterSnapshot(NamedTuple):
    """The ledger, the profiles it was read with, the nodes' inventories and labels, and messages about what could not be read."""

    ledger: Ledger
    catalog: Catalog
    inventories: Inventories
    labels: Mapping[str, Mapping[str, str]]
    problems: tuple[str, ...]
    constraints: "ConstraintReader | None" = None  # what kube-scheduler looks at besides cards, if it was read

    def state(self) -> "ClusterState":
        """For explanations and for the list of waiting pods."""
        from accelshare.report.cluster_state import ClusterState

        by_node = self.constraints.by_node() if self.constraints is not None else {}
        return ClusterState(self.ledger, self.catalog, self.inventories, self.labels, by_node)

    def waiting_pods(self) -> "list[WaitingPod]":
        """The pods that wait for cards, each with its reason."""
        from accelshare.report.waiting import waiting_pods

        return waiting_pods(self.state(), self.constraints.waiting if self.constraints is not None else None)


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


def require_namespace(client: SyncClient, name: str) -> None:
    """Raise an error for people if there is no such namespace. Who may not read namespaces gets none."""
    try:
        client.get(paths.namespace(name))
    except NotFound:
        from accelshare.inspect_cli.error_messages import unknown

        try:
            known = names(client, "/api/v1/namespaces")
        except KubeError:
            known = []
        unknown("namespace", name, known)
    except KubeError:
        return


class ClusterReader:
    """Reads one part of a cluster, as often as it is called."""

    def __init__(
        self,
        client: SyncClient,
        profiles: "ClusterProfiles",
        pod_reader: Callable[[Catalog], PodReader] = PodReader,
        *,
        node: str = "",
        namespace: str = "",
        policy: Policy = DEFAULT,
        constraints: "Callable[[], ConstraintReader] | None" = None,
    ) -> None:
        """`node`: read only this node and its pods. `namespace`: read only its pods. `constraints`: it gets every object too."""
        self._client = client
        self._profiles = profiles
        self._pod_reader = pod_reader
        self._node = node
        self._pods_path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        self._policy = policy
        self._constraints = constraints

    def read(self) -> ClusterSnapshot:
        ledger = Ledger(self._policy)
        inventories: dict[str, dict[str, inventory.KindEntry]] = {}
        nodes: list[Node] = []
        problems: list[str] = []
        constraints = self._constraints() if self._constraints is not None else None
        for raw in self._nodes():
            try:
                node = node_decoder.decode(raw)
                if constraints is not None:
                    constraints.node(raw)
            except UnreadableError as error:
                problems.append(f"a node cannot be read: {error}")
                continue
            nodes.append(node)
            text = (node.metadata.annotations or {}).get(inventory.KEY)
            if text is not None:
                inventories[node.metadata.name] = _entries(text)
        catalog = self._catalog(inventories)
        read_node, read_pod = NodeReader(catalog).fact, self._pod_reader(catalog).decode
        for node in nodes:
            ledger.apply(read_node(node))
        problems += [*self._profiles.problems, *unknown_kinds(inventories, catalog, self._profiles.failure)]
        for raw in self._pods():
            try:
                fact = read_pod(raw)
                if constraints is not None:
                    constraints.pod(raw)
            except UnreadableError as error:
                problems.append(f"a pod cannot be read: {error}")
                continue
            if fact is not None:
                ledger.apply(fact)
        labels = {node.metadata.name: node.metadata.labels or {} for node in nodes}
        return ClusterSnapshot(ledger, catalog, inventories, labels, tuple(problems), constraints)

    def _catalog(self, inventories: Inventories) -> Catalog:
        """The profiles of every kind that nodes have, as far as they can be learnt."""
        unknown = nodes_by_unknown_kind(inventories, self._profiles.catalog)
        if unknown:
            self._profiles.seek(unknown, {node for having in unknown.values() for node in having})
        return self._profiles.catalog

    def _nodes(self) -> Iterator[msgspec.Raw | bytes]:
        if self._node:
            yield self._client.get(_node_path(self._node))
        else:
            yield from self._client.items("/api/v1/nodes")

    def _pods(self) -> Iterator[msgspec.Raw]:
        where = f",spec.nodeName={self._node}" if self._node else ""
        return self._client.items(self._pods_path, {"fieldSelector": NOT_ENDED + where})


def nodes_by_unknown_kind(inventories: Inventories, catalog: Catalog) -> dict[str, list[str]]:
    """The kinds of cards that nodes have and no profile describes, each with its nodes."""
    nodes: dict[str, list[str]] = {}
    for node, entries in inventories.items():
        for kind in entries:
            if kind not in catalog:
                nodes.setdefault(kind, []).append(node)
    return nodes


def unknown_kinds(inventories: Inventories, catalog: Catalog, failure: str = "") -> Iterator[str]:
    """A message for each kind without a profile, whose cards are not shown. `failure`: why the cluster gave no profile."""
    why = f"{failure[:1].upper()}{failure[1:]}. " if failure else ""
    for kind, having in sorted(nodes_by_unknown_kind(inventories, catalog).items()):
        more = f" and {len(having) - MOST_NAMED} more" if len(having) > MOST_NAMED else ""
        where = f"{', '.join(sorted(having)[:MOST_NAMED])}{more}"
        yield (
            f"no profile {kind[:LONGEST_KIND]} is known here; its cards on {where} are not shown. "
            f"{why}Give the directory of the profile with --profiles or ACCELSHARE_PROFILES"
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
