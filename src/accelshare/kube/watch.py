"""A reflector: lists and watches one resource for ever and yields every change.

Belongs here: when to list again, when to resume, which objects are gone. Never: what an object means (`decode`), or a copy of
the objects: only their identities are kept.
"""

import asyncio
import random as _random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from accelshare.kube import errors
from accelshare.kube.client import Client, WatchEvent
from accelshare.wire.decoding import Decoder, ListDecoder, UnreadableError, version_number

T = TypeVar("T")

ITEMS_A_TURN: Final = 100  # of a list, before the loop's other tasks get a turn
# A watch that lasted this long worked, even if nothing happened in it.
GOOD_WATCH_S: Final = 5.0
PATIENCE_S: Final = 3.0  # for a version that is known to be there, until the watch is opened again


class Seen(NamedTuple, Generic[T]):
    """The object exists, with this state."""

    obj: T


@dataclass(frozen=True, slots=True)
class Gone:
    """The object was deleted, or is no longer relevant, at this version."""

    identity: str
    version: int


@dataclass(frozen=True, slots=True)
class Malformed:
    """The object could not be decoded. If it was seen before, its last state stays valid."""

    name: str
    problem: str


@dataclass(frozen=True, slots=True)
class Synced:
    """A list is complete: every object of this version was yielded, every other one is gone."""

    version: int


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The watch is interrupted: the state so far stays valid, but may be outdated."""

    problem: str
    retry_in_s: float


Change = Seen[T] | Gone | Malformed | Synced | Interrupted


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with jitter."""

    first_s: float = 0.2
    longest_s: float = 30.0

    def delay_s(self, failures: int, random: Callable[[], float]) -> float:
        """Between half of the doubled delay and all of it."""
        full_s = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 32))
        return full_s * (0.5 + 0.5 * random())


@dataclass(frozen=True, slots=True)
class BinaryLists(Generic[T]):
    """How lists are read in protobuf, and one of their messages, which must give the same as `decode` gives for JSON."""

    messages: ListDecoder
    decode: Callable[[Any], T | None]


