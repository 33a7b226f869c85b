"""The plan: which waiting pod is promised which node next, and what became of each promise.

Belongs here: choosing pods and nodes, dropping promises that are wrong or old, counting outcomes. Everything is synchronous.
Never: writing nominations (nominator.py), holding cards: a bind decides by the ledger, whatever was promised.
"""

from collections import deque
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import dataclass, replace
from enum import Enum, unique
from itertools import islice
from typing import Final

from accelshare.extender.promises.node_usage import NodeUsage
from accelshare.extender.promises.pending_pods import PendingPods
from accelshare.extender.promises.scheduler_lag import SchedulerLag
from accelshare.extender.promises.unseen import UnseenNominations
from accelshare.extender.promises.wait_credit import WaitCredit
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Assignment, Request
from accelshare.ledger.shadow import Promise, Shadow
from accelshare.wire.scheduler import NodeNames
from accelshare.wire.scheduling import SchedulingNode, SchedulingPod

EXPIRES_S: Final = 60.0  # a promise that kube-scheduler has not used
SERVED_S: Final = 60.0  # since a scheduler's last call, after which its pods are not planned
MOST_PROMISES: Final = 512  # at once: enough for seconds, and few are wrong when the cluster changes
# In a smaller cluster fewer: for each pod that is not nominated, kube-scheduler looks at every node once more with the pods that
# are nominated there.
FEW_PROMISES: Final = 32
NODES_A_PROMISE: Final = 4
MOST_TRIED: Final = 64  # nodes for one pod whose cards would do, and pods in one search for the next one
LONGEST_SEARCH_S: Final = 0.05  # each pod may be one more ranking of all nodes
LONG_COMPARISON_S: Final = 0.02  # of one pod's rules with all nodes: a user can give each of his pods rules of its own
REST: Final = 10  # times as long as a long comparison took
MOST_ENDED: Final = 16  # old promises in one search
MOST_ADOPTED: Final = 4096  # nominations of others that are counted
MOST_ASKED: Final = 50_000  # remembered pods that kube-scheduler has asked for
FEWEST_AHEAD: Final = 2  # pods that kube-scheduler is about to take
AWAITED: Final = 2  # pods that it takes next, for whose nominations filter waits
UNSEEN_S: Final = 1.0  # since a nomination was sent, after which it is not awaited any more
# Half of the promises wasted though kube-scheduler knew of them: a rule that we cannot see is at work. Hardly any kept: it does
# not try nominated nodes, or sees all nominations too late. Planning pauses then, and if filter has waited longer than it saves.
RECENT: Final = 64
SURELY_SEEN_S: Final = 2.0  # after our watch has shown a nomination, kube-scheduler's has, too
FEWEST_KEPT: Final = 8
PAUSE_S: Final = 30.0

KEPT: Final = "kept"
UNUSED: Final = "unused"
LATE: Final = "late"
WITHDRAWN: Final = "withdrawn"
EXPIRED: Final = "expired"
GONE: Final = "gone"
FAILED: Final = "failed"
OUTCOMES: Final = (KEPT, UNUSED, LATE, WITHDRAWN, EXPIRED, GONE, FAILED)


@dataclass(frozen=True, slots=True)
class Nomination:
    """A write of status.nominatedNodeName, valid for this version of the pod only; an empty node removes it."""

    uid: str
    namespace: str
    name: str
    version: int
    node: str


@unique
class _By(Enum):
    """Why kube-scheduler will try this node for the pod."""

    US = "we have nominated it"
    ANOTHER = "another has nominated it"
    FILTER = "filter has named it, and the bind has not come yet"


@dataclass(slots=True)
class _Promised:
    pod: SchedulingPod
    node: str
    at: float
    by: _By
    written: int = 0  # the pod's version with the nomination; 0: not written yet
    called_at: float | None = None  # when kube-scheduler's call for the pod came, which may wait for an answer
    asked: bool = False  # kube-scheduler has asked for the pod since
    used: bool = False  # and for this node alone, as it does for a nominated one
    known: bool = False  # the same, at any time: kube-scheduler has seen the nomination
    shown_at: float | None = None  # when our watch has shown the nomination
    ruled_out: bool = False  # kube-scheduler must have seen it, and has searched all the same


