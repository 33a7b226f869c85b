"""What `accelshare explain` says about one pod, for the page.

Belongs here: reading what an explanation needs, and running it beside the event loop. Never: the reasons (report/explain.py).
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from accelshare.dashboard.cluster_watch import NOT_ENDED, ClusterWatch
from accelshare.inspect_cli.explain_objects import ConstraintReader, read
from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import Forbidden, NotFound
from accelshare.ledger.facts import Fact
from accelshare.ledger.ledger import CannotHoldError, Ledger
from accelshare.ledger.nouns import Assignment
from accelshare.ledger.placing import Policy
from accelshare.report.cluster_state import ClusterState, NodeConstraints
from accelshare.report.explain import Explanation, explain
from accelshare.vendors.catalog import Catalog
from accelshare.wire.decoding import UnreadableError
from accelshare.wire.pods import PodReader

MOST_WAITING: Final = 8  # readers whose explanation has not begun
# Every pod of the cluster is read for these, so clicks in a row share them.
CONSTRAINTS_S: Final = 15.0
PODS_A_PAGE: Final = 100  # so that reading a page does not delay kube-scheduler's requests
MOST_NODES: Final = 20  # as `explain` shows


class TooManyError(Exception):
    """Too many readers wait for an explanation."""


class Explanations:
    """One at a time, in a thread: it compares the pod with every node, which takes seconds in a large cluster."""

    def __init__(self, client: Client, watch: ClusterWatch, catalog: Catalog, reader: PodReader) -> None:
        self._client = client
        self._watch = watch
        self._catalog = catalog
        self._reader = reader
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._constraints: Mapping[str, NodeConstraints] = {}
        self._constraints_at = -CONSTRAINTS_S

    async def explain(self, namespace: str, name: str) -> Explanation | None:
        """None: there is no such pod. Raises TooManyError and KubeError."""
        if self._waiting >= MOST_WAITING:
            raise TooManyError
        self._waiting += 1
        try:
            async with self._turn:
                return await self._explain(namespace, name)
        finally:
            self._waiting -= 1

    async def _explain(self, namespace: str, name: str) -> Explanation | None:
        try:
            raw = await self._client.request("GET", paths.pod(namespace, name))
            seen, details = read(raw, self._reader)
        except (NotFound, ValueError, UnreadableError):
            return None
        if seen is not None and not seen.node and not seen.ended:
            await self._read_constraints()
        # The ledger changes while the thread runs, so the thread gets a copy.
        copy = _LedgerCopy.of(self._watch.ledger)
        inventories, labels, constraints = self._watch.inventories, self._watch.labels, self._constraints

        def compute() -> Explanation:
            ledger = copy.ledger()
            pod = seen
            if pod is not None and not pod.ended:
                ledger.apply(pod)
                known = ledger.pod(pod.uid)
                # A bound pod keeps the cards that the ledger counts, whatever its record says now.
                pod = known.seen if known is not None else pod
            return explain(ClusterState(ledger, self._catalog, inventories, labels, constraints), pod, details)

        return await asyncio.to_thread(compute)

    async def _read_constraints(self) -> None:
        if time.monotonic() - self._constraints_at < CONSTRAINTS_S:
            return
        reader = ConstraintReader()
        for path, params, keep in (("/api/v1/nodes", {}, reader.node), ("/api/v1/pods", NOT_ENDED, reader.pod)):
            try:
                async for page in self._client.pages(path, params=params, limit=PODS_A_PAGE):
                    _keep_all(page.items, keep)
                    await asyncio.sleep(0)
            except Forbidden:
                return  # who may read only the pods of a namespace learns nothing about CPU and memory of nodes
        self._constraints, self._constraints_at = reader.by_node(), time.monotonic()


def _keep_all(items: Iterable[msgspec.Raw], keep: Callable[[msgspec.Raw], None]) -> None:
    for raw in items:
        try:
            keep(raw)
        except UnreadableError:
            pass  # the watch reports it


@dataclass(frozen=True, slots=True)
class _LedgerCopy:
    """What makes another ledger equal to this one. Facts never change, so taking it is fast."""

    policy: Policy
    facts: Sequence[Fact]
    holds: Sequence[tuple[str, Assignment]]
    flags: Mapping[str, tuple[bool, bool]]  # node → whether its agent is away, and whether kubelet rejects pods

    @classmethod
    def of(cls, ledger: Ledger) -> "_LedgerCopy":
        holds = [(pod.seen.uid, pod.hold) for pod in ledger.pods() if pod.hold is not None]
        flags = {node.name: (node.away, node.rejecting) for node in ledger.nodes() if node.away or node.rejecting}
        return cls(ledger.policy, list(ledger.facts()), holds, flags)

    def ledger(self) -> Ledger:
        ledger = Ledger(self.policy)
        for fact in self.facts:
            ledger.apply(fact)
        for uid, assignment in self.holds:
            try:
                ledger.hold(uid, assignment)
            except CannotHoldError:
                pass  # the node would offer other cards by now; the pod counts as waiting here
        for name, (away, rejecting) in self.flags.items():
            node = ledger.node(name)
            if node is not None:
                node.away, node.rejecting = away, rejecting
        return ledger