class Reflector(Generic[T]):
    """Everything under one path, as a stream of changes that never ends and never raises a KubeError.

    `decode` returns None for an object that is not relevant, and raises ValueError for a malformed one. `identity` must be the
    metadata field that `identified_by` names: it is read from malformed objects too, and a user can give an object the name of
    another's uid.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        decode: Callable[[msgspec.Raw], T | None],
        identity: Callable[[T], str],
        identified_by: Literal["uid", "name"] = "uid",
        params: Mapping[str, str] | None = None,
        binary: BinaryLists[T] | None = None,
        backoff: Backoff = Backoff(),  # noqa: B008 – frozen
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = _random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`binary`: lists are asked for in protobuf. Watches are always JSON: a few events cost the API server little."""
        self._client = client
        self._path = path
        self._decode = decode
        self._binary = binary
        self._identity = identity
        self._identified_by = identified_by
        self._params = dict(params or {})
        self._backoff = backoff
        self._sleep = sleep
        self._random = random
        self._clock = clock
        self._known: set[str] = set()
        self._version: str | None = None  # where the next watch starts; None: a list is needed
        self._failures = 0
        self._first = True
        self.watching = False  # a watch is open: what was yielded is up to date
        self.relists = 0  # lists completed after the first one
        self.resumes = 0  # watches that continued where the last one ended
        self.events = 0  # watch events, bookmarks included
        self._last_event_at = clock()
        self._taken: msgspec.Raw | None = None  # the object of the last event whose changes the consumer has taken
        self._listed = 0  # the version of the last list that the consumer has taken
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []
        self._end_watch: Callable[[str], None] | None = None  # while one is open
        self._resting: asyncio.Future[None] | None = None  # after an error, until the next try

    @property
    def silent_s(self) -> float:
        """Seconds since the last watch event or bookmark; API servers send a bookmark a minute."""
        return self._clock() - self._last_event_at

    def knows(self, identity: str) -> bool:
        """Whether this object was yielded as Seen and not as Gone since."""
        return identity in self._known

    @property
    def listing(self) -> bool:
        """Whether the objects that are Seen now are those of a list, which has them in no order."""
        return self._version is None

    @property
    def newest(self) -> int:
        """The version up to which the consumer has got every change."""
        return max(self._listed, version_number(_Object.of(self._taken).resource_version) if self._taken else 0)

    async def wait_for_version(self, version: int, *, patience_s: float = PATIENCE_S) -> bool:
        """Wait until the consumer has got every change up to this version, which must be that of an object under the path.

        A watch that does not show it in time stands still, say because something between here and the API server keeps the
        connection and forwards nothing. It is opened again; true: it had to be.
        """
        if version <= self.newest:
            return False
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited.append((version, reached))
        self._end_rest()
        reopened = False
        while not (await asyncio.wait([reached], timeout=patience_s))[0]:
            self._end_rest()
            reopened |= self.reopen(f"version {version} was not shown within {patience_s:g} s")
            patience_s *= 2
        return reopened

    def reopen(self, why: str) -> bool:
        """End the watch, so that the next one continues where it was; False if none is open."""
        if self._end_watch is None:
            return False
        self._end_watch(why)
        return True

    async def changes(self) -> AsyncGenerator[Change[T], None]:
        """List, watch, resume, list again. The same fact may come twice; a fact that is over is always followed by Gone."""
        while True:
            try:
                if self._version is None:
                    async with aclosing(self._list()) as listed:
                        async for part in listed:
                            for change in part:
                                yield change
                else:
                    self.resumes += 1
                async with aclosing(self._watch()) as watched:
                    async for change in watched:
                        yield change
            except errors.KubeError as error:
                self._failures += 1
                wait_s = self._backoff.delay_s(self._failures, self._random)
                if isinstance(error, errors.ApiError) and error.retry_after_s is not None:
                    wait_s = min(self._backoff.longest_s, max(wait_s, error.retry_after_s))
                if not _can_resume(error):
                    self._version = None
                yield Interrupted(str(error), wait_s)
                await self._rest(wait_s)

    async def _rest(self, wait_s: float) -> None:
        resting = self._resting = asyncio.ensure_future(self._sleep(wait_s))
        try:
            await asyncio.wait([resting])
        finally:
            self._resting = None
            resting.cancel()

    def _end_rest(self) -> None:
        """The API server has answered somebody, so there is nothing to wait for any more."""
        if self._resting is not None:
            self._failures = 0
            self._resting.cancel()

    async def _list(self) -> AsyncGenerator[Iterable[Change[T]], None]:
        """Every object, then what is not there any more. A list that fails halfway proves no absence."""
        listed: set[str] | None = set() if self._known else None  # the first time, nothing can be gone
        version = ""
        messages = self._binary.messages if self._binary is not None else None
        async with aclosing(self._client.pages(self._path, params=self._params, messages=messages)) as pages:
            async for page in pages:
                if page.restarted:
                    listed, version = set(), ""
                # Of the versions of several pages the first: a watch from there may repeat a change, but cannot miss one.
                version = version or page.resource_version
                self._last_event_at = self._clock()
                for start in range(0, len(page.items), ITEMS_A_TURN):
                    await asyncio.sleep(0)  # others get a turn, and the next page is requested as soon as one has come
                    yield self._listed_changes(page.items[start : start + ITEMS_A_TURN], listed)
        gone = self._known - listed if listed is not None else set()
        self._known -= gone  # &= would keep the strings of this list, beside those that consumers have in memory
        self._version = version
        self.relists += not self._first
        self._first = False
        yield [*(Gone(identity, version_number(version)) for identity in sorted(gone)), Synced(version_number(version))]
        self._listed = version_number(version)
        self._reached(self._listed)

    def _listed_changes(self, items: Sequence[Any], listed: set[str] | None) -> Iterator[Change[T]]:
        """`listed`: to which the identities of these objects are added."""
        for raw in items:
            change = self._read(raw)
            if change is None:
                continue
            if listed is not None:
                listed.add(self._identity(change.obj) if isinstance(change, Seen) else self._identity_of(_Object.of(raw)))
            yield change

    async def _watch(self) -> AsyncGenerator[Change[T], None]:
        """Changes until the server ends the watch."""
        assert self._version is not None
        since, events_before = self._clock(), self.events
        latest: msgspec.Raw | None = None
        watch = self._client.watch(self._path, resource_version=self._version, params=self._params, on_open=self._opened)
        try:
            async with aclosing(watch) as events:
                async for event in events:
                    self.events += 1
                    self._last_event_at = self._clock()
                    self._failures = 0
                    latest = event.object
                    for change in self._event_changes(event):
                        yield change
                    self._taken = latest
                    if self._awaited:
                        self._reached(version_number(_Object.of(latest).resource_version))
        finally:
            self.watching = False
            self._end_watch = None
            # Only the last event's version is needed, and only now.
            self._version = (_Object.of(latest).resource_version if latest is not None else "") or self._version
            if self._clock() - since >= GOOD_WATCH_S:
                self._failures = 0
        if self.events == events_before and self._clock() - since < GOOD_WATCH_S:
            # Watching again at once would be a busy loop.
            raise errors.Unreachable(f"watch {self._path}: ended at once and without an event")

    def _opened(self, end_watch: Callable[[str], None]) -> None:
        self.watching = True
        self._end_watch = end_watch

    def _reached(self, version: int) -> None:
        """The consumer has taken what came up to this version: it asked for the next change."""
        for awaited, reached in self._awaited:
            if awaited <= version and not reached.done():
                reached.set_result(None)
        self._awaited = [entry for entry in self._awaited if not entry[1].done()]

    def _event_changes(self, event: WatchEvent) -> Iterator[Change[T]]:
        """What one event changes."""
        if event.type == "BOOKMARK":
            return
        change = self._read(event.object) if event.type != "DELETED" else None
        if change is not None:
            yield change
            return
        # Deleted, or no longer relevant. An object that was never yielded needs no Gone.
        about = _Object.of(event.object)
        identity = self._identity_of(about)
        if identity in self._known:
            self._known.discard(identity)
            yield Gone(identity, version_number(about.resource_version))

    def _read(self, raw: Any) -> Seen[T] | Malformed | None:
        """`raw`: an object in JSON, or a message of a list."""
        try:
            obj = self._decode(raw) if isinstance(raw, msgspec.Raw) or self._binary is None else self._binary.decode(raw)
        except ValueError as error:
            return Malformed(_Object.of(raw).full_name, str(error))
        if obj is None:
            return None
        identity = self._identity(obj)
        if not identity:
            return Malformed(_Object.of(raw).full_name, f"it has no metadata.{self._identified_by}")
        self._known.add(identity)
        return Seen(obj)

    def _identity_of(self, about: "_Object") -> str:
        return about.uid if self._identified_by == "uid" else about.name


