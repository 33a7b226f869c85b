"""Writes core/v1 Events on pods; a repeated Event is counted, at most once a minute.

Belongs here: creating Events and counting them up. Never: their messages; nor an exception, because no caller may fail because
an Event could not be written.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict, NotFound
from accelshare.terminal import visible
from accelshare.wire.decoding import Decoder

# The API server refuses a longer note in events.k8s.io, which is the same object under another name.
LONGEST_MESSAGE_BYTES: Final = 1024
REMEMBERED: Final = 4096
TIMEOUT_S: Final = 5.0
MOST_AT_ONCE: Final = 8  # thousands of pods may be wrong in the same way, and each write has a connection of its own

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PodRef:
    """The pod that an Event is about, or an object of another kind of core/v1."""

    namespace: str
    name: str
    uid: str
    kind: str = "Pod"


@dataclass(slots=True)
class _Recorded:
    at_s: float
    count: int = 0  # the Event's count in the cluster, as far as we know


class Events:
    """`clock` is the time of day in seconds, because it is written into the Events."""

    def __init__(
        self,
        client: Client,
        *,
        component: str,
        clock: Callable[[], float],
        every_s: float = 60.0,
        remembered: int = REMEMBERED,
    ) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._every_s = every_s
        self._remembered = remembered
        self._turn = asyncio.Semaphore(MOST_AT_ONCE)
        self._recorded: OrderedDict[str, _Recorded] = OrderedDict()  # by the Event's name, least recent first

    async def record(self, pod: PodRef, *, kind: Literal["Normal", "Warning"], reason: str, message: str) -> bool:
        """Write the Event, or count it up. False if it was written less than a minute ago, or could not be written."""
        message = _cut(visible(message))
        name = _name(pod, reason, message)
        now = self._clock()
        recorded = self._recorded.get(name)
        if recorded is not None and self._lately(recorded.at_s, now):
            return False
        recorded = _Recorded(at_s=now, count=recorded.count if recorded is not None else 0)
        self._remember(name, recorded)  # before the write, so that a concurrent call does not write it too
        try:
            async with self._turn:
                return await self._write(pod, name, recorded, kind, reason, message)
        except Exception as error:  # no caller may fail because of an Event
            log.debug("event pod=%s/%s reason=%s outcome=not-written problem=%s", pod.namespace, pod.name, reason, error)
            return False

    def _lately(self, then_s: float, now_s: float) -> bool:
        """Less than a minute ago. A time in the future is ignored: a clock was set back, or another clock is ahead of ours."""
        return 0 <= now_s - then_s < self._every_s

    def _remember(self, name: str, recorded: _Recorded) -> None:
        self._recorded[name] = recorded
        self._recorded.move_to_end(name)
        while len(self._recorded) > self._remembered:
            self._recorded.popitem(last=False)

    async def _write(self, pod: PodRef, name: str, recorded: _Recorded, kind: str, reason: str, message: str) -> bool:
        """Whether something was written. Updates `recorded` to what the cluster has."""
        stamp = _stamp(recorded.at_s)
        if recorded.count:
            try:
                await self._count_up(pod, name, recorded, stamp)
            except NotFound:  # the API server deletes Events after an hour
                pass
            else:
                return True
        try:
            await self._create(pod, name, stamp, kind, reason, message)
        except Conflict:  # written before a restart, or by another replica
            written = await self._read(pod, name)
            recorded.count = written.count or 1
            if written.last_timestamp is not None and self._lately(written.last_timestamp.timestamp(), recorded.at_s):
                recorded.at_s = written.last_timestamp.timestamp()
                return False
            await self._count_up(pod, name, recorded, stamp)
            return True
        recorded.count = 1
        return True

    async def _create(self, pod: PodRef, name: str, stamp: str, kind: str, reason: str, message: str) -> None:
        about = {"apiVersion": "v1", "kind": pod.kind, "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": pod.namespace, "name": name},
            "involvedObject": about,
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        body = msgspec.json.encode(event)
        await self._client.request("POST", paths.events(pod.namespace), body=body, timeout_s=TIMEOUT_S)

    async def _count_up(self, pod: PodRef, name: str, recorded: _Recorded, stamp: str) -> None:
        await self._client.request(
            "PATCH",
            f"{paths.events(pod.namespace)}/{name}",
            body=msgspec.json.encode({"count": recorded.count + 1, "lastTimestamp": stamp}),
            content_type="application/merge-patch+json",
            timeout_s=TIMEOUT_S,
        )
        recorded.count += 1

    async def _read(self, pod: PodRef, name: str) -> "_Written":
        body = await self._client.request("GET", f"{paths.events(pod.namespace)}/{name}", timeout_s=TIMEOUT_S)
        return _written.decode(body)


class _Written(msgspec.Struct, rename="camel"):
    count: int | None = None
    last_timestamp: datetime | None = None


_written = Decoder(_Written)


def _name(pod: PodRef, reason: str, message: str) -> str:
    """The same message about the same pod is the same Event, also after a restart and from several replicas."""
    identity = "\0".join((pod.uid, reason, message)).encode("utf-8", "replace")
    return f"{pod.name[:200].rstrip('.-')}.{hashlib.sha256(identity).hexdigest()[:20]}"


def _cut(message: str) -> str:
    """At most 1024 bytes, and never half a character."""
    return message.encode("utf-8", "replace")[:LONGEST_MESSAGE_BYTES].decode("utf-8", "ignore")


def _stamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
