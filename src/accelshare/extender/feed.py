"""Keeps the ledger current: watches nodes and pods and applies every change.

Belongs here: applying facts, knowing when both lists are complete, Events on pods whose request or record is wrong.
Never: deciding, HTTP.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from accelshare.extender.admissions import Admissions
from accelshare.extender.binder import card_names
from accelshare.extender.metrics import Metrics
from accelshare.extender.promises.plan import Plan
from accelshare.extender.promises.plan_feed import PlanFeed, ShownNode, ShownPod
from accelshare.extender.resizer import Resizer
from accelshare.kube.client import Client
from accelshare.kube.events import Events, PodRef
from accelshare.kube.watch import BinaryLists, Change, Gone, Interrupted, Malformed, Reflector, Seen, Synced
from accelshare.ledger.facts import AgentSeen, Fact, NodeGone, NodeSeen, PodGone, PodSeen
from accelshare.ledger.ledger import Ledger, LedgerPod, cards_of
from accelshare.ledger.nouns import Slice
from accelshare.ledger.refusals import Refusal
from accelshare.vendors.catalog import Catalog
from accelshare.wire import protobuf
from accelshare.wire.listed_pods import ListedPodReader
from accelshare.wire.nodes import NodeReader
from accelshare.wire.pods import PodReader

log = logging.getLogger(__name__)
T = TypeVar("T")
MAX_PROBLEM_LENGTH: Final = 1_000  # characters of a node's problems in the log
# Pods and nodes come by two watches: we may see a corrected record on its pod before we see it on its node.
CORRECTION_S: Final = 5.0


class HistoryWentBackError(Exception):
    """The API server's versions are older than before (a restored etcd): only a new ledger can be right."""


