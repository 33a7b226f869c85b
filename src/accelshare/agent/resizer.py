"""Does the resizes that the extender granted: sets the new limit on living containers, and reports the amount in force.

Belongs here: the order of one resize, what is undone if it fails, and its Events. Never: whether a resize is granted (the
extender), how a limit is set (limits/setting.py).

Each grant is answered once. If the limit was set and read back, the new amount is in force. Else the old one stays: the pod uses
more than the new amount, or driver, kernel or runtime refuse. The answer is on the Node, and only then the extender counts it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from accelshare.agent.amounts import AmountsInForce
from accelshare.agent.container_cards import numbering
from accelshare.agent.delivery_mode import CurrentMode
from accelshare.agent.discovery.device_inventory import DeviceInventory
from accelshare.agent.limits.cgroups import CgroupError, container_group, pod_group
from accelshare.agent.limits.review import LimitReview
from accelshare.agent.limits.setting import ContainerLimits, LimitError
from accelshare.agent.limits.wanted import Limit, unified, wanted_limits
from accelshare.agent.nri.protocol.errors import NriError
from accelshare.agent.pod_store import PodStore
from accelshare.agent.retries import BACKOFF, Retries
from accelshare.kube.client import Client
from accelshare.kube.errors import KubeError
from accelshare.kube.events import Events, PodRef
from accelshare.kube.patches import annotate_node
from accelshare.ledger.nouns import Resize
from accelshare.ledger.resizing import is_one_slice, resized
from accelshare.wire import resizing
from accelshare.wire.node_pods import NodePod

log = logging.getLogger(__name__)
SET_S: Final = 10.0
MIB: Final = 2**20


class LivingContainer(Protocol):
    """A living container with limits, and the limits of its pod's own cgroup."""

    @property
    def pod(self) -> NodePod: ...
    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def cgroup(self) -> str: ...
    @property
    def limits(self) -> tuple[Limit, ...]: ...
    @property
    def pod_cgroup(self) -> str: ...
    @property
    def pod_limits(self) -> tuple[Limit, ...]: ...


class RuntimeUpdates(Protocol):
    """The container runtime, as far as resizes use it."""

    @property
    def connected(self) -> bool: ...

    async def set_files(self, container_id: str, unified: Mapping[str, str]) -> None:
        """Set these files of the container's cgroup, now and whenever the runtime writes them again; may raise NriError."""
        ...

    async def wait_for_calls(self) -> None:
        """Wait until no call of the runtime is being answered that began before."""
        ...


class _FailedError(Exception):
    """The resize is not possible; the text is the reason."""


