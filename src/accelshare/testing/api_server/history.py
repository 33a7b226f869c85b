"""The versions of one resource's objects, and the two ways to read them: lists in pages and watches.

A page of a list shows one moment, however long the client takes to ask for the next page. A watch is a position in the list of
changes: it takes what it has not seen yet, and the store never waits for it.
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

from accelshare.testing.api_server.errors import Object, RequestError, bad_request, expired
from accelshare.testing.api_server.resources import ApiResource
from accelshare.testing.api_server.selectors import Selector

_HEAD: Final = frozenset({"kind", "apiVersion"})


class ObjectVersion:
    """One version of one object. It never changes, so it is encoded once, when first needed."""

    __slots__ = ("_json", "object", "revision")

    def __init__(self, content: Object, revision: int) -> None:
        self.object = content
        self.revision = revision
        self._json: bytes | None = None

    @property
    def item(self) -> bytes:
        """The object's JSON as a list item: without kind and apiVersion, which the list has."""
        if self._json is None:
            self._json = orjson.dumps({key: value for key, value in self.object.items() if key not in _HEAD})
        return self._json

    @property
    def json(self) -> bytes:
        """The object's JSON."""
        head = orjson.dumps({"kind": self.object["kind"], "apiVersion": self.object["apiVersion"]})
        return head[:-1] + b"," + self.item[1:]

    def stamped(self, revision: int) -> "ObjectVersion":
        """The same content under a later revision, as a DELETED event shows it."""
        metadata = self.object["metadata"] | {"resourceVersion": str(revision)}
        return ObjectVersion(self.object | {"metadata": metadata}, revision)


class ObjectChange:
    """A change of one object; `old` is None if it was created, `new` if it was deleted."""

    __slots__ = ("_gone", "key", "new", "old", "revision")

    def __init__(self, key: str, old: ObjectVersion | None, new: ObjectVersion | None, revision: int) -> None:
        self.key = key
        self.old = old
        self.new = new
        self.revision = revision
        self._gone: ObjectVersion | None = None

    @property
    def gone(self) -> ObjectVersion:
        """The last version under the revision of the change, for DELETED events."""
        if self._gone is None:
            assert self.old is not None, "only what was there can go"
            self._gone = self.old.stamped(self.revision)
        return self._gone


class Collection:
    """All objects of one kind, by `namespace/name` or `name`, with their recent changes."""

    def __init__(self, *, keep: int) -> None:
        self.now: dict[str, ObjectVersion] = {}
        self.listeners: dict[object, Callable[[], None]] = {}
        self._keep = keep
        self._changes: list[ObjectChange] = []
        self._compacted = 0
        self._sorted: list[str] | None = []

    @property
    def oldest(self) -> int:
        """The oldest revision that can still be read."""
        return self._compacted

    def put(self, key: str, new: ObjectVersion | None, revision: int) -> ObjectChange:
        """Write a version, or with None remove the object, and wake all watches."""
        old = self.now.get(key)
        if old is None or new is None:
            self._sorted = None
        if new is None:
            del self.now[key]
        else:
            self.now[key] = new
        change = ObjectChange(key, old, new, revision)
        self._changes.append(change)
        if len(self._changes) >= 2 * self._keep:  # in large batches, so that a change stays cheap
            self._forget(len(self._changes) - self._keep)
        for wake in tuple(self.listeners.values()):
            wake()
        return change

    def since(self, revision: int, *, limit: int | None = None) -> Sequence[ObjectChange]:
        """The changes after a revision, oldest first; 410 if some of them are compacted."""
        if revision < self._compacted:
            raise expired(f"too old resource version: {revision} ({self._compacted})")
        first = bisect_right(self._changes, revision, key=attrgetter("revision"))
        return self._changes[first:] if limit is None else self._changes[first : first + limit]

    def at(self, revision: int) -> tuple[Sequence[str], Mapping[str, ObjectVersion]]:
        """The sorted keys and the objects at a revision."""
        later = self.since(revision)
        if not later:
            return self._keys(), self.now
        then: dict[str, ObjectVersion] = dict(self.now)
        for change in reversed(later):
            if change.old is None:
                del then[change.key]
            else:
                then[change.key] = change.old
        return sorted(then), then

    def compact(self, revision: int) -> None:
        """Forget everything before this revision."""
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
class StorePage:
    """Some objects of a list, their revision, and the token of the next page."""

    resource: ApiResource
    versions: tuple[ObjectVersion, ...]
    revision: int
    continue_token: str = ""

    @property
    def json(self) -> bytes:
        """The list's JSON."""
        metadata = {"resourceVersion": str(self.revision)} | ({"continue": self.continue_token} if self.continue_token else {})
        head = {"kind": f"{self.resource.kind}List", "apiVersion": self.resource.api_version, "metadata": metadata}
        items = b",".join(version.item for version in self.versions)
        return orjson.dumps(head)[:-1] + b',"items":[' + items + b"]}"


