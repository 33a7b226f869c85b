"""The versions of one kind's objects: what is there now, what changed, and what was there a while ago.

Belongs here: revisions, the bounded list of changes, reading the past by undoing them. Never: whether a change is allowed.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Final

import orjson

from accelshare.testing.api_server.errors import Object, expired

_HEAD: Final = frozenset({"kind", "apiVersion"})


class Version:
    """One version of one object. It never changes, so its JSON is written once, and only if somebody asks."""

    __slots__ = ("_json", "object", "revision")

    def __init__(self, content: Object, revision: int) -> None:
        self.object = content
        self.revision = revision
        self._json: bytes | None = None

    @property
    def item(self) -> bytes:
        """The object as a list has it: kind and apiVersion are said once, by the list."""
        if self._json is None:
            self._json = orjson.dumps({key: value for key, value in self.object.items() if key not in _HEAD})
        return self._json

    @property
    def json(self) -> bytes:
        """The whole object."""
        head = orjson.dumps({"kind": self.object["kind"], "apiVersion": self.object["apiVersion"]})
        return head[:-1] + b"," + self.item[1:]

    def stamped(self, revision: int) -> "Version":
        """The same content under a later revision: how a watch shows an object that is gone."""
        metadata = self.object["metadata"] | {"resourceVersion": str(revision)}
        return Version(self.object | {"metadata": metadata}, revision)


class Change:
    """One object went from one version to the next; None on the left is its beginning, on the right its end."""

    __slots__ = ("_gone", "key", "new", "old", "revision")

    def __init__(self, key: str, old: Version | None, new: Version | None, revision: int) -> None:
        self.key = key
        self.old = old
        self.new = new
        self.revision = revision
        self._gone: Version | None = None

    @property
    def gone(self) -> Version:
        """The last state, for those who see the object disappear."""
        if self._gone is None:
            assert self.old is not None, "only what was there can go"
            self._gone = self.old.stamped(self.revision)
        return self._gone


class Collection:
    """All objects of one kind, by `namespace/name` or `name`, with their recent past."""

    def __init__(self, *, keep: int) -> None:
        self.now: dict[str, Version] = {}
        self.listeners: dict[object, Callable[[], None]] = {}
        self._keep = keep
        self._changes: list[Change] = []
        self._compacted = 0
        self._sorted: list[str] | None = []

    @property
    def oldest(self) -> int:
        """The oldest revision whose state is still known."""
        return self._compacted

    def put(self, key: str, new: Version | None, revision: int) -> Change:
        """Write a version, or with None remove the object, and tell everybody who listens."""
        old = self.now.get(key)
        if old is None or new is None:
            self._sorted = None
        if new is None:
            del self.now[key]
        else:
            self.now[key] = new
        change = Change(key, old, new, revision)
        self._changes.append(change)
        if len(self._changes) >= 2 * self._keep:  # now and then many at once, so that a change costs the same as before
            self._forget(len(self._changes) - self._keep)
        for wake in tuple(self.listeners.values()):
            wake()
        return change

    def since(self, revision: int, *, limit: int | None = None) -> Sequence[Change]:
        """The changes after a revision, oldest first; 410 when some of them are forgotten."""
        if revision < self._compacted:
            raise expired(f"too old resource version: {revision} ({self._compacted})")
        first = bisect_right(self._changes, revision, key=attrgetter("revision"))
        return self._changes[first:] if limit is None else self._changes[first : first + limit]

    def at(self, revision: int) -> tuple[Sequence[str], Mapping[str, Version]]:
        """The keys in order and the objects as they were at a revision."""
        later = self.since(revision)
        if not later:
            return self._keys(), self.now
        then: dict[str, Version] = dict(self.now)
        for change in reversed(later):
            if change.old is None:
                del then[change.key]
            else:
                then[change.key] = change.old
        return sorted(then), then

    def compact(self, revision: int) -> None:
        """Forget how anything was before this revision."""
        self._forget(bisect_right(self._changes, revision, key=attrgetter("revision")))
        self._compacted = max(self._compacted, revision)

    def _forget(self, count: int) -> None:
        if count:
            self._compacted = self._changes[count - 1].revision
            del self._changes[:count]

    def _keys(self) -> Sequence[str]:
        if self._sorted is None:
            self._sorted = sorted(self.now)
        return self._sorted