class Feed:
    """`run` ends only when it is cancelled, or with an error when a new process is needed."""

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        catalog: Catalog,
        reader: PodReader,
        events: Events,
        metrics: Metrics,
        *,
        text: Callable[[Refusal], str],
        on_free_capacity: Callable[[str], None],
        admissions: Admissions | None = None,
        resizer: Resizer | None = None,
        may_write: Callable[[], bool] = lambda: True,
        plan: Plan | None = None,
        on_plan_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_free_capacity` is called with each node on which something may have become free.

        `may_write`: whether this extender records Events now. `plan`: it is kept current, too; `on_plan_change` is called after
        each of its changes.
        """
        self._resizer = resizer or Resizer(client, ledger, catalog, events, metrics, enabled=False)
        self._ledger = ledger
        self._events = events
        self._metrics = metrics
        self._text = text
        self._on_free_capacity = on_free_capacity
        self._admissions = admissions or Admissions(ledger, on_free_capacity=on_free_capacity)
        self._may_write = may_write
        nodes = NodeReader(catalog, resizes=self._resizer.enabled)
        self._plan_feed = PlanFeed(plan, reader, nodes, on_change=on_plan_change) if plan is not None else None
        planned = self._plan_feed
        # The plan needs kube-scheduler's rules, which the messages in protobuf do not have.
        self._nodes: Reflector[NodeSeen | ShownNode] = Reflector(
            client,
            "/api/v1/nodes",
            decode=nodes.decode if planned is None else planned.read_node,
            identity=lambda node: node.name,
            identified_by="name",
            binary=BinaryLists(protobuf.NODES, lambda message: nodes.fact(protobuf.node_of(message)))
            if planned is None
            else None,
        )
        self._pods: Reflector[PodSeen | AgentSeen | ShownPod] = Reflector(
            client,
            "/api/v1/pods",
            decode=reader.decode if planned is None else planned.read_pod,
            identity=lambda pod: pod.uid,
            binary=BinaryLists(protobuf.PODS, ListedPodReader(reader).read) if planned is None else None,
        )
        metrics.watches("nodes", self._nodes)
        metrics.watches("pods", self._pods)
        self._synced: dict[str, int] = {}
        self._newest: dict[str, int] = {}  # newest version of any fact; the ledger ignores an older fact about the same object
        self._node_problems: dict[str, tuple[str, ...]] = {}  # by node, as they were logged
        self._suspect_records: dict[str, asyncio.TimerHandle] = {}  # by uid: records that may be rewritten, to be checked soon
        self._event_tasks: set[asyncio.Task[bool]] = set()
        self.complete = asyncio.Event()

    @property
    def waiting_for(self) -> list[str]:
        """What has not been listed yet; an empty list means that the ledger is complete."""
        return [what for what in ("nodes", "pods") if what not in self._synced]

    @property
    def newest(self) -> int:
        """The version up to which the ledger has every change of a pod."""
        return self._pods.newest

    async def wait_for_version(self, version: int, *, after: int = 0) -> None:
        """Wait until the ledger has every change of a pod up to this version, which must be one of a pod.

        `after`: `newest` before this version was written.
        """
        if version < after:
            raise HistoryWentBackError(f"the API server wrote a pod at version {version}, and before that was at {after}")
        if await self._pods.wait_for_version(version):
            self._nodes.reopen("the watch of pods stood still")

    def report_pending(self) -> None:
        """Record the Events of pending pods that were seen while this extender wrote none."""
        for pod in [pod.seen for pod in self._ledger.pods() if not pod.seen.node]:
            if pod.refusal is not None:
                self._record_event(pod, "BadAcceleratorRequest", self._text(pod.refusal))

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._follow("nodes", self._nodes, self._node_changed))
                both.create_task(self._follow("pods", self._pods, self._pod_changed))
        except ExceptionGroup as group:
            # The first error ends both.
            raise group.exceptions[0] from group
        finally:
            for timer in self._suspect_records.values():
                timer.cancel()

    async def _follow(self, what: str, reflector: Reflector[T], changed: Callable[[Change[T]], None]) -> None:
        async for change in reflector.changes():
            match change:
                case Seen() | Gone():
                    changed(change)
                case Synced(version):
                    self._listed(what, version)
                case Malformed(name, problem):
                    log.warning("unreadable what=%s name=%s problem=%r", what, name, problem)
                    self._metrics.malformed.labels(what).inc()
                case Interrupted(problem, retry_in_s):
                    log.warning("interrupted what=%s retry_in_s=%.1f problem=%r", what, retry_in_s, problem)
                    self._metrics.interruptions.labels(what).inc()

    def _listed(self, what: str, version: int) -> None:
        newest = max(self._synced.get(what, 0), self._newest.get(what, 0))
        if version < newest:
            raise HistoryWentBackError(f"the API server listed {what} at version {version}, and before that was at {newest}")
        self._synced[what] = version
        if what == "pods":
            self._remove_unlisted(version)
        log.info("listed what=%s version=%d", what, version)
        if not self.waiting_for:
            self.complete.set()

    def _remove_unlisted(self, version: int) -> None:
        """A bind may read a pod that the watch has not shown yet. If it is deleted before the next list, no watch event comes."""
        for pod in [pod.seen for pod in self._ledger.pods() if not self._pods.knows(pod.seen.uid)]:
            if 0 < pod.version <= version:
                self._apply(PodGone(pod.uid, version))

    def _node_changed(self, change: Change[NodeSeen | ShownNode]) -> None:
        match change:
            case Seen(NodeSeen() as node):
                self._node_seen(node)
            case Seen(ShownNode(_, node, rules)):
                self._node_seen(node)
                if rules is not None and self._plan_feed is not None:
                    self._plan_feed.node_seen(rules)
            case Gone(name, version):
                self._note("nodes", version)
                self._node_problems.pop(name, None)
                self._apply(NodeGone(name, version))
                if self._plan_feed is not None:
                    self._plan_feed.node_gone(name)

    def _node_seen(self, node: NodeSeen) -> None:
        self._note("nodes", node.version)
        self._apply(node)
        self._report_problems(node)
        self._resizer.node_seen(node.name)

    def _pod_changed(self, change: Change[PodSeen | AgentSeen | ShownPod]) -> None:
        match change:
            case Seen(PodSeen() as pod):
                self._pod_seen(pod)
            case Seen(AgentSeen() as agent):
                self._note("pods", agent.version)
                self._apply(agent)
            case Seen(ShownPod(uid, fact, rules)):
                if fact is not None:
                    self._pod_changed(Seen(fact))
                elif self._ledger.knows(uid) and rules is not None:  # an agent's pod that has lost its label
                    self._apply(PodGone(uid, rules.version))
                if rules is not None and self._plan_feed is not None:
                    self._plan_feed.pod_seen(rules, listed=self._pods.listing)
            case Gone(uid, version):
                self._note("pods", version)
                if self._plan_feed is None:
                    self._apply(PodGone(uid, version))
                    return
                if self._ledger.knows(uid):  # most pods have no cards
                    self._apply(PodGone(uid, version))
                self._plan_feed.pod_gone(uid)

    def _pod_seen(self, pod: PodSeen) -> None:
        self._note("pods", pod.version)
        if pod.node:
            self._metrics.bind_latency.seen(pod.uid)
        known = self._ledger.pod(pod.uid)
        before = known.latest.slices if known is not None and known.latest.node else None
        self._apply(pod)
        if pod.refusal is not None and not pod.node:
            self._record_event(pod, "BadAcceleratorRequest", self._text(pod.refusal))
        elif pod.problems and not pod.ended:
            self._record_event(pod, "AcceleratorRecordUnreadable", "; ".join(pod.problems))
        if known is not None:  # a record that was there when we first saw the pod was not changed since
            self._check_record(pod, before=before)
        self._resizer.pod_seen(pod.uid)

    def _report_problems(self, node: NodeSeen) -> None:
        """One line for each node, and only when its problems have changed."""
        if node.problems == self._node_problems.get(node.name, ()):
            return
        self._node_problems[node.name] = node.problems
        if not node.problems:
            del self._node_problems[node.name]
        log.warning("unreadable what=nodes name=%s problem=%r", node.name, "; ".join(node.problems)[:MAX_PROBLEM_LENGTH])

    def _check_record(self, pod: PodSeen, *, before: tuple[Slice, ...] | None) -> None:
        """Check again later a bound pod whose record names other cards than it has.

        Its node may have corrected the record, in an update of the Node that we have not seen yet. If not, another user did.
        """
        known = self._ledger.pod(pod.uid)
        if known is None or not known.rewritten or pod.slices == before or pod.uid in self._suspect_records:
            return
        loop = asyncio.get_running_loop()
        self._suspect_records[pod.uid] = loop.call_later(CORRECTION_S, self._confirm_rewrite, known, pod.slices)

    def _confirm_rewrite(self, known: LedgerPod, claimed: tuple[Slice, ...]) -> None:
        pod = known.seen
        del self._suspect_records[pod.uid]
        if cards_of(pod.slices) == cards_of(claimed):
            return
        self._metrics.record_rewrites.inc()
        cards, record = card_names(pod.slices), card_names(claimed) or "none"
        log.warning("record pod=%s/%s cards=%s claimed=%s outcome=rewritten", pod.namespace, pod.name, cards, record)
        message = f"another user changed the record of this pod's cards to {record}; the pod stays counted on"
        self._record_event(pod, "AcceleratorRecordRewritten", f"{message} {cards or 'an unknown card'}")

    def _note(self, what: str, version: int) -> None:
        if version > self._newest.get(what, 0):
            self._newest[what] = version

    def _apply(self, fact: Fact) -> None:
        freed = self._ledger.apply(fact)
        self._admissions.seen(fact)
        if isinstance(fact, PodGone):
            self._resizer.pod_gone(fact.uid)
        if freed:
            self._on_free_capacity(freed)

    def _record_event(self, pod: PodSeen, reason: str, message: str) -> None:
        if not self._may_write():
            return
        ref = PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        task = asyncio.ensure_future(self._events.record(ref, kind="Warning", reason=reason, message=message))
        self._event_tasks.add(task)
        task.add_done_callback(self._event_tasks.discard)