class SliceResizer:
    def __init__(
        self,
        client: Client,
        node: str,
        events: Events,
        devices: DeviceInventory,
        pods: PodStore,
        amounts: AmountsInForce,
        mode: CurrentMode,
        limits: ContainerLimits,
        review: LimitReview,
        updates: RuntimeUpdates,
        *,
        containers: Callable[[], Iterable[LivingContainer]],
        on_answered: Callable[[str], None],
    ) -> None:
        """`containers`: those that have limits. `on_answered` is called with each outcome: applied or failed."""
        self._client = client
        self._node = node
        self._events = events
        self._devices = devices
        self._pods = pods
        self._amounts = amounts
        self._mode = mode
        self._limits = limits
        self._review = review
        self._updates = updates
        self._containers = containers
        self._on_answered = on_answered
        self._granted: set[str] = set()  # uids of pods with a grant that is not answered
        self._published: str | None = None
        self._retries = Retries()
        self._wanted = asyncio.Event()
        pods.subscribe(seen=self._pod_seen, gone=self._pod_gone)

    def load(self, published: str) -> None:
        """What is on the Node now."""
        self._published = published or None

    def _pod_seen(self, pod: NodePod) -> None:
        if self._amounts.enabled and self._is_open(pod) and pod.uid not in self._granted:
            self._granted.add(pod.uid)
            self._wanted.set()

    def _pod_gone(self, pod: NodePod) -> None:
        self._granted.discard(pod.uid)
        self._retries.forget(pod.uid)
        if self._amounts.forget(pod.uid):
            self._wanted.set()

    def _is_open(self, pod: NodePod) -> bool:
        granted = pod.seen.granted
        return granted is not None and granted.number > self._amounts.answered_number(pod.uid) and not pod.terminating

    async def run(self) -> None:
        """Answer grants as they come, until cancelled. One that cannot be answered yet delays no other."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._retries.next_due_s(BACKOFF.longest_s, self._granted)):
                    await self._wanted.wait()
            self._wanted.clear()
            for uid in [uid for uid in self._granted if self._retries.due(uid)]:
                await self._answer(uid)
            await self._publish()

    async def _publish(self) -> None:
        """Write the Node's annotation if it differs. InventoryPublisher writes it again on a new Node of the same name."""
        text = self._amounts.annotation
        if text == self._published:
            return
        try:
            await annotate_node(self._client, self._node, {resizing.APPLIED: text})
        except KubeError as error:
            log.warning("resize node=%s outcome=not-reported error=%r", self._node, str(error))
            asyncio.get_running_loop().call_later(BACKOFF.first_s, self._wanted.set)
        else:
            self._published = text

    async def _answer(self, uid: str) -> None:
        pod = self._pods.get(uid)
        granted = pod.seen.granted if pod is not None else None
        if pod is None or granted is None or not self._is_open(pod):
            self._granted.discard(uid)
            return
        if not is_one_slice(pod.seen.request) or len(pod.parts) != 1:
            log.warning("resize pod=%s n=%d outcome=ignored problem='it has not one slice of one card'", pod.name, granted.number)
            self._granted.discard(uid)
            return
        self._retries.postpone(uid)
        if not self._updates.connected or not self._knows_way(pod):
            return
        before = pod.seen.request[0].share
        try:
            if granted.units < before and pod.phase == "Running" and not self._living(uid):
                return  # its container may be about to start again, or its cgroup cannot be seen: a shrink must be certain
            async with self._review.lock:
                problem = await self._try(pod, granted, before)
        except (LimitError, CgroupError) as error:  # it is not known which amount is in force
            log.warning("resize pod=%s n=%d outcome=postponed error=%r", pod.name, granted.number, str(error))
            return
        if uid not in self._pods:
            return  # it has ended meanwhile, and nothing is known of it any more
        self._amounts.set_answered(uid, granted.number)
        self._granted.discard(uid)
        self._retries.forget(uid)
        await self._report(pod, granted, before, problem)

    async def _try(self, pod: NodePod, granted: Resize, before: int) -> str:
        """Why the amount could not be changed; empty if it was. Raises if it is not known which limit is in force."""
        try:
            self._require_limits(pod, granted)
            if granted.units < before:
                await self._require_use_within(pod, granted.units)
            await self._change(pod, granted.units, growing=granted.units > before)
            if granted.units < before:
                await self._require_use_within(pod, granted.units)  # with the new limit it can no longer grow
        except (_FailedError, LimitError, CgroupError, NriError) as error:
            await self._change(pod, before, growing=granted.units < before, undo=True)
            return str(error)
        return ""

    def _require_limits(self, pod: NodePod, granted: Resize) -> None:
        mode = self._mode.get()
        if not mode.by_nri:
            raise _FailedError(f"delivery through NRI is needed, and this node delivers by {mode.name}")
        if not self._wanted_limits(pod, granted.units):
            raise _FailedError("on this node neither kernel nor driver limits the pod's card")

    def _knows_way(self, pod: NodePod) -> bool:
        """Whether it is known how the pod's card is limited. An agent that starts has to find that out first."""
        kinds = self._devices.snapshot().kinds
        vendors = [(slice_, kinds.get(slice_.kind)) for slice_ in pod.seen.slices]
        cards = [vendor.cards.get(numbering(vendor)(slice_)) if vendor is not None else None for slice_, vendor in vendors]
        return bool(cards) and all(card is not None and card.enforcement is not None for card in cards)

    def _wanted_limits(self, pod: NodePod, units: int) -> tuple[Limit, ...]:
        return wanted_limits(self._devices.snapshot().kinds, resized(pod.seen.request, pod.seen.slices, units)[1])

    async def _require_use_within(self, pod: NodePod, units: int) -> None:
        wanted = {limit.id: limit for limit in self._wanted_limits(pod, units)}
        for container in self._living(pod.uid):
            group = container_group(container.cgroup)
            for limit in container.limits:
                used = await asyncio.to_thread(self._limits.used, group, limit, timeout_s=SET_S)
                most = wanted[limit.id].bytes if limit.id in wanted else limit.bytes
                if used > most:
                    raise _FailedError(
                        f"container {container.name} uses {-(-used // MIB)} MiB of card {limit.card} of {limit.kind}, "
                        f"which is more than {most // MIB} MiB"
                    )

    async def _change(self, pod: NodePod, units: int, *, growing: bool, undo: bool = False) -> None:
        """Make this amount the one in force, for containers that are created from now on and for those that live."""
        stored = self._pods.get(pod.uid)
        if stored is None:
            return  # it has ended meanwhile; in the store again, it would keep its card from other pods
        self._amounts.set_units(pod.uid, units)
        self._pods.put(stored)
        await self._updates.wait_for_calls()  # a container may be being created with the former amount
        for container in self._living(pod.uid):
            await self._set(container, growing=growing, undo=undo)

    async def _set(self, container: LivingContainer, *, growing: bool, undo: bool) -> None:
        """The limit of the pod must not be smaller than that of its container, also for a moment.

        What is undone was perhaps never done: then it is enough that the old limits are read.
        """
        own = (container_group(container.cgroup), container.limits)
        of_pod = (
            (pod_group(container.pod_cgroup), container.pod_limits) if container.pod_limits and container.pod_cgroup else None
        )
        if files := unified(container.limits):
            with contextlib.suppress(*([NriError] if undo else [])):
                await self._updates.set_files(container.id, files)
        set_limits = self._limits.ensure if undo else self._limits.hold
        for group, limits in filter(None, (of_pod, own) if growing else (own, of_pod)):
            await asyncio.to_thread(set_limits, group, limits, timeout_s=SET_S)

    def _living(self, uid: str) -> list[LivingContainer]:
        """The pod's containers with limits; those that have ended have no cgroup any more."""
        own = [container for container in self._containers() if container.pod.uid == uid]
        return [container for container in own if self._limits.exists(container_group(container.cgroup))]

    async def _report(self, pod: NodePod, granted: Resize, before: int, problem: str) -> None:
        seen = pod.seen
        ref = PodRef(namespace=seen.namespace, name=seen.name, uid=seen.uid)
        outcome = "failed" if problem else "applied"
        self._on_answered(outcome)
        level = logging.WARNING if problem else logging.INFO
        log.log(
            level,
            "resize pod=%s before=%d units=%d n=%d outcome=%s problem=%r",
            *(pod.name, before, granted.units, granted.number, outcome, problem),
        )
        if problem:
            message = f"its slice keeps {before} units instead of {granted.units}: {problem}"
            await self._events.record(ref, kind="Warning", reason="ResizeFailed", message=message)
        else:
            limits = ", ".join(f"{limit} by {limit.way.name}" for limit in self._wanted_limits(pod, granted.units))
            message = f"its slice has {granted.units} units instead of {before}; the limit is {limits}"
            await self._events.record(ref, kind="Normal", reason="ResizeApplied", message=message)
