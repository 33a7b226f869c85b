"""When a certificate is due, and how one CA hands over to the next.

A leaf or a CA is due when a third of its life is left. A new leaf takes effect at once. A new CA first only joins the bundle that
both sides trust; a third of a leaf's life later, when everybody has read that bundle, it begins to sign; and the old one leaves
the bundle when the last leaf that it signed has been replaced for as long. So at every moment both sides trust each other.

Belongs here: these rules, of values and a time. Never: a clock, a Secret.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from accelshare.install.certificates import making, reading
from accelshare.install.certificates.making import Pair, Role
from accelshare.install.certificates.problems import CertificateError

AUTHORITY: Final = "accelshare-ca"
# Below this a leaf could outlive its CA in the middle of a handing over.
LEAVES_IN_A_CA: Final = 4


@dataclass(frozen=True, slots=True)
class Lives:
    """How long certificates last."""

    ca: timedelta = timedelta(days=3650)
    leaf: timedelta = timedelta(days=90)

    def __post_init__(self) -> None:
        if self.leaf <= timedelta(0) or self.ca < LEAVES_IN_A_CA * self.leaf:
            raise CertificateError(
                f"a CA of {self.ca.total_seconds() / 86400:g} days with leaves of {self.leaf.total_seconds() / 86400:g}: "
                f"a CA must last at least {LEAVES_IN_A_CA} times as long as a leaf"
            )

    @property
    def settling(self) -> timedelta:
        """After this everybody has read what was published."""
        return self.leaf / 3


@dataclass(frozen=True, slots=True)
class Trust:
    """The CA that signs, the one that will, and the certificate of the one that did."""

    current: Pair
    following: Pair | None = None
    previous: str | None = None

    @property
    def authorities(self) -> tuple[str, ...]:
        others = (self.following.certificate if self.following else None, self.previous)
        return (self.current.certificate, *(other for other in others if other is not None))

    @property
    def bundle(self) -> str:
        """Whom both sides trust."""
        return "".join(self.authorities)


@dataclass(frozen=True, slots=True)
class Subject:
    """Who a leaf is for. A certificate with more names than needed will do."""

    role: Role
    name: str
    names: frozenset[str] = frozenset()


def due(certificate: str, now: datetime) -> bool:
    """A third of its life is left, or less."""
    facts = reading.facts(certificate)
    return now >= facts.until - (facts.until - facts.made) / 3


def early(certificate: str, now: datetime) -> bool:
    """Nobody accepts it yet: whoever made it had a clock that was ahead."""
    return now < reading.facts(certificate).made - making.CLOCK_SKEW


def trust(before: Trust | None, leaves: Iterable[str], *, now: datetime, lives: Lives) -> Trust:
    """The CAs as they should be from now on. `leaves`: the certificates in use."""
    if before is None or not _in_force(before.current.certificate, now):
        return Trust(making.authority(AUTHORITY, now=now, life=lives.ca))
    if before.following is not None:
        if now < reading.facts(before.following.certificate).made + lives.settling:
            return before
        return Trust(before.following, previous=before.current.certificate)
    if before.previous is not None and _forgotten(before, leaves, now=now, lives=lives):
        before = replace(before, previous=None)
    if due(before.current.certificate, now):
        return replace(before, following=making.authority(AUTHORITY, now=now, life=lives.ca))
    return before


def leaf(before: Pair | None, subject: Subject, by: Trust, *, now: datetime, lives: Lives) -> Pair:
    """The leaf as it should be from now on: the same one as long as it will do."""
    if before is not None and _will_do(before, subject, by.authorities, now):
        return before
    return making.leaf(by.current, subject.role, subject.name, names=subject.names, now=now, life=lives.leaf)


def _in_force(certificate: str, now: datetime) -> bool:
    return now < reading.facts(certificate).until and not early(certificate, now)


def _will_do(pair: Pair, subject: Subject, authorities: Collection[str], now: datetime) -> bool:
    try:
        reading.check(pair)
        known = any(reading.signed_by(pair.certificate, authority) for authority in authorities)
        timely = not due(pair.certificate, now) and not early(pair.certificate, now)
        return known and timely and subject.names <= reading.facts(pair.certificate).names
    except CertificateError:
        return False


def _forgotten(before: Trust, leaves: Iterable[str], *, now: datetime, lives: Lives) -> bool:
    """No leaf is of the previous CA any more, and has not been for a while."""
    return all(
        reading.signed_by(leaf, before.current.certificate) and now >= reading.facts(leaf).made + lives.settling
        for leaf in leaves
    )
