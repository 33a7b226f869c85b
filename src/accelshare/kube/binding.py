"""Binds a pod: one POST sets its node and its annotations, and the result is certain or explicitly unknown.

Belongs here: sending the Binding, and finding out what became of it when no answer came. Never: which node, which annotations.

    answer to the POST           what it means                            what is done
    201                          carried out                              Bound
    409                          not now, but maybe by an earlier POST    read the pod: as we want it → Bound; of another version
                                                                          → POST again with that; else Refused
    404, 400, 401, 403, 422, …   not carried out                          Refused
    429                          not carried out                          POST again after Retry-After
    502, 503, 504, 408, none     nobody knows                             read the pod: bound → as above, not yet → POST again
    other 5xx                    the API server failed on its way         read the pod: bound → as above, not yet → Refused

Posting again is safe: the uid must match and a pod that has a node refuses another, so of several Bindings one at most counts.
Each names the version of the pod that it was made for. API servers honour that since Kubernetes 1.23, so that any change of the
pod refuses every Binding that was sent before it, however late it arrives (extender/fence.py).
"""

import asyncio
import enum
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import msgspec

from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import (
    ApiError,
    BadAnswer,
    Conflict,
    KubeError,
    NotFound,
    TooManyRequests,
    Unreachable,
)
from accelshare.wire.decoding import Decoder

# kube-scheduler gives an extender 5 s for a bind unless its configuration says otherwise.
DEADLINE_S: Final = 4.0

# The API server stores any annotation that comes with a Binding, and then refuses every later update of a pod that has more
# than 256 KiB of them. What the pod has already must fit beside ours.
LARGEST_ANNOTATIONS_BYTES: Final = 200 * 1024

_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 1.0
_SHORTEST_POST_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Bound:
    """The pod has this node and these annotations. `already`: an earlier POST had done it."""

    already: bool = False


class Why(enum.Enum):
    """Why a bind was not carried out."""

    NO_SUCH_POD = "no such pod"  # deleted, or another pod has its name now
    ASSIGNED = "assigned"  # it has a node: another one, or this one with other annotations
    DENIED = "denied"  # the API server's word, or the credentials are not usable
    NOT_SENT = "not sent"  # no connection for the whole deadline, so the API server never saw it


