"""The three Secrets: the CA with its key, and one leaf with its key for each side.

The CA's Secret is for accelshare only. Each side mounts or copies its own Secret, whose `ca.crt` lists the CAs to trust.

Belongs here: from Secrets to values and back, safe when two processes do it at once; their status. Never: the rules of renewal.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from accelshare.install.certificates import renewal, x509
from accelshare.install.certificates.renewal import Lifetimes, Subject, Trust
from accelshare.install.certificates.x509 import CLOCK_SKEW, Pair
from accelshare.install.errors import CertificateError
from accelshare.kube import named_data, paths
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict
from accelshare.kube.named_data import Place, Stored
from accelshare.wire.decoding import Decoder

LABELS: Final = {"app.kubernetes.io/managed-by": "accelshare", "app.kubernetes.io/part-of": "accelshare"}
SERVER_NAME: Final = "accelshare-extender"
CLIENT_NAME: Final = "kube-scheduler"
_ATTEMPTS: Final = 5
_TLS: Final = "kubernetes.io/tls"
_CA_KEYS: Final = ("ca.crt", "next.crt", "previous.crt")


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the Service, the Secrets and the server in this cluster."""

    namespace: str
    service: str = "accelshare-extender"
    ca_secret: str = "accelshare-ca"  # noqa: S105 – names, not secrets
    extender_secret: str = "accelshare-extender-tls"  # noqa: S105
    scheduler_secret: str = "accelshare-scheduler-tls"  # noqa: S105
    server_name: str = SERVER_NAME
    also: tuple[str, ...] = ()

    @property
    def secrets(self) -> tuple[Place, Place, Place]:
        names = (self.ca_secret, self.extender_secret, self.scheduler_secret)
        ca, extender, scheduler = (Place("Secret", self.namespace, name) for name in names)
        return ca, extender, scheduler


@dataclass(frozen=True, slots=True)
class SideSecret:
    """The content of one side's Secret."""

    pair: Pair | None
    bundle: str


@dataclass(frozen=True, slots=True)
class SecretWrite:
    """A Secret that has to be created or changed, with its new content."""

    place: Place
    secret: Stored | None
    data: Mapping[str, str | None]
    message: str


@dataclass(frozen=True, slots=True)
class StatusLine:
    """The status of one certificate as text, and whether it is valid."""

    text: str
    good: bool


async def ensure(client: Client, names: Names, *, now: datetime, lifetimes: Lifetimes) -> list[str]:
    """Create or renew what is due, and return what was done. Safe to repeat; Secrets of others are not touched."""
    for _ in range(_ATTEMPTS):
        messages = []
        try:
            for write in await due(client, names, now=now, lifetimes=lifetimes):
                await _write(client, write)
                messages.append(write.message)
        except Conflict:
            continue  # another process was faster: read again
        return messages
    raise CertificateError(f"the Secrets in {names.namespace} kept changing; gave up after {_ATTEMPTS} attempts")


async def due(client: Client, names: Names, *, now: datetime, lifetimes: Lifetimes) -> list[SecretWrite]:
    """What `ensure` would write; the CA first, because a leaf is useless before its CA is stored."""
    ca_place, *leaf_places = names.secrets
    ca = await named_data.read(client, ca_place)
    stored = [await named_data.read(client, place) for place in leaf_places]
    addresses = await cluster_ips(client, names.namespace, names.service)
    sides = [_side(place, secret) for place, secret in zip(leaf_places, stored, strict=True)]
    trust_now = _trust(ca_place, ca)
    leaves = [side.pair.certificate for side in sides if side.pair is not None]
    wanted = renewal.trust(trust_now, leaves, now=now, lifetimes=lifetimes)
    writes = []
    if wanted != trust_now:
        until = x509.facts((wanted.following or wanted.current).certificate).until
        what = "a new CA" if trust_now is None else "the next CA" if wanted.following else "the current CAs"
        writes.append(SecretWrite(ca_place, ca, _trust_data(wanted), f"{ca_place}: {what}, until {until:%Y-%m-%d}"))
    for place, secret, side, subject in zip(leaf_places, stored, sides, _subjects(names, addresses), strict=True):
        pair = renewal.leaf(side.pair, subject, wanted, now=now, lifetimes=lifetimes)
        if pair != side.pair or side.bundle != wanted.bundle:
            until = x509.facts(pair.certificate).until
            what = f"a new certificate, until {until:%Y-%m-%d}" if pair != side.pair else "the CAs to trust"
            data = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": wanted.bundle}
            writes.append(SecretWrite(place, secret, data, f"{place}: {what}"))
    return writes


async def remove(client: Client, names: Names) -> list[str]:
    """Delete the Secrets that accelshare manages; Secrets of others stay."""
    messages = []
    for place in names.secrets:
        secret = await named_data.read(client, place)
        if secret is not None and _is_managed(secret) and await named_data.remove(client, place):
            messages.append(f"{place}: removed")
    return messages


