"""Holds the extenders' Lease: one extender decides, the others stand by.

Belongs here: sending the requests of kube/election, and what follows from the responses; naming on the Lease the pods whose
Binding is about to be sent, many with one write. Never: the decisions of the holder.

An extender that lost its Lease ends: what it remembers of its own binds is outdated, and a new process lists the cluster again.
"""

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

from accelshare.kube.client import Client
from accelshare.kube.election import IN_FLIGHT, SETTLED, Election, Lost, Wait, Write, in_flight_text
from accelshare.kube.errors import Conflict, KubeError, Unreachable
from accelshare.kube.leases import read_lease, stamp, write_lease

log = logging.getLogger(__name__)
RENEW_EVERY_S: Final = 0.75
POLL_EVERY_S: Final = 0.25  # of standbys, and of a holder after a renewal that failed
REQUEST_S: Final = 1.0
# Binds that come sooner after each other are named by one write. kube-scheduler binds beside scheduling the next pods, so this
# delays a bind and not the number of binds in a second.
ANNOUNCE_EVERY_S: Final = 0.05


def boot_clock() -> float:
    """Seconds since the machine was started, including the time in which it was suspended, which other clocks leave out."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class LeaseLostError(Exception):
    """Another extender holds the Lease now, or it was deleted."""


class Leadership:
    """`run` ends only when it is cancelled, or with LeaseLostError."""

    def __init__(
        self,
        client: Client,
        election: Election,
        *,
        namespace: str,
        name: str,
        on_transition: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        """`on_transition` is called when the Lease has another holder."""
        self._client = client
        self._election = election
        self._namespace = namespace
        self._name = name
        self._owner: dict[str, object] | None = None
        self._on_transition = on_transition
        self._clock = clock
        self._turn = asyncio.Lock()
        self._holder = ""
        self._problem = ""
        self.read = False  # at least once
        self.taken = asyncio.Event()
        self.settled_before = False  # the holder before left no bind without a response
        self.in_flight_before: frozenset[str] | None = None  # pods whose Binding by an earlier holder may arrive; None: any
        self._inherited: frozenset[str] | None = None  # the same until they are fenced
        self._in_flight: set[str] = set()  # pods whose Binding by this extender is about to be sent, or may be in flight
        self._announced: frozenset[str] = frozenset()  # the pods that the Lease names
        self._written_at = float("-inf")

    @property
    def holder(self) -> str:
        """The other extender that held the Lease when it was last read or written; empty: none did."""
        return self._election.holder if self._election.holder != self._election.identity else ""

    @property
    def seconds_since_renewal(self) -> float | None:
        """None while this extender is not the holder."""
        return self._election.since_renewal(self._clock())

    def granted(self) -> bool:
        """Whether no other extender can decide now."""
        return self._election.holds(self._clock())

    async def confirm(self) -> bool:
        """Renew now, and return whether the API server accepted it: after this call began, no other extender was the holder."""
        async with self._turn:
            try:
                return await self._advance() and self.granted()
            except (KubeError, LeaseLostError):
                return False

    async def announce(self, uid: str) -> bool:
        """Name the pod on the Lease, and return whether its Binding may be sent now."""
        self._in_flight.add(uid)
        while self.granted():
            async with self._turn:
                if uid in self._announced:
                    return self.granted()
                await asyncio.sleep(max(0.0, self._written_at + ANNOUNCE_EVERY_S - self._clock()))
                try:
                    if await self._advance():
                        continue
                except (KubeError, LeaseLostError):
                    pass
            await asyncio.sleep(POLL_EVERY_S)
        return False

    def withdraw(self, uid: str) -> None:
        """No Binding of the pod is in flight. The next write of the Lease does not name it."""
        self._in_flight.discard(uid)
        self._announced -= {uid}

    def fenced(self) -> None:
        """No Binding of an earlier holder can bind a pod any more."""
        self._inherited = frozenset()

    async def run(self, owner: dict[str, object] | None = None) -> None:
        """Take the Lease when it is free, then renew it. If it does not exist, it gets this owner, with which it is deleted."""
        self._owner = owner
        while True:
            async with self._turn:
                await self._try_to_advance()
            await asyncio.sleep(RENEW_EVERY_S if self._election.renewal() is not None else POLL_EVERY_S)

    async def release(self, settled: Callable[[], bool]) -> None:
        """Give it to the next one at once. A failure is no error: the Lease expires by itself.

        `settled`: whether no bind of this extender or an earlier one is without a response; the next one then fences no pods.
        """
        self._election.resign()
        async with self._turn:
            write = self._election.release()
            if write is None:
                return
            notes = {IN_FLIGHT: self._in_flight_text(write)} | ({SETTLED: str(write.term)} if settled() else {})
            spec: dict[str, object] = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": stamp()}
            try:
                await self._send(write.version, spec, notes)
                log.info("lease name=%s settled=%s outcome=released", self._name, SETTLED in notes)
            except KubeError as error:
                log.warning("lease name=%s outcome=not-released error=%r", self._name, str(error))

    async def _try_to_advance(self) -> None:
        before = self._problem
        try:
            await self._advance()
            self._problem = ""
        except KubeError as error:
            self._problem = str(error)
            if not before:
                log.warning("lease name=%s held=%s error=%r", self._name, self.granted(), self._problem)
        else:
            if before:
                log.info("lease name=%s held=%s outcome=reachable-again", self._name, self.granted())

    async def _advance(self) -> bool:
        """Renew it, or read it and take it if it is free. True if it was written."""
        step: Write | Wait | Lost | None = self._election.renewal()
        if step is None:
            async with _limited():
                lease = await read_lease(self._client, self._namespace, self._name)
            step = self._election.read(lease, self._clock())
            self.read = True
        self._report_holder()
        match step:
            case Wait():
                return False
            case Lost(holder):
                raise LeaseLostError(f"lease {self._namespace}/{self._name} was lost to {holder or 'nobody'}")
            case Write():
                return await self._write(step)

    async def _write(self, write: Write) -> bool:
        identity, now = self._election.identity, stamp()
        spec: dict[str, object] = {
            "holderIdentity": identity,
            "leaseDurationSeconds": self._election.duration_s,
            "renewTime": now,
            "leaseTransitions": write.term,
        }
        if write.taking:
            spec["acquireTime"] = now
            self._inherited = write.in_flight
        sent_at, named = self._clock(), frozenset(self._in_flight)
        try:
            version = await self._send(write.version, spec, {IN_FLIGHT: self._in_flight_text(write)})
        except Conflict:  # another extender was first, or changed it meanwhile
            self._election.doubt()
            return False
        except BaseException:  # also if this task is cancelled: the write may be carried out
            self._election.doubt()
            raise
        self._election.written(write, version, sent_at=sent_at)
        self._announced = named & self._in_flight
        self._written_at = self._clock()
        self._report_holder()
        if write.taking:
            log.info(
                "lease name=%s identity=%s term=%d settled=%s outcome=taken", self._name, identity, write.term, write.settled
            )
            self.settled_before = write.settled
            self.in_flight_before = write.in_flight
            self.taken.set()
        return True

    def _in_flight_text(self, write: Write) -> str:
        return in_flight_text(write.term, None if self._inherited is None else self._inherited | self._in_flight)

    async def _send(self, version: str | None, spec: dict[str, object], notes: dict[str, str] | None = None) -> str:
        async with _limited():
            return await write_lease(
                self._client, self._namespace, self._name, version=version, spec=spec, annotations=notes, owner=self._owner
            )

    def _report_holder(self) -> None:
        holder = self._election.holder
        if holder != self._holder:
            self._holder = holder
            if holder:
                self._on_transition()
                log.info("lease name=%s holder=%s", self._name, holder)


@contextlib.asynccontextmanager
async def _limited() -> AsyncIterator[None]:
    """Also over the retries of a GET: an answer that comes later is of no use."""
    try:
        async with asyncio.timeout(REQUEST_S):
            yield
    except TimeoutError as error:
        raise Unreachable(f"no response within {REQUEST_S:g} s") from error
