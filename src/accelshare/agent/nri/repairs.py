"""Pods whose bind or containers ask for something to be written: cards handed out, and containers that run without theirs.

Belongs here: the flag that says that a pod has its cards, and the replacement of a pod that a runtime started without. Never:
finding such pods (answers.py).
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from accelshare.agent.nri.answers import Bare, Guarded
from accelshare.agent.retries import BACKOFF, Retries
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, KubeError, NotFound
from accelshare.kube.events import Events, PodRef
from accelshare.kube.patches import annotate_pod, delete_pod
from accelshare.vendors.profile import Profile
from accelshare.wire.node_pods import NodePod

log = logging.getLogger(__name__)
T = TypeVar("T")
MOST_GUARDED: Final = 1000  # that wait to be told; of more the oldest are not


class Repairs:
    def __init__(
        self,
        client: Client,
        events: Events,
        profiles: Mapping[str, Profile],
        *,
        replaced: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`replaced` is called for each pod that had to go."""
        self._client = client
        self._events = events
        self._profiles = profiles
        self._replaced = replaced
        self._delivered: dict[str, NodePod] = {}
        self._bare: dict[str, Bare] = {}
        self._guarded: deque[Guarded] = deque(maxlen=MOST_GUARDED)
        self._renumbered: dict[str, tuple[NodePod, str]] = {}
        self._retries = Retries(clock)
        self._wanted = asyncio.Event()

    def delivered(self, pod: NodePod) -> None:
        if self._flags(pod):
            self._delivered[pod.uid] = pod
            self._wanted.set()

    def bare(self, found: Bare) -> None:
        self._bare[found.pod.uid] = found
        self._wanted.set()

    def guarded(self, what: Guarded) -> None:
        self._guarded.append(what)
        self._wanted.set()

    def renumbered(self, pod: NodePod, container: str) -> None:
        """This container would restart with a card that is not its own."""
        self._renumbered[pod.uid] = pod, container
        self._wanted.set()

    async def run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), self._retries.next_due_s(BACKOFF.longest_s))
            self._wanted.clear()
            await self.write()

    async def write(self) -> None:
        """All that is due. A pod that somebody's policy protects delays no other, and is tried again ever more seldom."""
        while self._guarded:
            await self._tell(self._guarded.popleft())
        for uid, found in list(self._bare.items()):
            if await self._done(uid, self._replace_bare, found):
                self._bare.pop(uid, None)
        for uid, about in list(self._renumbered.items()):
            if await self._done(uid, self._replace_renumbered, about):
                self._renumbered.pop(uid, None)
        for uid, pod in list(self._delivered.items()):
            if await self._done(uid, self._flag, pod):
                self._delivered.pop(uid, None)
        self._retries.keep_only({*self._bare, *self._renumbered, *self._delivered})

    async def _done(self, uid: str, act: Callable[[T], Awaitable[None]], about: T) -> bool:
        if not self._retries.due(uid):
            return False
        try:
            await act(about)
        except KubeError as error:
            if self._retries.failed(uid, error):
                log.warning("repair uid=%s outcome=failed error=%r", uid, str(error))
            return False
        self._retries.succeeded(uid)
        return True

    async def _tell(self, what: Guarded) -> None:
        ref = PodRef(namespace=what.pod.namespace, name=what.pod.name, uid=what.pod.uid)
        pod = f"{ref.namespace}/{ref.name}"
        log.warning("guard pod=%s container=%s outcome=%s what=%r", pod, what.container, what.outcome, what.what)
        start = f"container {what.container} has {what.what} without asking for such a {what.noun}"
        if what.outcome == "withheld":
            await self._events.say(ref, kind="Normal", reason="AcceleratorWithheld", message=f"{start}; it is given none")
        else:
            done = "it is refused" if what.outcome == "refused" else "it was made while the node's agent was away, and runs"
            await self._events.say(ref, kind="Warning", reason="AcceleratorNotRequested", message=f"{start}; {done}")

    async def _flag(self, pod: NodePod) -> None:
        seen = pod.seen
        with contextlib.suppress(NotFound, Conflict):
            await annotate_pod(self._client, namespace=seen.namespace, name=seen.name, uid=seen.uid, annotations=self._flags(pod))

    async def _replace_bare(self, found: Bare) -> None:
        words = f"container {found.container} was started by the container runtime without its card; the pod is replaced"
        await self._say(found.pod, "AcceleratorMissing", words)
        await self._replace(found.pod, found.container)

    async def _replace_renumbered(self, about: tuple[NodePod, str]) -> None:
        pod, container = about
        words = f"the cards of this node were numbered anew, and container {container} would restart with another card"
        await self._say(pod, "AcceleratorRenumbered", f"{words}; the pod is replaced")
        await self._replace(pod, container)

    async def _say(self, pod: NodePod, reason: str, words: str) -> None:
        ref = PodRef(namespace=pod.seen.namespace, name=pod.seen.name, uid=pod.seen.uid)
        await self._events.say(ref, kind="Warning", reason=reason, message=words)

    async def _replace(self, pod: NodePod, container: str) -> None:
        seen = pod.seen
        log.warning("repair pod=%s container=%s outcome=replaced", pod.name, container)
        try:
            await delete_pod(self._client, namespace=seen.namespace, name=seen.name, uid=seen.uid)
        except (NotFound, Conflict):
            return
        self._replaced()

    def _flags(self, pod: NodePod) -> dict[str, str]:
        kinds = {slice_.kind for slice_ in pod.seen.slices if not slice_.whole}
        keys = [self._profiles[kind].annotations.assigned for kind in kinds]
        return {key: "true" for key in keys if key is not None and pod.annotations.get(key) != "true"}
