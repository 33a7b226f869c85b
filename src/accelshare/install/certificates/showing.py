"""Until when each certificate lasts, for people.

Belongs here: the lines. Never: a change.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from accelshare.install.certificates import reading, renewal
from accelshare.install.certificates.keeping import Names
from accelshare.install.certificates.making import CLOCK_SKEW
from accelshare.install.certificates.problems import CertificateError
from accelshare.kube import named_data
from accelshare.kube.client import Client

_CA: Final = ("ca.crt", "next.crt", "previous.crt")


@dataclass(frozen=True, slots=True)
class Line:
    """What is said of one certificate, and whether all is well with it."""

    text: str
    good: bool


async def lines(client: Client, names: Names, *, now: datetime) -> list[Line]:
    """One line for each certificate; a missing Secret has one too."""
    told: list[Line] = []
    for place in names.secrets:
        found = await named_data.read(client, place)
        if found is None:
            told.append(Line(f"{place}: missing", good=False))
            continue
        # A side's ca.crt is a copy of what the CA's Secret has.
        keys = ["tls.crt"] if "tls.crt" in found.data else [key for key in _CA if key in found.data]
        told += [line(f"{place} {key}", found.data[key], now) for key in keys]
        if not keys:
            told.append(Line(f"{place}: it has no certificate", good=False))
    return told


def line(name: str, pem: str, now: datetime) -> Line:
    """One certificate's."""
    try:
        facts = reading.facts(pem)
    except CertificateError as error:
        return Line(f"{name}: {error}", good=False)
    if now >= facts.until:
        return Line(f"{name}: {facts.name}, expired {facts.until:%Y-%m-%d %H:%M} UTC", good=False)
    if renewal.early(pem, now):
        begins = facts.made - CLOCK_SKEW
        says = f"not valid before {begins:%Y-%m-%d %H:%M} UTC: the clock of whoever made it was ahead"
        return Line(f"{name}: {facts.name}, {says}", good=False)
    left = (facts.until - now).total_seconds() / 86400
    due = ", to be renewed" if renewal.due(pem, now) else ""
    return Line(f"{name}: {facts.name}, until {facts.until:%Y-%m-%d %H:%M} UTC, {left:.1f} days left{due}", good=True)
