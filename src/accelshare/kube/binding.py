"""Binds a pod: one POST sets its node and its annotations, and the result is certain or explicitly unknown.

Belongs here: sending the Binding, and reading the pod when the response leaves doubt. Never: which node, which annotations.

    response to the POST         meaning                                  next step
    201                          carried out                              Bound
    409                          refused; an earlier POST may have bound  read the pod: bound as wanted → Bound; other version →
                                                                          POST again with that version; else BindRefused
    404, 400, 401, 403, 422, …   not carried out                          BindRefused
    429                          not carried out                          POST again after Retry-After
    502, 503, 504, 408, none     unknown                                  read the pod: bound → as above, not bound → POST again
    other 5xx                    the API server failed                    read the pod: bound → as above, not bound → BindRefused

A repeated POST is safe: the uid must match, and a pod that has a node refuses another, so at most one of several Bindings counts.
Each Binding names its pod's version. API servers check it since Kubernetes 1.23, so any change of the pod invalidates every
Binding that was sent before, however late it arrives (extender/fence.py). The permit is checked before each POST, and confirmed
before a POST with a newer version: that version may be the work of another process, which decides now instead of ours. A bind is
announced before its first POST, and the caller withdraws it when no POST can be in flight any more.
"""

import asyncio
import enum
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol

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

# The API server stores all annotations of a Binding, but refuses later updates of a pod with more than 256 KiB of annotations.
# The pod's own annotations must fit, too.
LARGEST_ANNOTATIONS_BYTES: Final = 200 * 1024

_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 1.0
_SHORTEST_POST_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Bound:
    """The pod has this node and these annotations. `already`: an earlier POST bound it."""

    already: bool = False


class BindRefusalReason(enum.Enum):
    """Why a bind was not carried out."""

    NO_SUCH_POD = "no such pod"  # deleted, or another pod has its name now
    ASSIGNED = "assigned"  # it has another node, or this node with other annotations
    DENIED = "denied"  # the API server refused it, or the credentials are not usable
    NOT_SENT = "not sent"  # there was no connection before the deadline


@dataclass(frozen=True, slots=True)
class BindRefused:
    """Not carried out. `pod` is the pod as it was read afterwards, if it was read.

    `may_follow`: the API server could not write it, or did not know whether it did, and its storage may still carry it out.
    """

    why: BindRefusalReason
    message: str
    pod: bytes | None = field(default=None, repr=False)
    may_follow: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may have been carried out, or may still be: the pod could not be read before the deadline."""

    message: str


@dataclass(frozen=True, slots=True)
class BoundTo:
    """The pod has a node."""

    node: str
    annotations: Mapping[str, str]
    pod: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Unbound:
    """The pod exists and has no node."""

    version: str
    pod: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Missing:
    """No pod has this name and uid."""


class Permit(Protocol):
    """Whether this process may bind pods."""

    def granted(self) -> bool:
        """By this process's own knowledge."""

    async def confirm(self) -> bool:
        """By the API server's knowledge since this call began."""

    async def announce(self, uid: str) -> bool:
        """Record where the next process finds it that a Binding of this pod may be in flight; False: it must not be sent."""

    def withdraw(self, uid: str) -> None:
        """No Binding of this pod is in flight any more."""


class AlwaysPermit:
    """The permit of a process that is the only one that binds."""

    def granted(self) -> bool:
        return True

    async def confirm(self) -> bool:
        return True

    async def announce(self, uid: str) -> bool:
        return True

    def withdraw(self, uid: str) -> None:
        pass


ALWAYS: Final = AlwaysPermit()
NO_PERMIT: Final = "this extender does not hold the lease"