def page(
    resource: ApiResource,
    collection: Collection,
    *,
    namespace: str,
    selector: Selector,
    limit: int,
    token: str,
    current: int,
) -> StorePage:
    """One page of a list, the first one without a token. 410 if the token's revision is compacted."""
    prefix = f"{namespace}/" if namespace else ""
    start, revision = _read_token(token) if token else ("", current)
    if revision == _LATEST:
        revision = current
    if revision > current:
        raise bad_request(f"Too large resource version: {revision}, current: {current}")
    try:
        keys, objects = collection.at(revision)
    except RequestError as error:
        raise expired(_INCONSISTENT, continue_token=_write_token(start, _LATEST)) from error

    matching: list[ObjectVersion] = []
    for position in range(bisect_left(keys, prefix + start), len(keys)):
        if not keys[position].startswith(prefix):
            break
        version = objects[keys[position]]
        if not selector.matches(version.object, resource.fields):
            continue
        if limit and len(matching) == limit:
            last = resource.key(matching[-1].object["metadata"].get("namespace", ""), matching[-1].object["metadata"]["name"])
            return StorePage(resource, tuple(matching), revision, _write_token(last.removeprefix(prefix) + "\x00", revision))
        matching.append(version)
    return StorePage(resource, tuple(matching), revision)


def _write_token(start: str, revision: int) -> str:
    token = orjson.dumps({"v": _TOKEN_VERSION, "rv": revision, "start": start})
    return urlsafe_b64encode(token).rstrip(b"=").decode()


def _read_token(token: str) -> tuple[str, int]:
    try:
        content = orjson.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, revision, start = content["v"], int(content["rv"]), str(content["start"])
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error
    if version != _TOKEN_VERSION or not revision or not start:
        raise bad_request("continue key is not valid: it has no version, revision or start")
    return start, revision


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """ADDED, MODIFIED or DELETED, and the object's version."""

    type: str
    version: ObjectVersion


class Watch:
    """One client's watch. `take` returns new events and never waits; the `on_change` callback says that there are more."""

    def __init__(
        self,
        resource: ApiResource,
        collection: Collection,
        *,
        namespace: str,
        selector: Selector,
        revision: int,
        initial: Iterable[ObjectVersion] = (),
    ) -> None:
        self.resource = resource
        self.revision = revision
        self._collection = collection
        self._prefix = f"{namespace}/" if namespace else ""
        self._selector = selector
        self._initial = deque(initial)

    def take(self, limit: int = 500) -> list[StoreEvent]:
        """The events since the last call, at most `limit` changes of them; 410 if they are compacted."""
        if self._initial:
            return [StoreEvent("ADDED", self._initial.popleft()) for _ in range(min(limit, len(self._initial)))]
        events: list[StoreEvent] = []
        while not events:
            changes = self._collection.since(self.revision, limit=limit)
            if not changes:
                break
            self.revision = changes[-1].revision
            events.extend(self._events(changes))
        return events

    def on_change(self, wake: Callable[[], None]) -> None:
        self._collection.listeners[self] = wake

    def close(self) -> None:
        self._collection.listeners.pop(self, None)

    def _events(self, changes: Iterable[ObjectChange]) -> Iterator[StoreEvent]:
        """The changes as events: an object that begins to match the selector is ADDED, one that stops matching is DELETED."""
        for change in changes:
            if not change.key.startswith(self._prefix):
                continue
            before, after = self._matches(change.old), self._matches(change.new)
            if after:
                assert change.new is not None
                yield StoreEvent("MODIFIED" if before else "ADDED", change.new)
            elif before:
                yield StoreEvent("DELETED", change.gone)

    def _matches(self, version: ObjectVersion | None) -> bool:
        return version is not None and self._selector.matches(version.object, self.resource.fields)
