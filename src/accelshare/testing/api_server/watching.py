"""A watch as a cursor in the history: it takes what it has not seen yet, whenever its client is ready for it.

Belongs here: what one watcher sees, and when it has fallen too far behind. Never: waiting, sockets; the store never waits for a
watcher, and a watcher holds nothing but its place.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from accelshare.testing.api_server.history import Change, Collection, Version
from accelshare.testing.api_server.resources import Resource
from accelshare.testing.api_server.selectors import Selector


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """ADDED, MODIFIED or DELETED, and the object as this watcher should see it."""

    type: str
    version: Version


class Watch:
    """One client's watch. `take` gives what is new and never waits; `on_change` is called when there is more to take."""

    def __init__(
        self,
        resource: Resource,
        collection: Collection,
        *,
        namespace: str,
        selector: Selector,
        revision: int,
        initial: Iterable[Version] = (),
    ) -> None:
        self.resource = resource
        self.revision = revision
        self._collection = collection
        self._prefix = f"{namespace}/" if namespace else ""
        self._selector = selector
        self._initial = deque(initial)

    def take(self, limit: int = 500) -> list[WatchEvent]:
        """What happened since the last call, at most so much at once; 410 when it is no longer known."""
        if self._initial:
            return [WatchEvent("ADDED", self._initial.popleft()) for _ in range(min(limit, len(self._initial)))]
        events: list[WatchEvent] = []
        while not events:
            changes = self._collection.since(self.revision, limit=limit)
            if not changes:
                break
            self.revision = changes[-1].revision
            events.extend(self._seen(changes))
        return events

    def on_change(self, wake: Callable[[], None]) -> None:
        self._collection.listeners[self] = wake

    def close(self) -> None:
        self._collection.listeners.pop(self, None)

    def _seen(self, changes: Iterable[Change]) -> Iterator[WatchEvent]:
        """The changes as seen through the selector: what comes into view is added, what leaves it is deleted."""
        for change in changes:
            if not change.key.startswith(self._prefix):
                continue
            before, after = self._shows(change.old), self._shows(change.new)
            if after:
                assert change.new is not None
                yield WatchEvent("MODIFIED" if before else "ADDED", change.new)
            elif before:
                yield WatchEvent("DELETED", change.gone)

    def _shows(self, version: Version | None) -> bool:
        return version is not None and self._selector.matches(version.object, self.resource.fields)
