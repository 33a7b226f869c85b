"""Decides which waiting pod an anonymous kubelet request is for.

Belongs here: the pods that wait for their containers' cards, in order, and the match. Never: which card it is, or gRPC.

kubelet asks for "four units of this kind" without naming a pod. Where it is known which pods kubelet admits now, the request is
for one of them. Otherwise pods are served in the order of their arrival, which is kubelet's own order; one pod is served
completely before the next, its containers in their order. An amount that no pod waits for has no match: nothing is guessed.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from accelshare.wire.node_pods import ContainerNeeds, Want


@dataclass(frozen=True, slots=True)
class Match:
    """The pod and container that a request is for."""

    uid: str
    container: str
    want: Want


class RequestMatcher:
    """Waiting pods in order of arrival, with what each container still has to get."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[str, list[Want]]]] = {}
        self._in_progress: str | None = None

    def add(self, uid: str, parts: Sequence[ContainerNeeds]) -> None:
        """A pod waits from now on. One that already waits keeps its place and its progress."""
        if uid not in self._waiting:
            left = [(part.container, list(part.wants)) for part in parts if part.wants]
            if left:
                self._waiting[uid] = left

    def remove(self, uid: str) -> None:
        """The pod waits no more: it has everything, or it has ended."""
        self._waiting.pop(uid, None)
        if self._in_progress == uid:
            self._in_progress = None

    def reorder(self, uids: Iterable[str]) -> None:
        """kubelet has restarted and admits waiting pods in this order; pods that are not named follow after them."""
        named = {uid: self._waiting[uid] for uid in uids if uid in self._waiting}
        self._waiting = named | {uid: left for uid, left in self._waiting.items() if uid not in named}

    def match(self, want: Want, among: Collection[str] | None = None) -> Match | None:
        """The pod in progress if it fits, else the first pod whose next container requests this.

        With `among`, any container of those pods that still requests this: containers before it may have been served by an
        earlier agent.
        """
        in_progress = [self._in_progress] if self._in_progress is not None else []
        for uid in (*in_progress, *(uid for uid in self._waiting if uid != self._in_progress)):
            if among is not None and uid not in among:
                continue
            left = self._waiting[uid]
            for container, wants in left[:1] if among is None else left:
                if want in wants:
                    return Match(uid, container, want)
        return None

    def serve(self, match: Match) -> None:
        """The match has got what it requested, and so have the containers before it in its pod."""
        left = self._waiting.get(match.uid, [])
        containers = [container for container, wants in left if match.want in wants]
        if match.container not in containers:
            return
        while left[0][0] != match.container:
            del left[0]
        left[0][1].remove(match.want)
        if not left[0][1]:
            del left[0]
        if left:
            self._in_progress = match.uid
        else:
            self.remove(match.uid)

    def __contains__(self, uid: object) -> bool:
        return uid in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self) -> Iterator[tuple[str, str, tuple[Want, ...]]]:
        """Each waiting pod, its next container and what that requests, in order."""
        for uid, left in self._waiting.items():
            yield uid, left[0][0], tuple(left[0][1])
