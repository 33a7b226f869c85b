"""bind: checks the offer again, holds the cards, sends one Binding, and settles binds whose response was lost.

Belongs here: one pod's bind from kube-scheduler's request to the API server's response. Never: choosing cards (ledger/), the
request itself (kube/binding.py).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from accelshare.extender.admissions import Admissions
from accelshare.extender.fence import Fence
from accelshare.extender.gangs import GangBind, GangHolds
from accelshare.kube import binding, paths
from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError, NotFound
from accelshare.ledger.ledger import Ledger, LedgerPod
from accelshare.ledger.nouns import Assignment, Request, Slice
from accelshare.ledger.refusals import Refusal
from accelshare.vendors.catalog import Catalog
from accelshare.wire import assignment
from accelshare.wire.objects import pod_decoder
from accelshare.wire.pods import PodReader
from accelshare.wire.scheduler import BindArguments

log = logging.getLogger(__name__)
RETRY_S: Final = 1.0
# Failures that are not the node's: other failed binds make filter offer the node last.
_OUTCOMES: Final = {binding.BindRefusalReason.NO_SUCH_POD: "gone", binding.BindRefusalReason.NOT_SENT: "unreachable"}
# Binds that are sent at once. Each has a connection to the API server, whose buffers take 0.3 MB; a slow API server must not
# make kube-scheduler's binds, whose number nothing limits, fill the memory.
POSTS_AT_ONCE: Final = 64
POST_TURN_S: Final = 3.0  # kube-scheduler's default timeout of a bind is 5 s
ROOM_S: Final = 2.0  # likewise, of a filter
MAX_BOUND: Final = 1024  # remembered binds, before those that the watch has shown are dropped


class BindOutcome(msgspec.Struct, frozen=True):
    """The outcome of a bind: its name in logs and metrics, the error for kube-scheduler (empty: bound), and the cards."""

    name: str
    error: str = ""
    cards: str = ""


class _Cardless(msgspec.Struct, frozen=True):
    """A pod that requests no card."""

    version: str


class Binder:
    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        catalog: Catalog,
        reader: PodReader,
        *,
        fence: Fence,
        text: Callable[[Refusal], str],
        now_ns: Callable[[], int],
        on_free_capacity: Callable[[str], None],
        admissions: Admissions | None = None,
        permit: binding.Permit = binding.ALWAYS,
        promised: Callable[[str], Assignment | None] = lambda _: None,
        gangs: GangHolds | None = None,
    ) -> None:
        """`on_free_capacity` is called with each node on which a hold was released. Nothing is written without the permit.

        `promised`: the cards that the pod with this uid was promised, which are used if they are still free.
        """
        self._promised = promised
        self._gangs = gangs
        self._client = client
        self._ledger = ledger
        self._profiles = {profile.name: profile for profile in catalog.profiles}
        self._reader = reader
        self._fence = fence
        self._text = text
        self._now_ns = now_ns
        self._on_free_capacity = on_free_capacity
        self._admissions = admissions or Admissions(ledger, on_free_capacity=on_free_capacity)
        self._permit = permit
        self._posts = asyncio.Semaphore(POSTS_AT_ONCE)
        self._posting = 0  # binds that have begun their POST or wait for its turn
        self._room = asyncio.Event()
        self._room.set()
        self._under_way: dict[str, asyncio.Future[None]] = {}
        self._in_doubt: dict[str, asyncio.Task[None]] = {}
        self._posted_at: dict[str, float] = {}  # by uid of each pod in doubt: when the last POST was sent that may bind it
        self._bound: dict[str, str] = {}  # uid → node, at least until the watch shows it
        self._drop_at = MAX_BOUND

    async def bind(self, call: BindArguments) -> BindOutcome:
        """Bind the pod. Safe to repeat, also concurrently: the pod is bound once and the outcome is the same."""
        while (earlier := self._under_way.get(call.pod_uid)) is not None:
            await asyncio.wait([earlier])
        ended = self._under_way[call.pod_uid] = asyncio.get_running_loop().create_future()
        try:
            return await self._bind(call)
        finally:
            self._leave_unless_placed(call.pod_uid)
            del self._under_way[call.pod_uid]
            self._withdraw_if_settled(call.pod_uid)
            ended.set_result(None)

    @property
    def has_room(self) -> bool:
        """Whether one more bind could be sent at once."""
        return self._room.is_set()

    async def wait_for_room(self) -> None:
        """Wait until one more bind could be sent at once, for at most ROOM_S."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ROOM_S):
                await self._room.wait()

    async def finish(self, *, within_s: float) -> None:
        """Wait for the binds under way, for at most `within_s`."""
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=within_s)

    def settled(self) -> bool:
        """Whether the API server has responded to everything that was sent."""
        return not self._under_way and not self._in_doubt

    async def stop(self, *, within_s: float) -> None:
        """Settle the binds in doubt, for at most `within_s`. The next start fences those that are left."""
        if self._in_doubt:
            log.info("stopping binds_in_doubt=%d waiting_s=%.0f", len(self._in_doubt), within_s)
            await asyncio.wait(self._in_doubt.values(), timeout=within_s)
        left = dict(self._in_doubt)
        if left:
            log.warning("stopping binds_in_doubt=%d uids=%s outcome=left-to-next-start", len(left), ",".join(left))
        for task in left.values():
            task.cancel()
        await asyncio.gather(*left.values(), return_exceptions=True)

    async def _bind(self, call: BindArguments) -> BindOutcome:
        name = f"pod {call.pod_namespace}/{call.pod_name}"
        try:
            pod = self._ledger.pod(call.pod_uid) or await self._read(call)
        except NotFound:
            return BindOutcome("gone", f"{name} is gone")
        except KubeError as error:
            return BindOutcome("unreachable", f"{name} could not be read: {error}")
        except ValueError as error:
            return BindOutcome("refused", str(error))
        if isinstance(pod, BindOutcome):
            return pod
        if isinstance(pod, _Cardless):
            return await self._post(call, Assignment(call.node, ()), {}, version=pod.version)
        if (pod.seen.namespace, pod.seen.name) != (call.pod_namespace, call.pod_name):
            return BindOutcome(
                "gone", f"{name} does not have uid {call.pod_uid}: that is pod {pod.seen.namespace}/{pod.seen.name}"
            )
        if pod.seen.refusal is not None:
            return BindOutcome("refused", self._text(pod.seen.refusal))
        if pod.seen.node:
            if pod.seen.node == call.node:
                return BindOutcome("already", cards=card_names(pod.seen.slices))
            return BindOutcome("elsewhere", f"{name} is already bound to node {pod.seen.node}")
        gang = self._take_gang_hold(pod, call)
        if gang is GangBind.LOST:
            return BindOutcome("refused", f"the cards of {name} are no longer held for its group, which must be scheduled again")
        if pod.hold is not None and pod.hold.node != call.node:
            return BindOutcome(
                "in-doubt", f"{name} may already be bound to node {pod.hold.node}: the response to that bind was lost"
            )
        if pod.hold is not None and self._bound.get(call.pod_uid) == call.node:
            return BindOutcome("already", cards=card_names(pod.hold.slices))
        if pod.hold is not None and not self._ledger.still_available(pod.hold):
            return BindOutcome("in-doubt", f"{name} may already be bound to node {call.node}, whose cards are not available now")
        earlier = pod.hold if gang is GangBind.NO_MEMBER else None
        offered = pod.hold or self._offer(call, pod.seen.request)
        if isinstance(offered, Refusal):
            return BindOutcome("refused", f"node {call.node}: {self._text(offered)}")
        self._ledger.hold(call.pod_uid, offered)
        if (refused := await self._not_admitted(call, offered)) is not None:
            if earlier is None and not (self._gangs is not None and self._gangs.bind_put_off(call.pod_uid)):
                self._report_free_capacity(self._ledger.release(call.pod_uid))
            return refused
        return await self._post(call, offered, self._annotations(pod, offered), version=str(pod.seen.version or ""))

    def _take_gang_hold(self, pod: LedgerPod, call: BindArguments) -> GangBind:
        """Whether the pod has cards that filter has held for its gang. Those that this bind cannot use are released."""
        if self._gangs is None:
            return GangBind.NO_MEMBER
        found = self._gangs.bind_begins(call.pod_uid, in_gang=pod.seen.in_gang and pod.hold is None)
        if found is not GangBind.HELD or pod.hold is None:
            return found
        if pod.hold.node == call.node and self._ledger.still_available(pod.hold):
            return found
        self._report_free_capacity(self._ledger.release(call.pod_uid))
        return GangBind.NO_MEMBER

    def _offer(self, call: BindArguments, request: Request) -> Assignment | Refusal:
        promised = self._promised(call.pod_uid)
        if promised is not None and promised.node == call.node and self._ledger.offers_cards(promised, request):
            return promised
        return self._ledger.offer(call.node, request)

    async def _not_admitted(self, call: BindArguments, offered: Assignment) -> BindOutcome | None:
        """Wait until the node may get one more pod. The refusal if it may not, else None."""
        if not await self._admissions.enter(call.node, call.pod_uid):
            return BindOutcome("refused", f"node {call.node}: its kubelet has not acknowledged the pods that were bound before")
        pod = self._ledger.pod(call.pod_uid)
        if pod is None:
            return BindOutcome("gone", f"pod {call.pod_namespace}/{call.pod_name} is gone")
        if pod.hold != offered or not self._ledger.still_available(offered):
            return BindOutcome("refused", f"node {call.node} changed while the pod waited for its kubelet")
        return None

    async def _post(self, call: BindArguments, offered: Assignment, annotations: dict[str, str], *, version: str) -> BindOutcome:
        self._count_posting(1)
        try:
            return await self._post_in_turn(call, offered, annotations, version=version)
        finally:
            self._count_posting(-1)

    def _count_posting(self, more: int) -> None:
        self._posting += more
        if self._posting < POSTS_AT_ONCE:
            self._room.set()
        else:
            self._room.clear()

    async def _post_in_turn(
        self, call: BindArguments, offered: Assignment, annotations: dict[str, str], *, version: str
    ) -> BindOutcome:
        try:
            # Most find it free. A time limit that is not needed takes as long as a log line.
            async with asyncio.timeout(POST_TURN_S) if self._posts.locked() else contextlib.nullcontext():
                await self._posts.acquire()
        except TimeoutError:
            return self._refused(
                call, binding.BindRefused(binding.BindRefusalReason.NOT_SENT, "too many binds wait for the API server")
            )
        doubted_at = self._posted_at.get(call.pod_uid)
        if doubted_at is not None:
            self._posted_at[call.pod_uid] = asyncio.get_running_loop().time()
        try:
            result = await binding.bind(
                self._client,
                namespace=call.pod_namespace,
                name=call.pod_name,
                uid=call.pod_uid,
                version=version,
                node=call.node,
                annotations=annotations,
                permit=self._permit,
            )
        except ValueError as error:
            result = binding.BindRefused(binding.BindRefusalReason.DENIED, str(error))  # refused before the API server has to
        finally:
            self._posts.release()
        match result:
            case binding.Bound():
                self._remember_bound(call)
                return BindOutcome("bound", cards=card_names(offered.slices))
            case binding.BindRefused():
                if doubted_at is not None and call.pod_uid in self._posted_at:
                    self._posted_at[call.pod_uid] = doubted_at  # this POST adds no doubt
                return self._refused(call, result)
            case binding.Unknown(message):
                self._settle_later(call)
                return BindOutcome("unknown", message)

    def _refused(self, call: BindArguments, refused: binding.BindRefused) -> BindOutcome:
        """This POST did not bind the pod. An earlier one whose response was lost may have bound it, or may still do so."""
        if refused.may_follow:
            self._settle_later(call)
            return BindOutcome(_OUTCOMES.get(refused.why, "failed"), refused.message)
        try:
            fact = self._reader.fact(pod_decoder.decode(refused.pod)) if refused.pod is not None else None
        except ValueError as error:  # it has a node and cannot be decoded: the hold stays until that is settled
            self._settle_later(call)
            return BindOutcome("failed", f"{refused.message}; the pod cannot be decoded: {error}")
        if fact is not None:
            # It has a node. The watch may show that late, and until then its cards would count as free.
            self._report_free_capacity(self._ledger.apply(fact))
            if fact.node == call.node:
                return BindOutcome("already", cards=card_names(fact.slices))
        elif refused.why is binding.BindRefusalReason.NO_SUCH_POD or call.pod_uid not in self._in_doubt:
            self._report_free_capacity(self._ledger.release(call.pod_uid))
        return BindOutcome(_OUTCOMES.get(refused.why, "failed"), refused.message)

    async def _read(self, call: BindArguments) -> LedgerPod | BindOutcome | _Cardless:
        """A pod that the watch has not shown yet, or one that requests no card."""
        path = paths.pod(call.pod_namespace, call.pod_name)
        pod = pod_decoder.decode(await self._client.request("GET", path))
        if pod.metadata.uid != call.pod_uid:
            message = f"pod {call.pod_namespace}/{call.pod_name} has uid {pod.metadata.uid}, not {call.pod_uid}"
            return BindOutcome("gone", message)
        fact = self._reader.fact(pod)
        if fact is None:
            return _Cardless(pod.metadata.resource_version)
        self._ledger.apply(fact)
        known = self._ledger.pod(call.pod_uid)
        return known if known is not None else BindOutcome("gone", f"pod {call.pod_namespace}/{call.pod_name} has ended")

    def _remember_bound(self, call: BindArguments) -> None:
        """Remember the bind until the watch shows it: a second POST would write another assignment time and be refused."""
        if len(self._bound) >= self._drop_at:
            pods = ((uid, self._ledger.pod(uid)) for uid in self._bound)
            self._bound = {uid: self._bound[uid] for uid, pod in pods if pod is not None and pod.hold is not None}
            self._drop_at = max(MAX_BOUND, 2 * len(self._bound))
        self._bound[call.pod_uid] = call.node

    def _settle_later(self, call: BindArguments) -> None:
        self._posted_at[call.pod_uid] = asyncio.get_running_loop().time()
        if call.pod_uid not in self._in_doubt:
            self._in_doubt[call.pod_uid] = asyncio.ensure_future(self._settle(call))

    async def _settle(self, call: BindArguments) -> None:
        try:
            await self._release_when_certain(call)
        finally:
            del self._in_doubt[call.pod_uid], self._posted_at[call.pod_uid]
            self._withdraw_if_settled(call.pod_uid)

    async def _release_when_certain(self, call: BindArguments) -> None:
        """Keep the hold until none of our POSTs can bind the pod any more, or the watch shows that one did."""
        while (pod := self._ledger.pod(call.pod_uid)) is not None and pod.hold is not None and not pod.seen.node:
            posted_at = self._posted_at[call.pod_uid]
            refused = self._permit.granted() and await self._fence.refuses(
                call.pod_namespace, call.pod_name, call.pod_uid, sent_at=posted_at
            )
            # A bind in progress may have read the pod after that, and begun before.
            if refused and call.pod_uid not in self._under_way and posted_at == self._posted_at[call.pod_uid]:
                break
            await asyncio.sleep(RETRY_S)
        pod = self._ledger.pod(call.pod_uid)
        outcome = "bound" if pod is not None and pod.seen.node else "not-bound"
        log.info("settled pod=%s/%s outcome=%s", call.pod_namespace, call.pod_name, outcome)
        self._report_free_capacity(self._ledger.release(call.pod_uid))
        self._leave_unless_placed(call.pod_uid)

    def _withdraw_if_settled(self, uid: str) -> None:
        if uid not in self._under_way and uid not in self._in_doubt:
            self._permit.withdraw(uid)

    def _leave_unless_placed(self, uid: str) -> None:
        pod = self._ledger.pod(uid)
        if pod is None or pod.place is None:
            self._admissions.leave(uid)

    def _report_free_capacity(self, node: str) -> None:
        if node:
            self._on_free_capacity(node)

    def _annotations(self, pod: LedgerPod, offered: Assignment) -> dict[str, str]:
        """The record of the pod's cards and, where the container runtime delivers them, the annotations for it."""
        node = self._ledger.node(offered.node)
        fact = node.fact if node is not None else None
        kinds = {ask.kind for ask in pod.seen.request}
        sizes = {(card.kind, card.index): card.size for card in fact.cards if card.kind in kinds} if fact is not None else {}
        annotations = assignment.write(offered.slices, profiles=self._profiles, sizes=sizes, now_ns=self._now_ns())
        if fact is not None and kinds & fact.by_runtime:
            annotations |= dict(pod.seen.runtime_notes)
        return annotations


def card_names(slices: tuple[Slice, ...]) -> str:
    """The cards as log lines and events name them."""
    return ",".join(f"{slice_.kind}/{slice_.index}" for slice_ in slices)
