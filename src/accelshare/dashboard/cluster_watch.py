"""Watches the cluster for the dashboard: nodes with their inventories, pods, quotas.

Belongs here: the watches, and what the last objects say beside the ledger. Never: a write, counting, showing.

In the extender the ledger is the extender's own and its feed keeps it current; then pods are not watched a second time.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from accelshare.kube.client import Client
from accelshare.kube.watch import Change, Gone, Interrupted, Malformed, Reflector, Seen, Synced
from accelshare.ledger.facts import AgentSeen, NodeGone, NodeSeen, PodGone, PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.placing import Policy
from accelshare.report.units import Inventories
from accelshare.vendors.catalog import Catalog
from accelshare.wire import inventory
from accelshare.wire.decoding import UnreadableError
from accelshare.wire.nodes import NodeReader
from accelshare.wire.objects import node_decoder
from accelshare.wire.pods import PodReader
from accelshare.wire.quotas import Quota, QuotaReader, QuotaRow

log = logging.getLogger(__name__)
T = TypeVar("T")
# Pods that have ended hold nothing, so the API server does not send them.
NOT_ENDED: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
LONGEST_PROBLEM: Final = 300
RESTART_S: Final = 1.0


class _HistoryWentBackError(Exception):
    """The API server's versions are older than before: only a new ledger can be right."""


class WatchedNode(msgspec.Struct, frozen=True):
    """A node as the ledger reads it, and what the ledger does not need."""

    fact: NodeSeen
    labels: Mapping[str, str]
    inventory: Mapping[str, inventory.KindEntry]


class ClusterWatch:
    """`run` follows the cluster until it is cancelled. Read the rest at any time in between."""

    def __init__(
        self,
        client: Client,
        catalog: Catalog,
        reader: PodReader,
        *,
        ledger: Ledger | None = None,
        policy: Policy | None = None,
        namespace: str = "",
    ) -> None:
        """`ledger`: another part keeps it current, and pods are not watched here. `namespace`: count only its pods."""
        assert (ledger is None) != (policy is None), "a ledger of its own needs a policy"
        self._client = client
        self._catalog = catalog
        self._reader = reader
        self._policy = policy
        self._namespace = namespace
        self.ledger = Ledger() if ledger is None else ledger
        self._changes = 0
        self.complete = asyncio.Event()  # set while everything that is watched here was listed once
        self._start_again()

    def _start_again(self) -> None:
        if self._policy is not None:
            self.ledger = Ledger(self._policy)
        self._nodes: dict[str, WatchedNode] = {}
        self._quotas: dict[str, Quota] = {}
        self._versions: dict[str, int] = {}
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._problems: dict[str, str] = {}  # the last one of each watch
        self._changes += 1
        self.complete.clear()

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.TaskGroup() as watches:
                    watches.create_task(self._follow("nodes", self._node_reflector(), self._node_changed))
                    watches.create_task(self._follow("resourcequotas", self._quota_reflector(), self._quota_changed))
                    if self._policy is not None:
                        watches.create_task(self._follow("pods", self._pod_reflector(), self._pod_changed))
            except* Exception as group:
                # New watches do not know which objects the old ones had seen, so everything is read again.
                log.warning("dashboard watch outcome=restarted problem=%r", str(group.exceptions[0]))
                self._start_again()
                await asyncio.sleep(RESTART_S)

    # What is known beside the ledger.

    @property
    def inventories(self) -> Inventories:
        return {name: node.inventory for name, node in self._nodes.items()}

    @property
    def labels(self) -> Mapping[str, Mapping[str, str]]:
        return {name: node.labels for name, node in self._nodes.items()}

    @property
    def quotas(self) -> list[QuotaRow]:
        return [row for quota in self._quotas.values() for row in quota.rows]

    @property
    def interrupted(self) -> Mapping[str, str]:
        """What cannot be watched at the moment, and why; what was seen before stays valid."""
        return {what: problem for what, problem in self._problems.items() if not self._reflectors[what].watching}

    @property
    def version(self) -> tuple[int, frozenset[str]]:
        """Differs after every change that was seen here."""
        return self._changes, frozenset(self.interrupted)

    # Watches.

    def _node_reflector(self) -> Reflector[WatchedNode]:
        read = NodeReader(self._catalog).fact

        def decode(raw: msgspec.Raw) -> WatchedNode:
            node = node_decoder.decode(raw)
            text = (node.metadata.annotations or {}).get(inventory.KEY)
            return WatchedNode(read(node), node.metadata.labels or {}, _entries(text) if text is not None else {})

        return Reflector(self._client, "/api/v1/nodes", decode=decode, identity=lambda node: node.fact.name, identified_by="name")

    def _pod_reflector(self) -> Reflector[PodSeen | AgentSeen]:
        path = f"/api/v1/namespaces/{self._namespace}/pods" if self._namespace else "/api/v1/pods"
        return Reflector(self._client, path, decode=self._reader.decode, identity=lambda pod: pod.uid, params=NOT_ENDED)

    def _quota_reflector(self) -> Reflector[Quota]:
        where = f"namespaces/{self._namespace}/resourcequotas" if self._namespace else "resourcequotas"
        decode = QuotaReader(self._catalog).decode
        return Reflector(self._client, f"/api/v1/{where}", decode=decode, identity=lambda quota: quota.uid)

    async def _follow(self, what: str, reflector: Reflector[T], changed: Callable[[Change[T]], None]) -> None:
        self._reflectors[what] = reflector
        async for change in reflector.changes():
            match change:
                case Synced(version):
                    self._listed(what, version)
                case Malformed(name, problem):
                    log.warning("dashboard unreadable what=%s name=%s problem=%r", what, name, problem)
                case Interrupted(problem, _):
                    self._problems[what] = problem[:LONGEST_PROBLEM]
                    self._changes += 1
                case _:
                    self._changes += 1
                    changed(change)

    def _listed(self, what: str, version: int) -> None:
        if version < self._versions.get(what, 0):
            raise _HistoryWentBackError(f"{what} are listed at version {version}, before that at {self._versions[what]}")
        self._versions[what] = version
        self._problems.pop(what, None)
        self._changes += 1
        # A user who may not read quotas sees all the rest.
        needed = {"nodes", "pods"} if self._policy is not None else {"nodes"}
        if needed <= self._versions.keys():
            self.complete.set()

    def _node_changed(self, change: Change[WatchedNode]) -> None:
        match change:
            case Seen(node):
                self._nodes[node.fact.name] = node
                if self._policy is not None:
                    self.ledger.apply(node.fact)
            case Gone(name, version):
                self._nodes.pop(name, None)
                if self._policy is not None:
                    self.ledger.apply(NodeGone(name, version))

    def _pod_changed(self, change: Change[PodSeen | AgentSeen]) -> None:
        match change:
            case Seen(pod):
                self.ledger.apply(pod)
            case Gone(uid, version):
                self.ledger.apply(PodGone(uid, version))

    def _quota_changed(self, change: Change[Quota]) -> None:
        match change:
            case Seen(quota):
                self._quotas[quota.uid] = quota
            case Gone(uid, _):
                self._quotas.pop(uid, None)


def _entries(text: str) -> dict[str, inventory.KindEntry]:
    try:
        return inventory.entries_of(text)
    except UnreadableError:
        return {}  # the node's problems report it already
