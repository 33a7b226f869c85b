"""Which pod does an anonymous request for cards serve?

Belongs here: the queue of pods that wait for their containers' cards, and who is next. Never: which card that is, or where the
request came from.

A node's own agent is asked for "four units of this kind" by somebody who does not say for whom. Where it is known which pod the
asker is busy with, it is that one. Else pods are served in the order of their arrival here, which is the order in which the asker
heard of them too; one pod is served to its end before the next, its containers in their order. An amount that nobody waits for
has no match, and guessing is left to nobody.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from accelshare.wire.node_pods import ContainerNeeds, Want


@dataclass(frozen=True, slots=True)
class Match:
    """The pod and container that a request is taken to be for."""

    uid: str
    container: str
    want: Want


class Queue:
    """Pods by arrival, with what each still has to be given."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[str, list[Want]]]] = {}
        self._begun: str | None = None

    def arrive(self, uid: str, parts: Sequence[ContainerNeeds]) -> None:
        """A pod waits from now on. One that waits already keeps its place and what it was given."""
        if uid not in self._waiting:
            left = [(part.container, list(part.wants)) for part in parts if part.wants]
            if left:
                self._waiting[uid] = left

    def leave(self, uid: str) -> None:
        """The pod needs nothing more: it has all, or it has ended."""
        self._waiting.pop(uid, None)
        if self._begun == uid:
            self._begun = None

    def reorder(self, uids: Iterable[str]) -> None:
        """The asker has begun anew and takes those who wait in this order; whoever it does not name comes after them."""
        named = {uid: self._waiting[uid] for uid in uids if uid in self._waiting}
        self._waiting = named | {uid: left for uid, left in self._waiting.items() if uid not in named}

    def match(self, want: Want, among: Collection[str] | None = None) -> Match | None:
        """Whom this request serves: the pod that was begun if it fits, else the first to come whose next container asks this.

        If it is known to be one of a few, it is for any container of theirs that still asks this: those before it may have been
        served when somebody else kept the queue.
        """
        begun = [self._begun] if self._begun is not None else []
        for uid in (*begun, *(uid for uid in self._waiting if uid != self._begun)):
            if among is not None and uid not in among:
                continue
            left = self._waiting[uid]
            for container, wants in left[:1] if among is None else left:
                if want in wants:
                    return Match(uid, container, want)
        return None

    def serve(self, match: Match) -> None:
        """The match has been given what it asked, and whatever comes before it in its pod has had its own."""
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
            self._begun = match.uid
        else:
            self.leave(match.uid)

    def __contains__(self, uid: object) -> bool:
        return uid in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting(self) -> Iterator[tuple[str, str, tuple[Want, ...]]]:
        """Each waiting pod, its next container and what that asks, in order."""
        for uid, left in self._waiting.items():
            yield uid, left[0][0], tuple(left[0][1])
