"""Holds a Lease, so that one process at a time is active, also after the last holder crashed.

Belongs here: acquiring, renewing and releasing one coordination/v1 Lease. Never: what its holder does.

Clocks of different machines are never compared: a Lease is free if this process saw no renewal for the Lease's duration.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from accelshare.kube import paths
from accelshare.kube.client import Client
from accelshare.kube.errors import BadAnswer, Conflict, KubeError, NotFound
from accelshare.wire.decoding import Decoder

MERGE: Final = "application/merge-patch+json"
DURATION_S: Final = 30
MOST_TRANSITIONS: Final = 2**31 - 1  # the field has 32 bits


class _Metadata(msgspec.Struct, rename={"version": "resourceVersion"}):
    version: str = ""
    annotations: dict[str, str] | None = None


class LeaseSpec(msgspec.Struct, rename="camel"):
    """The fields of a Lease that matter here."""

    holder_identity: str | None = None
    renew_time: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class LeaseObject(msgspec.Struct):
    """A Lease as the API server has it."""

    metadata: _Metadata
    spec: LeaseSpec


_leases = Decoder(LeaseObject)


def next_transitions(count: int) -> int:
    """One more; 0 after the largest number that the API server takes, so that a Lease with it can be taken."""
    return count + 1 if 0 <= count < MOST_TRANSITIONS else 0


async def read_lease(client: Client, namespace: str, name: str) -> LeaseObject | None:
    """The Lease as it is now; None if there is none."""
    return await client.read(paths.lease(namespace, name), _leases)


async def write_lease(
    client: Client,
    namespace: str,
    name: str,
    *,
    version: str | None,
    spec: dict[str, object],
    annotations: dict[str, str] | None = None,
    owner: dict[str, object] | None = None,
) -> str:
    """Write these fields of the Lease and return its new version; Conflict if it is not at this version (None: not to be there).

    A Lease that is created gets this owner, with which it is deleted.
    """
    if version is not None:
        changed = {"resourceVersion": version, "annotations": annotations or {}}
        body = msgspec.json.encode({"metadata": changed, "spec": spec})
        answer = await client.request("PATCH", paths.lease(namespace, name), body=body, content_type=MERGE)
    else:
        metadata: dict[str, object] = {"name": name, "namespace": namespace, "annotations": annotations or {}}
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        content = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        answer = await client.request("POST", paths.lease(namespace), body=msgspec.json.encode(content))
    try:
        return _leases.decode(answer).metadata.version
    except ValueError as error:
        raise BadAnswer(f"lease {namespace}/{name}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Observed:
    """A Lease as last read, and since when it is unchanged, by our own clock."""

    holder: str
    renewed: str
    since: float


class Lease:
    """One Lease that one process can hold. `identity` is the same after a restart, so a restarted holder still holds it."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        *,
        identity: str,
        duration_s: int = DURATION_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._duration_s = duration_s
        self._clock = clock
        self._seen: _Observed | None = None
        self.holder = ""  # when last read

    async def take(self) -> bool:
        """Acquire or renew it. False while another process holds it."""
        try:
            lease = await read_lease(self._client, self._namespace, self._name)
            if lease is None:
                await self._create()
            elif not self._free(lease.spec):
                return False
            else:
                await self._write(lease)
        except Conflict:
            return False  # another process was first
        self.holder = self._identity
        return True

    async def give_back(self) -> None:
        """Release it, so that the next holder need not wait. A failure is no error: the Lease expires by itself."""
        with contextlib.suppress(KubeError):
            lease = await read_lease(self._client, self._namespace, self._name)
            if lease is not None and lease.spec.holder_identity == self._identity:
                await self._patch(lease.metadata.version, {"holderIdentity": "", "leaseDurationSeconds": 1})

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[bool]:
        """True inside the block if we hold it; it is renewed until the end of the block and then released."""
        if not await self.take():
            yield False
            return
        renewing = asyncio.create_task(self._renew())
        try:
            yield True
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            await self.give_back()

    async def remove(self) -> None:
        with contextlib.suppress(NotFound):
            await self._client.request("DELETE", paths.lease(self._namespace, self._name))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._duration_s / 3)
            with contextlib.suppress(KubeError):  # the next renewal comes before it expires
                await self.take()

    def _free(self, spec: LeaseSpec) -> bool:
        self.holder, renewed = spec.holder_identity or "", spec.renew_time or ""
        if self.holder in ("", self._identity):
            return True
        now = self._clock()
        if self._seen is None or (self._seen.holder, self._seen.renewed) != (self.holder, renewed):
            self._seen = _Observed(self.holder, renewed, now)
        return now - self._seen.since >= (spec.lease_duration_seconds or self._duration_s)

    async def _create(self) -> None:
        spec = {**self._ours(), "acquireTime": stamp(), "leaseTransitions": 0}
        await write_lease(self._client, self._namespace, self._name, version=None, spec=spec)

    async def _write(self, lease: LeaseObject) -> None:
        spec: dict[str, object] = self._ours()
        if lease.spec.holder_identity != self._identity:
            spec |= {"acquireTime": stamp(), "leaseTransitions": next_transitions(lease.spec.lease_transitions or 0)}
        await self._patch(lease.metadata.version, spec)

    async def _patch(self, version: str, spec: dict[str, object]) -> None:
        await write_lease(self._client, self._namespace, self._name, version=version, spec=spec)

    def _ours(self) -> dict[str, object]:
        return {"holderIdentity": self._identity, "leaseDurationSeconds": self._duration_s, "renewTime": stamp()}


def stamp() -> str:
    """The time of day, as a Lease has it. Nobody compares it; it is for people."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