@dataclass(frozen=True, slots=True)
class Refused:
    """Definitely not carried out. `pod` is the pod as it was read back, if it was."""

    why: Why
    message: str
    pod: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may have been carried out, or may yet be: the API server could not be asked before the deadline."""

    message: str


@dataclass(frozen=True, slots=True)
class BoundTo:
    """The pod has a node."""

    node: str
    annotations: Mapping[str, str]
    pod: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Unbound:
    """The pod is there and has no node."""

    version: str
    pod: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Missing:
    """No pod has this name, or the one that has it is another."""


async def bound_state(
    client: Client, namespace: str, name: str, uid: str, *, timeout_s: float | None = None
) -> BoundTo | Unbound | Missing:
    """Where the pod is now. Raises KubeError if that cannot be found out.

    After an Unknown, Unbound may still change: the API server works on a request for up to a minute after we stopped waiting.
    """
    try:
        body = await client.request("GET", paths.pod(namespace, name), timeout_s=timeout_s)
    except NotFound:
        return Missing()
    try:
        pod = _pods.decode(body)
    except ValueError as error:
        raise BadAnswer(f"GET pod {namespace}/{name}: not a pod: {error}") from error
    if pod.metadata.uid != uid:
        return Missing()
    if not pod.spec.node_name:
        return Unbound(pod.metadata.resource_version, body)
    return BoundTo(pod.spec.node_name, pod.metadata.annotations or {}, body)


async def bind(
    client: Client,
    *,
    namespace: str,
    name: str,
    uid: str,
    version: str,
    node: str,
    annotations: Mapping[str, str],
    deadline_s: float = DEADLINE_S,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Bound | Refused | Unknown:
    """Give the pod this node and these annotations, or know that it has not got them, or know that nobody can tell.

    `version` is the pod's resourceVersion as last seen, empty if it is not known. If the pod has changed since, it is read.
    Raises ValueError, before anything is sent, for names and annotations that the API server would take and should not.
    """
    _check(uid, node, annotations)
    what = _Wanted(namespace, name, uid, node, annotations)
    attempt = _Attempt(client, what, version, deadline_s=deadline_s, sleep=sleep)
    try:
        async with asyncio.timeout(deadline_s):
            return await attempt.until_known()
    except TimeoutError:
        return attempt.out_of_time()


class _Wanted(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    uid: str
    node: str
    annotations: Mapping[str, str]

    @property
    def path(self) -> str:
        return paths.binding(self.namespace, self.name)

    def body(self, version: str) -> bytes:
        # uid and resourceVersion are preconditions since Kubernetes 1.23; older API servers do not look at them.
        metadata = {"name": self.name, "namespace": self.namespace, "uid": self.uid, "annotations": self.annotations}
        if version:
            metadata["resourceVersion"] = version
        target = {"apiVersion": "v1", "kind": "Node", "name": self.node}
        return msgspec.json.encode({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})

    def judge(self, state: BoundTo | Missing) -> Bound | Refused:
        """What a pod that has a node, or is not there, says about our bind. No Binding that is under way can change it."""
        if isinstance(state, Missing):
            return Refused(Why.NO_SUCH_POD, f"pod {self.namespace}/{self.name} with uid {self.uid} does not exist any more")
        if state.node != self.node:
            return Refused(Why.ASSIGNED, f"pod {self.namespace}/{self.name} is on node {state.node}", state.pod)
        other = sorted(key for key, value in self.annotations.items() if state.annotations.get(key) != value)
        if other:
            message = f"pod {self.namespace}/{self.name} is on node {self.node}, but not with our values of {', '.join(other)}"
            return Refused(Why.ASSIGNED, message, state.pod)
        return Bound(already=True)


class _Fate(enum.Enum):
    """What the error of one POST says about that POST. The table at the top of the file, row by row."""

    NO_POD = enum.auto()
    NOT_DONE = enum.auto()
    LOST = enum.auto()
    CHECK = enum.auto()
    DENIED = enum.auto()


def _fate(error: KubeError) -> _Fate:
    match error:
        case NotFound():
            return _Fate.NO_POD
        case TooManyRequests() | Unreachable(sent=False):
            return _Fate.NOT_DONE
        case Unreachable() | ApiError(status=408 | 502 | 503 | 504):
            return _Fate.LOST
        case Conflict():
            return _Fate.CHECK
        case ApiError(status=status) if status >= 500:
            return _Fate.CHECK
    return _Fate.DENIED


class _Attempt:
    """One bind on its way to an answer, and what is known so far."""

    def __init__(
        self, client: Client, wanted: _Wanted, version: str, *, deadline_s: float, sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._version = version  # of the pod, as last seen
        self._sleep = sleep
        self._now = asyncio.get_running_loop().time
        self._ends = self._now() + deadline_s
        self._each_s = deadline_s / 2  # a POST without an answer leaves time to look
        self._lost = False  # a POST of ours may have been carried out, or may yet be
        self._problem = "no time to ask"

    async def until_known(self) -> Bound | Refused | Unknown:
        """POST, and look, and POST again, until the answer is certain or the time is over."""
        wait_s = 0.0
        while (left_s := self._ends - self._now()) > _SHORTEST_POST_S:
            lost_before, self._lost = self._lost, True
            try:
                path, body = self._wanted.path, self._wanted.body(self._version)
                await self._client.request("POST", path, body=body, timeout_s=min(self._each_s, left_s))
                return Bound()
            except KubeError as caught:
                error, fate = caught, _fate(caught)
            self._problem = str(error)
            if fate is _Fate.NO_POD:
                return Refused(Why.NO_SUCH_POD, self._problem)
            outdated = False
            if fate in (_Fate.LOST, _Fate.CHECK):
                state = await self._look()
                if not isinstance(state, Unbound):
                    return state
                outdated = isinstance(error, Conflict) and state.version != self._version
                self._version = state.version
            if fate is not _Fate.LOST:
                self._lost = lost_before
            if fate in (_Fate.CHECK, _Fate.DENIED) and not outdated:
                # An earlier POST that got lost may still come through, whatever this one was told.
                return Unknown(self._problem) if self._lost else Refused(Why.DENIED, self._problem)
            asked_s = error.retry_after_s if isinstance(error, ApiError) else None
            # kube-scheduler has written the pod's status since: once is no reason to wait.
            await self._sleep(max(wait_s if outdated else max(wait_s, _FIRST_WAIT_S), asked_s or 0.0))
            wait_s = min(max(wait_s, _FIRST_WAIT_S) * 2, _LONGEST_WAIT_S)
        return self.out_of_time()

    def out_of_time(self) -> Refused | Unknown:
        return Unknown(self._problem) if self._lost else Refused(Why.NOT_SENT, self._problem)

    async def _look(self) -> Bound | Refused | Unknown | Unbound:
        """What the pod itself says. Asks until it is told or the deadline ends it."""
        wait_s = _FIRST_WAIT_S
        wanted = self._wanted
        while True:
            try:
                state = await bound_state(self._client, wanted.namespace, wanted.name, wanted.uid, timeout_s=self._each_s)
            except KubeError as error:
                if _fate(error) is _Fate.DENIED:  # for instance no permission to read pods
                    return Unknown(f"{self._problem}; then {error}")
            else:
                return state if isinstance(state, Unbound) else wanted.judge(state)
            await self._sleep(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)


class _PodMetadata(msgspec.Struct, rename={"resource_version": "resourceVersion"}):
    uid: str
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _PodSpec(msgspec.Struct, rename={"node_name": "nodeName"}):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _PodMetadata
    spec: _PodSpec


_pods = Decoder(_Pod)


_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_KEY: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)


def _check(uid: str, node: str, annotations: Mapping[str, str]) -> None:
    """All problems at once, because the API server checks none of this in a Binding."""
    problems = [f"{what} is empty" for what, value in (("uid", uid), ("node", node)) if not value]
    problems += [_bad_key(key) for key in annotations if not _is_key(key)]
    text = "".join([part for pair in annotations.items() for part in pair])
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > LARGEST_ANNOTATIONS_BYTES:
        problems.append(f"annotations have {size} bytes; they must have at most {LARGEST_ANNOTATIONS_BYTES}")
    for key, value in annotations.items() if not text.isascii() else ():
        try:
            value.encode()
        except UnicodeEncodeError:
            problems.append(f"annotation {key}: its value is not text that UTF-8 can write")
    if problems:
        raise ValueError("binding: " + "; ".join(problems))


@lru_cache(maxsize=256)  # a catalog writes a dozen keys, again and again
def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(_KEY.fullmatch(name)) and (not slash or (len(prefix) <= 253 and bool(_PREFIX.fullmatch(prefix.lower()))))


def _bad_key(key: str) -> str:
    rule = "it must be at most 63 letters, digits, '-', '_' and '.', if need be after a DNS name and '/'"
    return f"annotation key {key[:300]!r}: {rule}"