@dataclass(slots=True)
class _Unwanted:
    """A nomination of ours that is to be removed from its pod."""

    node: str
    not_before: float
    pod: SchedulingPod | None  # as it has the nomination; None: that was not seen yet, or it is being removed
    removed_at: int = 0  # the version that the last removal, or the nomination without an answer, was sent for; 0: neither
    known: bool = False  # kube-scheduler has seen it


class Plan:
    def __init__(
        self,
        ledger: Ledger,
        *,
        managed: Container[str],
        shortest_queue: int,
        clock: Callable[[], float],
        count: Callable[[str], None],
        avoid: Callable[[], Container[str]] = lambda: (),
        unseen: UnseenNominations | None = None,
        lag: SchedulerLag | None = None,
        credit: WaitCredit | None = None,
        fewest_ahead: int = FEWEST_AHEAD,
        fewest_nodes: int = 0,
    ) -> None:
        """`managed`: the resources that the ledger counts. `shortest_queue`: plan only if so many pods wait.
        `fewest_nodes`: and only if there are so many nodes.

        `count` is called with the outcome of each promise of ours. `avoid`: nodes that are not promised at the moment.
        `fewest_ahead`: so many pods at the head of the queue are never promised a node.
        """
        self._ledger = ledger
        self._shadow = Shadow(ledger)
        self._usage = NodeUsage(uncounted=managed)
        self._managed = managed
        self._shortest_queue = shortest_queue
        self._clock = clock
        self._count = count
        self._avoid = avoid
        self._queue = PendingPods()
        self._promised: dict[str, _Promised] = {}  # the oldest first
        self._unwanted: dict[str, _Unwanted] = {}
        self._own = 0  # how many of them are ours
        self._waiting: dict[str, SchedulingPod] = {}  # every pod with cards that has no node
        self._answered_scheduler = ""  # the last one
        self._served: dict[str, float] = {}  # scheduler's name → its last call
        self._asked: dict[str, None] = {}  # pods that kube-scheduler has tried, or that had their promise
        self._not_adopted: dict[str, str] = {}  # pods whose nominated node has not been seen yet, with that node
        self._unseen = unseen or UnseenNominations()
        self._lag = lag or SchedulerLag()
        self._credit = credit or WaitCredit()
        self._fewest_ahead = fewest_ahead
        self._fewest_nodes = fewest_nodes
        self._recent: deque[str] = deque(maxlen=RECENT)  # outcomes; of those that kube-scheduler did not know: late
        self._paused_until = float("-inf")
        self._rests_until = float("-inf")  # after a long comparison
        self.pause_reason = ""  # of the last pause

    # What the watches show.

    def node_seen(self, node: SchedulingNode) -> None:
        self._usage.node_seen(node)
        self._check(node.name)
        if self._not_adopted:
            self._adopt_on(node.name)

    def node_gone(self, name: str) -> None:
        self._usage.node_gone(name)
        self._check(name)

    def pod_seen(self, pod: SchedulingPod, *, listed: bool = False) -> None:
        """`listed`: the pod was there before our watch began."""
        if pod.node:
            self._bound(pod)
        elif any(amount and name in self._managed for name, amount in pod.needs):
            self._waits(pod, listed=listed)

    def pod_gone(self, uid: str) -> None:
        self._end(uid, GONE)
        self._forget(uid)
        self._usage.remove(uid)

    def _bound(self, pod: SchedulingPod) -> None:
        promised = self._promised.get(pod.uid)
        if promised is not None:
            self._end(pod.uid, KEPT if promised.used and promised.node == pod.node else UNUSED)
        self._forget(pod.uid)
        self._usage.add(pod.uid, pod.node, pod.needs, pod.ports)
        if promised is None or promised.node != pod.node:
            self._check(pod.node)

    def _waits(self, pod: SchedulingPod, *, listed: bool) -> None:
        self._waiting[pod.uid] = pod
        self._queue.arrived(pod, listed=listed)
        self._update_promise(pod)
        self._update_unwanted(pod)
        if pod.uid in self._promised:
            return
        plannable = not pod.unchecked and not pod.refused and pod.uid not in self._asked and pod.uid not in self._unwanted
        if plannable and not pod.nominated and pod.version:
            self._queue.put(pod, listed=listed)
            return
        self._queue.remove(pod.uid)
        if pod.nominated and pod.uid not in self._unwanted:
            self._adopt(pod)

    def _update_promise(self, pod: SchedulingPod) -> None:
        promised = self._promised.get(pod.uid)
        if promised is None or pod.version < promised.pod.version:
            return
        if promised.by is _By.FILTER:
            if pod.refused and not promised.pod.refused:
                self._end(pod.uid, UNUSED)
            return
        nominated = pod.nominated == promised.node
        if promised.written == 0 and not nominated:
            return  # the nomination is on its way
        if promised.shown_at is None:
            promised.shown_at = self._clock()
            self._unseen.seen(pod.uid, promised.shown_at)
        promised.pod, promised.written = pod, promised.written or pod.version
        if not nominated or pod.refused or pod.unchecked:
            tried = promised.asked or pod.refused
            self._end(pod.uid, GONE if pod.unchecked == "deleted" else UNUSED if tried else WITHDRAWN)

    def _update_unwanted(self, pod: SchedulingPod) -> None:
        unwanted = self._unwanted.get(pod.uid)
        if unwanted is None or (unwanted.pod is not None and pod.version < unwanted.pod.version):
            return
        if pod.nominated != unwanted.node:
            if unwanted.pod is not None or 0 < unwanted.removed_at < pod.version:
                del self._unwanted[pod.uid]
            return
        if unwanted.known and pod.refused and pod.preempts:
            del self._unwanted[pod.uid]  # kube-scheduler has refused the pod and nominates the same node for preemption
            return
        unwanted.pod = pod

    def _adopt(self, pod: SchedulingPod) -> None:
        """Another has nominated a node, such as an extender before us: kube-scheduler will try it first, so it counts."""
        known = self._ledger.pod(pod.uid)
        if known is None or known.place is not None or len(self._promised) >= MOST_ADOPTED:
            return
        node = self._ledger.node(pod.nominated)
        if node is None or node.fact is None:  # after a start, pods may be listed before their nodes
            if len(self._not_adopted) < MOST_ADOPTED:
                self._not_adopted[pod.uid] = pod.nominated
            return
        if isinstance(self._shadow.add(pod.uid, known.seen.request, pod.nominated), Promise):
            self._promised[pod.uid] = _Promised(pod, pod.nominated, self._clock(), _By.ANOTHER, written=pod.version)
            self._usage.add(pod.uid, pod.nominated, pod.needs, pod.ports)

    def _adopt_on(self, node: str) -> None:
        for uid in [uid for uid, nominated in self._not_adopted.items() if nominated == node]:
            del self._not_adopted[uid]
            pod = self._waiting[uid]
            if pod.nominated == node and uid not in self._promised and uid not in self._unwanted:
                self._adopt(pod)

    def _forget(self, uid: str) -> None:
        """The pod waits no longer."""
        self._not_adopted.pop(uid, None)
        self._queue.forget(uid)
        self._waiting.pop(uid, None)
        self._asked.pop(uid, None)
        self._unwanted.pop(uid, None)

    # What kube-scheduler asks.

    def called(self, uid: str, *, alone: bool) -> None:
        """kube-scheduler's call of filter for this pod has come; `alone`: it names one node. The answer may wait (wait_s)."""
        now = self._clock()
        pod = self._waiting.get(uid)
        if self.waiting >= self._shortest_queue and pod is not None and pod.scheduler == self._answered_scheduler:
            self._credit.called(now, nominated=alone, nodes=len(self._usage))
        else:
            self._credit.idle()
        self._queue.remove(uid)
        self._remember_asked(uid)
        promised = self._promised.get(uid)
        if promised is not None and promised.called_at is None:
            promised.called_at = now

    def wait_s(self, uid: str) -> float:
        """How long the answer to filter for this pod should wait, so that kube-scheduler knows the nominations of the next pods.

        It may be less: nominations that are on their way can be seen, or end, at any time.
        """
        pod = self._waiting.get(uid)
        if pod is None or not self._own or self.paused:
            return 0.0
        now, longest_s = self._clock(), 0.0
        for other in [other for other in self._queue.first(pod.scheduler, AWAITED + 1) if other != uid][:AWAITED]:
            promised = self._promised.get(other)
            if promised is not None and promised.by is _By.US:
                known_at = promised.at + UNSEEN_S if promised.shown_at is None else promised.shown_at + self._lag.seconds
                longest_s = max(longest_s, known_at - now)
        return longest_s

    def waited(self, seconds: float) -> None:
        """The answer to filter has waited for so long."""
        self._credit.waited(seconds)
        if self._credit.seconds <= 0:
            self._pause("filter has waited longer for nominations than they save")

    def asked(self, uid: str, nodes: NodeNames) -> str:
        """kube-scheduler asks filter for this pod. Returns the promised node if it is among these nodes, or nothing."""
        now = self._clock()
        self._credit.answered(now)
        if (pod := self._waiting.get(uid)) is not None:
            self._served[pod.scheduler] = now
            self._answered_scheduler = pod.scheduler
        self._queue.remove(uid)
        self._remember_asked(uid)
        promised, unwanted = self._promised.get(uid), self._unwanted.get(uid)
        if unwanted is not None and len(nodes) == 1 and unwanted.node in nodes:
            unwanted.known = True
        if promised is None:
            return ""
        named = promised.node in nodes
        promised.known = promised.known or (named and len(nodes) == 1)
        if not named and promised.by is _By.FILTER:
            self._end(uid, UNUSED)
            return ""
        if not promised.asked:
            promised.asked = True
            promised.used = named and len(nodes) == 1
            if promised.by is _By.US:
                self._judge(promised, now)
        return promised.node if named else ""

    def _judge(self, promised: _Promised, now: float) -> None:
        """kube-scheduler's own rules refuse a nominated node before it asks us: then we are asked for other nodes only."""
        # Our own watch may have shown the nomination while the call waited for its answer: then kube-scheduler could not know it.
        called_at = promised.called_at if promised.called_at is not None else now
        seen_s = called_at - promised.shown_at if promised.shown_at is not None else 0.0
        if promised.used:
            self._credit.saved(len(self._usage))
            self._lag.knew(seen_s)
        elif 0 < seen_s <= SURELY_SEEN_S:
            self._lag.missed(seen_s)
        promised.ruled_out = not promised.used and seen_s > SURELY_SEEN_S

    def preempts(self, uid: str) -> None:
        """kube-scheduler is about to evict pods for this one, and then nominates their node: that nomination is its own."""
        self._end(uid, UNUSED)
        self._unwanted.pop(uid, None)

    def best(self, request: Request, nodes: Container[str], most: int, *, last: Collection[str]) -> list[str]:
        """The best of these nodes that keep all promises and on which binds do not fail; none if nothing is being planned."""
        if not self._promised and not self._is_worthwhile:
            return []
        names = self._shadow.ranking(request).best(nodes, most, last=last)
        return [name for name in names if name not in last]

    def answered(self, uid: str, request: Request, node: str) -> None:
        """filter has named this one node for a pod without a promise: until the bind, nobody else is promised its cards."""
        pod = self._waiting.get(uid)
        if pod is None or uid in self._promised or len(self._promised) >= MOST_ADOPTED:
            return
        if isinstance(self._shadow.add(uid, request, node), Promise):
            self._promised[uid] = _Promised(pod, node, self._clock(), _By.FILTER, asked=True)
            self._usage.add(uid, node, pod.needs, pod.ports)

    def assignment(self, uid: str) -> Assignment | None:
        """The promised cards. Whether they are still free, the ledger decides."""
        promise = self._shadow.promise(uid)
        return promise.assignment if promise is not None else None

    # What is to be written.

    @property
    def waiting(self) -> int:
        """How many pods wait that can be promised a node, or have been."""
        return sum(map(self._queue.count, self._served_schedulers())) + self._own

    @property
    def promises(self) -> int:
        """How many promises of ours are open."""
        return self._own

    @property
    def cluster_too_small(self) -> bool:
        """kube-scheduler alone is faster here."""
        return len(self._usage) < self._fewest_nodes

    @property
    def paused(self) -> bool:
        """Planning rests, because promises did not pay (pause_reason)."""
        return self._clock() < self._paused_until

    def end_wrong_ones(self) -> None:
        """End the promises that are old, or whose cards are gone or unhealthy."""
        for broken in self._shadow.broken():
            self._end(broken.uid, WITHDRAWN)
        self._expire(self._clock())

    def next(self) -> Nomination | None:
        """The next nomination to write, if there is one."""
        self.end_wrong_ones()
        now = self._clock()
        return self._next_removal(now) or self._next_promise(now)

    def _next_removal(self, now: float) -> Nomination | None:
        for uid, unwanted in self._unwanted.items():
            pod = unwanted.pod
            if pod is not None and unwanted.not_before <= now:
                unwanted.pod, unwanted.removed_at = None, pod.version
                return Nomination(uid, pod.namespace, pod.name, pod.version, "")
        return None

    def _next_promise(self, now: float) -> Nomination | None:
        most = min(MOST_PROMISES, max(FEW_PROMISES, len(self._usage) // NODES_A_PROMISE))
        if now < max(self._paused_until, self._rests_until) or not self._is_worthwhile or self._own >= most:
            return None
        if not self._unseen.allows_more(most, now):
            return None
        schedulers = self._served_schedulers()
        for _ in range(MOST_TRIED):
            if (pod := self._first(schedulers)) is None:
                return None
            known = self._ledger.pod(pod.uid)
            if known is None or known.place is not None or known.seen.refusal is not None:
                self._queue.remove(pod.uid)
                continue
            node = self._choose(pod, known.seen.request)
            if not node:
                self._queue.remove(pod.uid)
                if self._clock() - now >= LONGEST_SEARCH_S:
                    return None  # the next search finds these rankings in the cache
            else:
                self._queue.keep_place(pod.uid)
                self._unseen.sent(pod.uid, now)
                self._promised[pod.uid] = _Promised(pod, node, now, _By.US)
                self._own += 1
                self._usage.add(pod.uid, node, pod.needs, pod.ports)
                return Nomination(pod.uid, pod.namespace, pod.name, pod.version, node)
        return None

    def _first(self, schedulers: Iterable[str]) -> SchedulingPod | None:
        """The first of the pods that can be promised a node now."""
        queues = (self._queue.after(scheduler, self._fewest_ahead) for scheduler in schedulers)
        firsts = [pod for queue in queues if (pod := next(queue, None)) is not None]
        return min(firsts, key=lambda pod: self._queue.place(pod.uid), default=None)

    def _served_schedulers(self) -> list[str]:
        """Those that call us."""
        since = self._clock() - SERVED_S
        return [scheduler for scheduler, called_at in self._served.items() if called_at >= since]

    @property
    def _is_worthwhile(self) -> bool:
        """Whether promises make kube-scheduler faster."""
        return self.waiting >= self._shortest_queue and not self.cluster_too_small

    def _choose(self, pod: SchedulingPod, request: Request) -> str:
        """Promise the pod cards of the best node that its own rules allow. Without one it is left to kube-scheduler."""
        began = self._clock()
        nodes, avoided = self._usage.nodes_for(pod.choice), self._avoid()
        if (took_s := self._clock() - began) > LONG_COMPARISON_S:
            self._rests_until = began + (REST + 1) * took_s
        candidates = islice(self._shadow.ranking(request).in_order(nodes), MOST_TRIED)
        fitting = (node for node in candidates if node not in avoided and self._usage.fits(node, pod.needs, pod.ports))
        node = next(fitting, "")
        return node if node and isinstance(self._shadow.add(pod.uid, request, node), Promise) else ""

    def written(self, nomination: Nomination, version: int) -> None:
        """The API server has written it, as this version of the pod."""
        uid, node = nomination.uid, nomination.node
        if not node:
            self._unwanted.pop(uid, None)
            return
        promised = self._promised.get(uid)
        if promised is not None and promised.node == node:
            promised.written = promised.written or version
            if version > promised.pod.version:
                promised.pod = replace(promised.pod, version=version, nominated=node)
        elif uid in self._unwanted and self._unwanted[uid].pod is None:
            # It was withdrawn while it was being written.
            pod = SchedulingPod(uid, nomination.namespace, nomination.name, version, "", (), nominated=node)
            self._unwanted[uid].pod = pod

    def not_written(self, nomination: Nomination, outcome: str) -> None:
        """The API server has not written it: the pod has changed (late), is gone, or the request failed, and nobody knows."""
        uid = nomination.uid
        if nomination.node:
            promised = self._promised.get(uid)
            if outcome != FAILED or promised is None or promised.shown_at is None:
                self._end(uid, outcome)
        elif outcome == FAILED and uid in self._unwanted and self._unwanted[uid].pod is None:
            pod = SchedulingPod(uid, nomination.namespace, nomination.name, nomination.version, "", ())
            self._unwanted[uid].pod = replace(pod, nominated=self._unwanted[uid].node)
        elif outcome == GONE:
            self._unwanted.pop(uid, None)

    # How promises end.

    def _expire(self, now: float) -> None:
        for uid, promised in list(islice(self._promised.items(), MOST_ENDED)):
            if now - promised.at < EXPIRES_S:
                break
            self._end(uid, UNUSED if promised.asked else EXPIRED)

    def _check(self, name: str) -> None:
        """Withdraw the promises that the node's other pods or its own changes have made wrong, the newest first."""
        promises = [promised for promised in self._promised.values() if promised.node == name] if self._promised else []
        for promised in reversed(promises):
            pod = promised.pod
            if self._usage.may_be_on(name, pod.choice) and self._usage.fits(name, pod.needs, pod.ports, uid=pod.uid):
                continue
            self._end(pod.uid, WITHDRAWN)

    def _end(self, uid: str, outcome: str) -> None:
        """Forget a promise. A nomination that may still be on the pod is removed, unless kube-scheduler is at the pod."""
        self._shadow.remove(uid)
        promised = self._promised.pop(uid, None)
        if promised is None:
            return
        self._queue.remove(uid)
        self._usage.remove(uid)
        if promised.by is not _By.US:
            return
        self._own -= 1
        self._remember_asked(uid)  # one promise is enough; the pod is kube-scheduler's now
        self._unseen.forget(uid)
        self._learn(outcome, promised)
        self._count(outcome)
        if outcome in (KEPT, LATE, GONE):
            return
        pod = promised.pod if promised.written else None
        if pod is not None and pod.nominated != promised.node:
            return
        if pod is not None and self._is_known(promised) and pod.refused and pod.preempts:
            return  # kube-scheduler has replaced it by its own, for preemption on the same node
        # Once kube-scheduler has tried the pod, it removes the nomination itself or replaces it by one for preemption.
        leave = promised.asked and (pod is None or pod.preempts or not pod.refused)
        not_before = self._clock() + (EXPIRES_S if leave else 0.0)
        sent_for = 0 if promised.written else promised.pod.version
        self._unwanted[uid] = _Unwanted(promised.node, not_before, pod, sent_for, self._is_known(promised))

    def _is_known(self, promised: _Promised) -> bool:
        """Whether kube-scheduler has seen the nomination. Its own rules may refuse the node before it asks us."""
        shown_at = promised.shown_at
        return promised.known or (shown_at is not None and self._clock() - shown_at > SURELY_SEEN_S)

    def _learn(self, outcome: str, promised: _Promised) -> None:
        """From many wasted promises: that planning does not pay."""
        if outcome not in (KEPT, LATE, UNUSED, FAILED, EXPIRED):
            return
        if outcome == LATE and promised.called_at is None:
            return  # not kube-scheduler: anybody can change his pods all the time
        known = promised.known or promised.ruled_out or (not promised.asked and self._is_known(promised))
        self._recent.append(LATE if outcome == UNUSED and not known else outcome)
        kept, late = self._recent.count(KEPT), self._recent.count(LATE)
        if len(self._recent) == RECENT and (kept < FEWEST_KEPT or RECENT - kept - late > RECENT / 2):
            self._pause("kube-scheduler used too few of the last ones")

    def _pause(self, reason: str) -> None:
        self.pause_reason = reason
        self._paused_until = self._clock() + PAUSE_S
        self._recent.clear()
        self._credit.reset()

    def _remember_asked(self, uid: str) -> None:
        self._asked[uid] = None
        if len(self._asked) > MOST_ASKED:
            del self._asked[next(iter(self._asked))]
