"""The versions of one resource's objects, and the two ways to read them: lists in pages and watches.

A page of a list shows one moment, however long the client takes to ask for the next page. A watch is a position in the list of
changes: it takes what it has not seen yet, and falls behind at its own cost; the store never waits for it.
Never: whether a change is allowed, waiting, sockets.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import orjson

from accelshare.testing.api_server.errors import ApiError, Object, bad_request, expired
from accelshare.testing.api_server.resources import Resource
from accelshare.testing.api_server.selectors import Selector

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


_TOKEN_VERSION: Final = "meta.k8s.io/v1"  # noqa: S105 – of a continue token, which is no secret
_LATEST: Final = -1
_INCONSISTENT: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the "
    "continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with "
    "the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Page:
    """Some of a list's objects, the moment they show, and how to get the next ones."""

    resource: Resource
    versions: tuple[Version, ...]
    revision: int
    continue_token: str = ""

    @property
    def json(self) -> bytes:
        """The list object."""
        metadata = {"resourceVersion": str(self.revision)} | ({"continue": self.continue_token} if self.continue_token else {})
        head = {"kind": f"{self.resource.kind}List", "apiVersion": self.resource.api_version, "metadata": metadata}
        items = b",".join(version.item for version in self.versions)
        return orjson.dumps(head)[:-1] + b',"items":[' + items + b"]}"


def page(
    resource: Resource,
    collection: Collection,
    *,
    namespace: str,
    selector: Selector,
    limit: int,
    token: str,
    current: int,
) -> Page:
    """One page; the first one of a list when there is no token yet. 410 when the token's moment is forgotten."""
    prefix = f"{namespace}/" if namespace else ""
    start, revision = _read(token) if token else ("", current)
    if revision == _LATEST:
        revision = current
    if revision > current:
        raise bad_request(f"Too large resource version: {revision}, current: {current}")
    try:
        keys, objects = collection.at(revision)
    except ApiError as error:
        raise expired(_INCONSISTENT, continue_token=_write(start, _LATEST)) from error

    found: list[Version] = []
    for position in range(bisect_left(keys, prefix + start), len(keys)):
        if not keys[position].startswith(prefix):
            break
        version = objects[keys[position]]
        if not selector.matches(version.object, resource.fields):
            continue
        if limit and len(found) == limit:
            last = resource.key(found[-1].object["metadata"].get("namespace", ""), found[-1].object["metadata"]["name"])
            return Page(resource, tuple(found), revision, _write(last.removeprefix(prefix) + "\x00", revision))
        found.append(version)
    return Page(resource, tuple(found), revision)


def _write(start: str, revision: int) -> str:
    token = orjson.dumps({"v": _TOKEN_VERSION, "rv": revision, "start": start})
    return urlsafe_b64encode(token).rstrip(b"=").decode()


def _read(token: str) -> tuple[str, int]:
    try:
        content = orjson.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, revision, start = content["v"], int(content["rv"]), str(content["start"])
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error
    if version != _TOKEN_VERSION or not revision or not start:
        raise bad_request("continue key is not valid: it has no version, moment or start")
    return start, revision


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
