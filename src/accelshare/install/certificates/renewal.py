"""When a certificate is due for renewal, and how one CA replaces another.

A leaf or a CA is due when a third of its lifetime is left. A new leaf is used at once. A new CA first only joins the bundle that
both sides trust; a third of a leaf's lifetime later, when both sides have read that bundle, it begins to sign; the old CA leaves
the bundle when the last leaf that it signed was replaced that long ago. So both sides trust each other at every moment.

Belongs here: these rules, as functions of values and a time. Never: a clock, a Secret.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from accelshare.install.certificates import x509
from accelshare.install.certificates.x509 import CertificateRole, Pair
from accelshare.install.errors import CertificateError

AUTHORITY: Final = "accelshare-ca"
# With a shorter-lived CA a leaf could outlive it during a replacement.
LEAVES_IN_A_CA: Final = 4


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Lifetimes of CAs and leaves."""

    ca: timedelta = timedelta(days=3650)
    leaf: timedelta = timedelta(days=90)

    def __post_init__(self) -> None:
        if self.leaf <= timedelta(0) or self.ca < LEAVES_IN_A_CA * self.leaf:
            raise CertificateError(
                f"a CA of {self.ca.total_seconds() / 86400:g} days with leaves of {self.leaf.total_seconds() / 86400:g}: "
                f"a CA must last at least {LEAVES_IN_A_CA} times as long as a leaf"
            )

    @property
    def publication(self) -> timedelta:
        """The time after which both sides have read a published bundle."""
        return self.leaf / 3


@dataclass(frozen=True, slots=True)
class Trust:
    """The CA that signs, the next one, and the certificate of the previous one."""

    current: Pair
    following: Pair | None = None
    previous: str | None = None

    @property
    def authorities(self) -> tuple[str, ...]:
        others = (self.following.certificate if self.following else None, self.previous)
        return (self.current.certificate, *(other for other in others if other is not None))

    @property
    def bundle(self) -> str:
        """The CAs that both sides trust, as PEM."""
        return "".join(self.authorities)


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a leaf identifies. A leaf with more names than needed is good enough."""

    role: CertificateRole
    name: str
    names: frozenset[str] = frozenset()


def due(certificate: str, now: datetime) -> bool:
    """Whether a third of its lifetime or less is left."""
    facts = x509.facts(certificate)
    return now >= facts.until - (facts.until - facts.made) / 3


def not_yet_valid(certificate: str, now: datetime) -> bool:
    """Whether it starts in the future, because the clock of its issuer was ahead."""
    return now < x509.facts(certificate).made - x509.CLOCK_SKEW


def trust(before: Trust | None, leaves: Iterable[str], *, now: datetime, lifetimes: Lifetimes) -> Trust:
    """The CAs to use from now on. `leaves`: the certificates in use."""
    if before is None or not _is_valid(before.current.certificate, now):
        return Trust(x509.authority(AUTHORITY, now=now, life=lifetimes.ca))
    if before.following is not None:
        if now < x509.facts(before.following.certificate).made + lifetimes.publication:
            return before
        return Trust(before.following, previous=before.current.certificate)
    if before.previous is not None and _unused(before, leaves, now=now, lifetimes=lifetimes):
        before = replace(before, previous=None)
    if due(before.current.certificate, now):
        return replace(before, following=x509.authority(AUTHORITY, now=now, life=lifetimes.ca))
    return before


def leaf(before: Pair | None, subject: Subject, by: Trust, *, now: datetime, lifetimes: Lifetimes) -> Pair:
    """The leaf to use from now on: the same one as long as it is good enough."""
    if before is not None and _is_good(before, subject, by.authorities, now):
        return before
    return x509.leaf(by.current, subject.role, subject.name, names=subject.names, now=now, life=lifetimes.leaf)


def _is_valid(certificate: str, now: datetime) -> bool:
    return now < x509.facts(certificate).until and not not_yet_valid(certificate, now)


def _is_good(pair: Pair, subject: Subject, authorities: Collection[str], now: datetime) -> bool:
    try:
        x509.check(pair)
        known = any(x509.signed_by(pair.certificate, authority) for authority in authorities)
        timely = not due(pair.certificate, now) and not not_yet_valid(pair.certificate, now)
        return known and timely and subject.names <= x509.facts(pair.certificate).names
    except CertificateError:
        return False


def _unused(before: Trust, leaves: Iterable[str], *, now: datetime, lifetimes: Lifetimes) -> bool:
    """Whether no leaf of the previous CA is in use, for at least the publication time."""
    return all(
        x509.signed_by(leaf, before.current.certificate) and now >= x509.facts(leaf).made + lifetimes.publication
        for leaf in leaves
    )