async def status(client: Client, names: Names, *, now: datetime) -> list[StatusLine]:
    """One line for each certificate and for each missing Secret."""
    lines: list[StatusLine] = []
    for place in names.secrets:
        secret = await named_data.read(client, place)
        if secret is None:
            lines.append(StatusLine(f"{place}: missing", good=False))
            continue
        # The ca.crt of a side is a copy from the CA's Secret.
        keys = ["tls.crt"] if "tls.crt" in secret.data else [key for key in _CA_KEYS if key in secret.data]
        lines += [status_line(f"{place} {key}", secret.data[key], now) for key in keys]
        if not keys:
            lines.append(StatusLine(f"{place}: has no certificate", good=False))
    return lines


def status_line(name: str, pem: str, now: datetime) -> StatusLine:
    """The line of one certificate."""
    try:
        facts = x509.facts(pem)
    except CertificateError as error:
        return StatusLine(f"{name}: {error}", good=False)
    if now >= facts.until:
        return StatusLine(f"{name}: {facts.name}, expired {facts.until:%Y-%m-%d %H:%M} UTC", good=False)
    if renewal.not_yet_valid(pem, now):
        begins = facts.made - CLOCK_SKEW
        reason = f"not valid before {begins:%Y-%m-%d %H:%M} UTC: the clock of its issuer was ahead"
        return StatusLine(f"{name}: {facts.name}, {reason}", good=False)
    left = (facts.until - now).total_seconds() / 86400
    due = ", to be renewed" if renewal.due(pem, now) else ""
    return StatusLine(f"{name}: {facts.name}, until {facts.until:%Y-%m-%d %H:%M} UTC, {left:.1f} days left{due}", good=True)


class _ServiceSpec(msgspec.Struct):
    clusterIPs: list[str] | None = None  # noqa: N815 – Kubernetes' spelling
    clusterIP: str | None = None  # noqa: N815


class _Service(msgspec.Struct):
    spec: _ServiceSpec


_services = Decoder(_Service)


async def cluster_ips(client: Client, namespace: str, name: str) -> tuple[str, ...]:
    """The Service's cluster IPs, for hosts that cannot use the cluster's DNS; none if it does not exist or is headless."""
    service = await client.read(paths.service(namespace, name), _services)
    if service is None:
        return ()
    spec = service.spec
    addresses = spec.clusterIPs or ([spec.clusterIP] if spec.clusterIP else [])  # Kubernetes before 1.20 has one only
    return tuple(address for address in addresses if address != "None")  # a headless Service


def _subjects(names: Names, addresses: tuple[str, ...]) -> tuple[Subject, Subject]:
    service, namespace = names.service, names.namespace
    in_cluster = f"{service}.{namespace}"
    dns = (names.server_name, service, in_cluster, f"{in_cluster}.svc", f"{in_cluster}.svc.cluster.local")
    server = Subject("server", SERVER_NAME, frozenset((*dns, *map(_canonical, (*addresses, *names.also)))))
    return server, Subject("client", CLIENT_NAME)


def _canonical(name: str) -> str:
    """An address in the one spelling that certificates use."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


async def _write(client: Client, write: SecretWrite) -> None:
    if write.secret is None:
        data = {key: value for key, value in write.data.items() if value is not None}
        form = _TLS if "tls.crt" in data else "Opaque"
        await named_data.create(client, write.place, data, labels=LABELS, form=form)
    else:
        await named_data.change(client, write.place, write.data, version=write.secret.version)


def _is_managed(secret: Stored) -> bool:
    return secret.labels.get("app.kubernetes.io/managed-by") == LABELS["app.kubernetes.io/managed-by"]


def _refuse_others(place: Place, secret: Stored) -> None:
    if not _is_managed(secret):
        raise CertificateError(
            f"{place} exists and is not managed by accelshare (no label app.kubernetes.io/managed-by=accelshare); "
            "remove it, or choose another name"
        )


def _trust(place: Place, secret: Stored | None) -> Trust | None:
    if secret is None:
        return None
    _refuse_others(place, secret)
    data = secret.data
    following = Pair(data["next.crt"], data["next.key"]) if data.get("next.crt") and data.get("next.key") else None
    try:
        current = Pair(data.get("ca.crt", ""), data.get("ca.key", ""))
        for pair in (current, *([following] if following is not None else [])):
            x509.check(pair)
        if previous := data.get("previous.crt"):
            x509.facts(previous)
    except CertificateError as error:
        raise CertificateError(f"{place}: {error}; remove it, and new certificates are created for both sides") from error
    return Trust(current, following, previous or None)


def _trust_data(trust: Trust) -> dict[str, str | None]:
    following = trust.following
    return {
        "ca.crt": trust.current.certificate,
        "ca.key": trust.current.key,
        "next.crt": following.certificate if following else None,
        "next.key": following.key if following else None,
        "previous.crt": trust.previous,
    }


def _side(place: Place, secret: Stored | None) -> SideSecret:
    """Read one side's Secret; an unreadable certificate of ours is replaced."""
    if secret is None:
        return SideSecret(None, "")
    _refuse_others(place, secret)
    pair = Pair(secret.data.get("tls.crt", ""), secret.data.get("tls.key", ""))
    try:
        x509.check(pair)
    except CertificateError:
        return SideSecret(None, secret.data.get("ca.crt", ""))
    return SideSecret(pair, secret.data.get("ca.crt", ""))
