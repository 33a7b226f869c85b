"""Decides who holds a Lease: what was read and written comes in, the next request comes out.

Belongs here: when a Lease is free, how long it is held, when it is lost. Never: a request, a clock of its own.

Clocks of different machines are never compared. A standby counts from the moment at which it saw the Lease change. A holder
counts from the moment before it sent its last renewal, which is earlier, and stops a margin before the end.

A holder names on the Lease the pods whose Binding it sends, before it sends them. A write of the Lease succeeds only at the
version that its writer knows, so the next holder has read the last names that the earlier holder could write.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from accelshare.kube.leases import LeaseObject, next_transitions
from accelshare.wire.decoding import version_number

DURATION_S: Final = 3
MARGIN_S: Final = 0.5  # for clocks that run at different speeds, and for the time from a check to the request that it allows
LONGEST_S: Final = 60  # a duration in a Lease that is longer, or no duration, counts as this long

# An annotation of a released Lease: the transitions at whose end nothing was without a response.
SETTLED: Final = "accelshare.io/settled-at-transition"
# An annotation of a held Lease: the transitions for which it is valid, then the uids of the pods whose Binding may be in flight.
IN_FLIGHT: Final = "accelshare.io/binds-in-flight"
ANY_POD: Final = "*"  # in place of the uids: it is not known which
MOST_IN_FLIGHT: Final = 2_000  # uids on a Lease, some 74 kB; with more, any pod may be meant


def in_flight_text(term: int, uids: Collection[str] | None) -> str:
    """The annotation. None: any pod."""
    names = (ANY_POD,) if uids is None or len(uids) > MOST_IN_FLIGHT else sorted(uids)
    return " ".join((str(term), *names))


def in_flight_uids(text: str | None, term: int) -> frozenset[str] | None:
    """The pods that the annotation names; None if it is not of this term: an earlier version of accelshare does not write it."""
    written, *uids = (text or "").split(" ")
    if written != str(term) or ANY_POD in uids or len(uids) > MOST_IN_FLIGHT:
        return None
    return frozenset(uids)


@dataclass(frozen=True, slots=True)
class Write:
    """Write the Lease at this version (None: create it) with this number of transitions. `taking`: it was not ours before.

    `settled`: the holder before has released it, and nothing that it had sent was without a response.
    `in_flight`: the pods whose Binding by an earlier holder may be in flight, if `taking`; None: any pod.
    """

    version: str | None
    term: int
    taking: bool
    settled: bool = False
    in_flight: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Another process holds it."""

    holder: str


@dataclass(frozen=True, slots=True)
class Lost:
    """It was ours, and is not any more. Nothing that this process remembers from its time as the holder can be trusted."""

    holder: str


class Election:
    """One process's view of one Lease. `identity` is unique to the process: a restarted one is another."""

    def __init__(self, identity: str, *, duration_s: int = DURATION_S, margin_s: float = MARGIN_S) -> None:
        self.identity = identity
        self.duration_s = duration_s
        self._margin_s = margin_s
        self._version: str | None = None  # of the Lease, as last read or written
        self._unchanged_since = float("-inf")
        self._must_read = False  # before the next renewal
        self._term: int | None = None  # the Lease's transitions while it is ours
        self._renewed_at = float("-inf")  # when the last successful renewal was sent
        self._over = False  # released or lost
        self.holder = ""  # when last read or written

    @property
    def took(self) -> bool:
        """Whether this process took the Lease at some time and has not lost or released it, as far as it knows."""
        return self._term is not None and not self._over

    def holds(self, now: float) -> bool:
        """Whether no other process can hold it now."""
        return self.took and now < self._renewed_at + self.duration_s - self._margin_s

    def since_renewal(self, now: float) -> float | None:
        return now - self._renewed_at if self.took else None

    def renewal(self) -> Write | None:
        """The next renewal, if the Lease is ours at a version that is known."""
        if not self.took or self._term is None or self._version is None or self._must_read:
            return None
        return Write(self._version, self._term, taking=False)

    def doubt(self) -> None:
        """A write was refused or not answered: the Lease must be read before the next one."""
        self._must_read = True

    def read(self, lease: LeaseObject | None, at: float) -> Write | Wait | Lost:
        """What to do about the Lease as it was read at this time; None: there is none."""
        self._must_read = False
        if lease is None:
            self.holder = ""
            return self._lose() if self._term is not None else Write(None, 0, taking=True)
        spec, version = lease.spec, lease.metadata.version
        term = spec.lease_transitions or 0
        self.holder = spec.holder_identity or ""
        if version_number(version) < version_number(self._version or ""):
            return self._lose()  # a restored etcd: what this process remembers is of a history that is gone
        if version != self._version:
            self._version, self._unchanged_since = version, at
        if self._term is not None:
            ours = self.holder == self.identity and term == self._term
            return Write(version, term, taking=False) if ours and not self._over else self._lose()
        notes = lease.metadata.annotations or {}
        in_flight = in_flight_uids(notes.get(IN_FLIGHT), term)
        if self.holder == self.identity:  # the response to our first write was lost
            return Write(version, term, taking=True, in_flight=in_flight)
        if not self.holder and notes.get(SETTLED) == str(term):
            return Write(version, next_transitions(term), taking=True, settled=True, in_flight=frozenset())
        if not self.holder or at - self._unchanged_since >= _bounded(spec.lease_duration_seconds):
            return Write(version, next_transitions(term), taking=True, in_flight=in_flight)
        return Wait(self.holder)

    def written(self, write: Write, version: str, *, sent_at: float) -> None:
        """The API server carried out this write, which was sent at this time; the Lease is now at this version."""
        self._term = write.term
        self._version = version or None
        self._renewed_at = sent_at
        self.holder = self.identity

    def resign(self) -> None:
        """End our time as the holder, at once."""
        self._over = True

    def release(self) -> Write | None:
        """The write that tells the others that we resigned, unless the Lease may be another's."""
        if self._term is None or self._version is None or self._must_read or self.holder != self.identity:
            return None
        return Write(self._version, self._term, taking=False)

    def _lose(self) -> Lost:
        self._over = True
        return Lost(self.holder)


def _bounded(duration_s: int | None) -> int:
    return duration_s if duration_s is not None and 0 < duration_s < LONGEST_S else LONGEST_S