async def bound_state(
    client: Client, namespace: str, name: str, uid: str, *, timeout_s: float | None = None
) -> BoundTo | Unbound | Missing:
    """Which node the pod has now. Raises KubeError if it cannot be read.

    After an Unknown, Unbound is not final: the API server may carry out a request up to a minute after we stopped waiting.
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
    permit: Permit = ALWAYS,
    deadline_s: float = DEADLINE_S,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Bound | BindRefused | Unknown:
    """Set the pod's node and annotations.

    `version` is the pod's resourceVersion as last seen, or empty. If the pod has changed since, it is read.
    Raises ValueError, before anything is sent, for invalid names and annotations, which the API server does not check.
    """
    _check(uid, node, annotations)
    wanted = _Wanted(namespace, name, uid, node, annotations)
    attempt = _Attempt(client, wanted, version, permit, deadline_s=deadline_s, sleep=sleep)
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
        # uid and resourceVersion are preconditions since Kubernetes 1.23; older API servers ignore them.
        metadata = {"name": self.name, "namespace": self.namespace, "uid": self.uid, "annotations": self.annotations}
        if version:
            metadata["resourceVersion"] = version
        target = {"apiVersion": "v1", "kind": "Node", "name": self.node}
        return msgspec.json.encode({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})

    def judge(self, state: BoundTo | Missing) -> Bound | BindRefused:
        """The result for a pod that has a node or does not exist. No Binding in flight can change it."""
        if isinstance(state, Missing):
            return BindRefused(
                BindRefusalReason.NO_SUCH_POD, f"pod {self.namespace}/{self.name} with uid {self.uid} no longer exists"
            )
        if state.node != self.node:
            return BindRefused(BindRefusalReason.ASSIGNED, f"pod {self.namespace}/{self.name} is on node {state.node}", state.pod)
        other = sorted(key for key, value in self.annotations.items() if state.annotations.get(key) != value)
        if other:
            message = f"pod {self.namespace}/{self.name} is on node {self.node} with other values of {', '.join(other)}"
            return BindRefused(BindRefusalReason.ASSIGNED, message, state.pod)
        return Bound(already=True)


class _Meaning(enum.Enum):
    """What the error of a POST means: the rows of the table at the top of the file."""

    NO_POD = enum.auto()
    NOT_DONE = enum.auto()
    LOST = enum.auto()
    CHECK = enum.auto()
    DENIED = enum.auto()


def _meaning(error: KubeError) -> _Meaning:
    match error:
        case NotFound():
            return _Meaning.NO_POD
        case TooManyRequests() | Unreachable(sent=False):
            return _Meaning.NOT_DONE
        case Unreachable() | ApiError(status=408 | 502 | 503 | 504):
            return _Meaning.LOST
        case Conflict():
            return _Meaning.CHECK
        case ApiError(status=status) if status >= 500:
            return _Meaning.CHECK
    return _Meaning.DENIED


class _Attempt:
    """One bind: its POSTs, and what is known about them."""

    def __init__(
        self,
        client: Client,
        wanted: _Wanted,
        version: str,
        permit: Permit,
        *,
        deadline_s: float,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._client = client
        self._permit = permit
        self._wanted = wanted
        self._version = version  # of the pod, as last seen
        self._sleep = sleep
        self._now = asyncio.get_running_loop().time
        self._ends = self._now() + deadline_s
        self._each_s = deadline_s / 2  # leaves time to read the pod after a POST without a response
        self._lost = False  # a POST of ours may have been carried out, or may still be
        self._problem = "no time for a request"

    async def until_known(self) -> Bound | BindRefused | Unknown:
        """POST, read the pod, POST again, until the result is certain or the time is over."""
        wait_s = 0.0
        self._problem = "the lease could not be written"
        if not await self._permit.announce(self._wanted.uid):
            return self._without_permit()
        self._problem = "no response before the deadline"
        while (left_s := self._ends - self._now()) > _SHORTEST_POST_S:
            if not self._permit.granted():
                return self._without_permit()
            lost_before, self._lost = self._lost, True
            try:
                path, body = self._wanted.path, self._wanted.body(self._version)
                await self._client.request("POST", path, body=body, timeout_s=min(self._each_s, left_s))
                return Bound()
            except KubeError as error:
                # All that is needed of it: a variable would keep it with its traceback until garbage is collected.
                meaning, self._problem, conflict = _meaning(error), str(error), isinstance(error, Conflict)
                retry_after_s = error.retry_after_s if isinstance(error, ApiError) else None
            if meaning is _Meaning.NO_POD:
                return BindRefused(BindRefusalReason.NO_SUCH_POD, self._problem)
            outdated = False
            if meaning in (_Meaning.LOST, _Meaning.CHECK):
                state = await self._read_pod()
                if not isinstance(state, Unbound):
                    return state
                outdated = conflict and state.version != self._version
                if state.version != self._version and not await self._permit.confirm():
                    if meaning is not _Meaning.LOST:
                        self._lost = lost_before
                    return self._without_permit()
                self._version = state.version
            if meaning is not _Meaning.LOST:
                self._lost = lost_before
            if meaning in (_Meaning.CHECK, _Meaning.DENIED) and not outdated:
                # An earlier POST whose response was lost may still be carried out.
                if self._lost:
                    return Unknown(self._problem)
                return BindRefused(BindRefusalReason.DENIED, self._problem, may_follow=meaning is _Meaning.CHECK)
            # A version that is outdated once needs no wait: kube-scheduler has written the pod's status.
            await self._sleep(max(wait_s if outdated else max(wait_s, _FIRST_WAIT_S), retry_after_s or 0.0))
            wait_s = min(max(wait_s, _FIRST_WAIT_S) * 2, _LONGEST_WAIT_S)
        return self.out_of_time()

    def out_of_time(self) -> BindRefused | Unknown:
        return Unknown(self._problem) if self._lost else BindRefused(BindRefusalReason.NOT_SENT, self._problem)

    def _without_permit(self) -> BindRefused | Unknown:
        self._problem = NO_PERMIT
        return self.out_of_time()

    async def _read_pod(self) -> Bound | BindRefused | Unknown | Unbound:
        """The result by the pod's own state. Retries until the deadline."""
        wait_s = _FIRST_WAIT_S
        wanted = self._wanted
        while True:
            try:
                state = await bound_state(self._client, wanted.namespace, wanted.name, wanted.uid, timeout_s=self._each_s)
            except KubeError as error:
                if _meaning(error) is _Meaning.DENIED:  # for instance no permission to read pods
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
    """Raise ValueError with all problems at once. The API server checks none of this in a Binding."""
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
            problems.append(f"annotation {key}: its value cannot be encoded as UTF-8")
    if problems:
        raise ValueError("binding: " + "; ".join(problems))


@lru_cache(maxsize=256)  # a catalog has a dozen keys
def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(_KEY.fullmatch(name)) and (not slash or (len(prefix) <= 253 and bool(_PREFIX.fullmatch(prefix.lower()))))


def _bad_key(key: str) -> str:
    rule = "it must be at most 63 letters, digits, '-', '_' and '.', optionally after a DNS name and '/'"
    return f"annotation key {key[:300]!r}: {rule}"
