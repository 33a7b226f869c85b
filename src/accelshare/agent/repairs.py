"""Writes on pods what follows from their containers: the assigned flag, Events, and the deletion of pods that must be replaced.

Belongs here: these writes and their retries. Never: finding the pods (nri/container_decision.py, device_plugin/plugin.py).
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from accelshare.agent.nri.outcomes import Unentitled
from accelshare.agent.retries import BACKOFF, Retries
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, KubeError, NotFound
from accelshare.kube.events import Events, PodRef
from accelshare.kube.patches import annotate_pod, delete_pod
from accelshare.vendors.profile import Profile
from accelshare.wire.node_pods import NodePod

log = logging.getLogger(__name__)
T = TypeVar("T")
MOST_UNENTITLED: Final = 1000  # that wait to be reported; of more the oldest are dropped


class Repairs:
    def __init__(
        self,
        client: Client,
        events: Events,
        profiles: Mapping[str, Profile],
        *,
        on_replaced: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_replaced` is called for each pod that was deleted."""
        self._client = client
        self._events = events
        self._profiles = profiles
        self._on_replaced = on_replaced
        self._assigned: dict[str, NodePod] = {}  # pods to be flagged
        self._replacements: dict[str, tuple[NodePod, str, bool]] = {}  # uid → pod, container, and whether its card was renumbered
        self._unentitled: deque[Unentitled] = deque(maxlen=MOST_UNENTITLED)
        self._unlimited: deque[tuple[NodePod, str]] = deque(maxlen=MOST_UNENTITLED)
        self._retries = Retries(clock)
        self._wanted = asyncio.Event()

    def flag_assigned(self, pod: NodePod) -> None:
        """The pod has its cards: set the vendors' assigned flags in its record."""
        if self._flags(pod):
            self._assigned[pod.uid] = pod
            self._wanted.set()

    def replace_lacking(self, pod: NodePod, container: str) -> None:
        """The container runs without its card: delete the pod."""
        self._replacements[pod.uid] = pod, container, False
        self._wanted.set()

    def replace_renumbered(self, pod: NodePod, container: str) -> None:
        """The container would restart with another card, because card numbers have changed: delete the pod."""
        self._replacements[pod.uid] = pod, container, True
        self._wanted.set()

    def report_unlimited(self, pod: NodePod, problem: str) -> None:
        """A living container of the pod lacks a limit that nobody could set."""
        self._unlimited.append((pod, problem))
        self._wanted.set()

    def report_unentitled(self, container: Unentitled) -> None:
        self._unentitled.append(container)
        self._wanted.set()

    async def run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._retries.next_due_s(BACKOFF.longest_s)):
                    await self._wanted.wait()
            self._wanted.clear()
            await self.write()

    async def write(self) -> None:
        """Write all that is due. A pod that a policy protects delays no other, and is tried less and less often."""
        while self._unentitled:
            await self._report(self._unentitled.popleft())
        while self._unlimited:
            pod, problem = self._unlimited.popleft()
            ref = PodRef(namespace=pod.seen.namespace, name=pod.seen.name, uid=pod.seen.uid)
            await self._events.record(ref, kind="Warning", reason="AcceleratorNotLimited", message=problem)
        for uid, replacement in list(self._replacements.items()):
            if await self._done(uid, self._replace, replacement):
                self._replacements.pop(uid, None)
        for uid, pod in list(self._assigned.items()):
            if await self._done(uid, self._flag, pod):
                self._assigned.pop(uid, None)
        self._retries.keep_only({*self._replacements, *self._assigned})

    async def _done(self, uid: str, act: Callable[[T], Awaitable[None]], about: T) -> bool:
        if not self._retries.due(uid):
            return False
        try:
            await act(about)
        except KubeError as error:
            if self._retries.failed(uid, error):
                log.warning("repair uid=%s outcome=failed error=%r", uid, str(error))
            return False
        self._retries.forget(uid)
        return True

    async def _report(self, found: Unentitled) -> None:
        ref = PodRef(namespace=found.sandbox.namespace, name=found.sandbox.name, uid=found.sandbox.uid)
        pod = f"{ref.namespace}/{ref.name}"
        log.warning("guard pod=%s container=%s outcome=%s what=%r", pod, found.container, found.outcome, found.what)
        start = f"container {found.container} has {found.what} without requesting a {found.noun}"
        if found.outcome == "withheld":
            await self._events.record(ref, kind="Normal", reason="AcceleratorWithheld", message=f"{start}; it gets none")
        else:
            end = "it is refused" if found.outcome == "refused" else "it was created while the node's agent was away, and runs"
            await self._events.record(ref, kind="Warning", reason="AcceleratorNotRequested", message=f"{start}; {end}")

    async def _flag(self, pod: NodePod) -> None:
        seen = pod.seen
        with contextlib.suppress(NotFound, Conflict):
            await annotate_pod(self._client, namespace=seen.namespace, name=seen.name, uid=seen.uid, annotations=self._flags(pod))

    async def _replace(self, replacement: tuple[NodePod, str, bool]) -> None:
        pod, container, renumbered = replacement
        seen = pod.seen
        ref = PodRef(namespace=seen.namespace, name=seen.name, uid=seen.uid)
        if renumbered:
            message = f"the numbers of this node's cards changed; container {container} would restart with another card"
            await self._events.record(
                ref, kind="Warning", reason="AcceleratorRenumbered", message=f"{message}; the pod is replaced"
            )
        else:
            message = f"the container runtime started container {container} without its card; the pod is replaced"
            await self._events.record(ref, kind="Warning", reason="AcceleratorMissing", message=message)
        log.warning("repair pod=%s container=%s outcome=replaced", pod.name, container)
        try:
            await delete_pod(self._client, namespace=seen.namespace, name=seen.name, uid=seen.uid)
        except (NotFound, Conflict):
            return
        self._on_replaced()

    def _flags(self, pod: NodePod) -> dict[str, str]:
        kinds = {slice_.kind for slice_ in pod.seen.slices if not slice_.whole}
        keys = [self._profiles[kind].annotations.assigned for kind in kinds]
        return {key: "true" for key in keys if key is not None and pod.annotations.get(key) != "true"}