@dataclass(frozen=True, slots=True)
class _Object:
    """The metadata of any object, also of a malformed one: a field that is not a string counts as absent."""

    namespace: str
    name: str
    uid: str
    resource_version: str

    @classmethod
    def of(cls, raw: Any) -> "_Object":
        """`raw`: an object in JSON, or a message of a list."""
        try:
            metadata = _metadata.decode(raw).metadata if isinstance(raw, msgspec.Raw) else raw.metadata
        except UnreadableError:
            metadata = _Metadata()
        fields = (metadata.namespace, metadata.name, metadata.uid, metadata.resource_version)
        return cls(*(field if isinstance(field, str) else "" for field in fields))

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name or "(no name)"


class _Metadata(msgspec.Struct, rename={"resource_version": "resourceVersion"}):
    namespace: Any = ""
    name: Any = ""
    uid: Any = ""
    resource_version: Any = ""


class _HasMetadata(msgspec.Struct):
    metadata: _Metadata


_metadata = Decoder(_HasMetadata)


# After these the next watch can start where this one ended. Anything else needs a new list: 410 above all, and 504, which the API
# server also sends for a version from the future, as after a restored etcd.
_RESUMABLE: Final = frozenset({401, 403, 429, 500, 502, 503})


def _can_resume(error: errors.KubeError) -> bool:
    if isinstance(error, errors.ApiError):
        return error.status in _RESUMABLE
    return not isinstance(error, errors.BadAnswer)
