"""Three Secrets: the CA with its key, and one leaf with its key for each side.

Belongs here: from Secrets to values and back, so that two who do this at once end with one result. Never: the rules.

The CA's Secret is read by nobody but us. Each side mounts or copies its own, which has `ca.crt` too: whom to trust.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from accelshare.install.certificates import reading, renewal
from accelshare.install.certificates.making import Pair
from accelshare.install.certificates.problems import CertificateError
from accelshare.install.certificates.renewal import Lives, Subject, Trust
from accelshare.kube import named_data, services
from accelshare.kube.client import Client
from accelshare.kube.errors import Conflict
from accelshare.kube.named_data import Place, Stored

LABELS: Final = {"app.kubernetes.io/managed-by": "accelshare", "app.kubernetes.io/part-of": "accelshare"}
SERVER_NAME: Final = "accelshare-extender"
CLIENT_NAME: Final = "kube-scheduler"
_ATTEMPTS: Final = 5
_TLS: Final = "kubernetes.io/tls"


@dataclass(frozen=True, slots=True)
class Names:
    """What is called how in this cluster."""

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
class Held:
    """One side's Secret."""

    pair: Pair | None
    bundle: str


@dataclass(frozen=True, slots=True)
class Write:
    """A Secret as it should be, where it is not so yet."""

    place: Place
    found: Stored | None
    data: Mapping[str, str | None]
    says: str


async def ensure(client: Client, names: Names, *, now: datetime, lives: Lives) -> list[str]:
    """Make or renew what is due; the lines say what was done. Twice is once, and nothing of somebody else's is touched."""
    for _ in range(_ATTEMPTS):
        said = []
        try:
            for write in await due(client, names, now=now, lives=lives):
                await _carry_out(client, write)
                said.append(write.says)
        except Conflict:
            continue  # somebody was faster: look again
        return said
    raise CertificateError(f"the Secrets in {names.namespace} are changed by somebody else all the time; gave up")


async def due(client: Client, names: Names, *, now: datetime, lives: Lives) -> list[Write]:
    """What `ensure` would write, the CA first: a leaf is of no use before its CA is kept."""
    ca_place, *leaf_places = names.secrets
    ca = await named_data.read(client, ca_place)
    stored = [await named_data.read(client, place) for place in leaf_places]
    addresses = await services.cluster_ips(client, names.namespace, names.service)
    held = [_held(place, found) for place, found in zip(leaf_places, stored, strict=True)]
    trust_now = _trust(ca_place, ca)
    leaves = [side.pair.certificate for side in held if side.pair is not None]
    wanted = renewal.trust(trust_now, leaves, now=now, lives=lives)
    writes = []
    if wanted != trust_now:
        until = reading.facts((wanted.following or wanted.current).certificate).until
        what = "a new CA" if trust_now is None else "a CA to follow" if wanted.following else "the CAs of today"
        writes.append(Write(ca_place, ca, _written_trust(wanted), f"{ca_place}: {what}, until {until:%Y-%m-%d}"))
    for place, found, side, subject in zip(leaf_places, stored, held, _subjects(names, addresses), strict=True):
        pair = renewal.leaf(side.pair, subject, wanted, now=now, lives=lives)
        if pair != side.pair or side.bundle != wanted.bundle:
            until = reading.facts(pair.certificate).until
            what = f"a new certificate, until {until:%Y-%m-%d}" if pair != side.pair else "whom to trust"
            data = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": wanted.bundle}
            writes.append(Write(place, found, data, f"{place}: {what}"))
    return writes


async def remove(client: Client, names: Names) -> list[str]:
    """Take the Secrets away; somebody else's stay."""
    said = []
    for place in names.secrets:
        found = await named_data.read(client, place)
        if found is not None and _is_ours(found) and await named_data.remove(client, place):
            said.append(f"{place}: removed")
    return said


def _subjects(names: Names, addresses: tuple[str, ...]) -> tuple[Subject, Subject]:
    service, namespace = names.service, names.namespace
    in_cluster = f"{service}.{namespace}"
    dns = (names.server_name, service, in_cluster, f"{in_cluster}.svc", f"{in_cluster}.svc.cluster.local")
    server = Subject("server", SERVER_NAME, frozenset((*dns, *map(_as_written, (*addresses, *names.also)))))
    return server, Subject("client", CLIENT_NAME)


def _as_written(name: str) -> str:
    """An address has many spellings; a certificate gives it back in one."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


async def _carry_out(client: Client, write: Write) -> None:
    if write.found is None:
        data = {key: value for key, value in write.data.items() if value is not None}
        form = _TLS if "tls.crt" in data else "Opaque"
        await named_data.create(client, write.place, data, labels=LABELS, form=form)
    else:
        await named_data.change(client, write.place, write.data, version=write.found.version)


def _is_ours(found: Stored) -> bool:
    return found.labels.get("app.kubernetes.io/managed-by") == LABELS["app.kubernetes.io/managed-by"]


def _refuse_others(place: Place, found: Stored) -> None:
    if not _is_ours(found):
        raise CertificateError(
            f"{place} is there and is not of our making (no label app.kubernetes.io/managed-by=accelshare); "
            "remove it, or give another name"
        )


def _trust(place: Place, found: Stored | None) -> Trust | None:
    if found is None:
        return None
    _refuse_others(place, found)
    data = found.data
    following = Pair(data["next.crt"], data["next.key"]) if data.get("next.crt") and data.get("next.key") else None
    try:
        current = Pair(data.get("ca.crt", ""), data.get("ca.key", ""))
        for pair in (current, *([following] if following is not None else [])):
            reading.check(pair)
        if previous := data.get("previous.crt"):
            reading.facts(previous)
    except CertificateError as error:
        raise CertificateError(f"{place}: {error}; remove it, and new certificates are made for both sides") from error
    return Trust(current, following, previous or None)


def _written_trust(trust: Trust) -> dict[str, str | None]:
    following = trust.following
    return {
        "ca.crt": trust.current.certificate,
        "ca.key": trust.current.key,
        "next.crt": following.certificate if following else None,
        "next.key": following.key if following else None,
        "previous.crt": trust.previous,
    }


def _held(place: Place, found: Stored | None) -> Held:
    """One that cannot be read is made anew: it is of our making, and of no use to anybody."""
    if found is None:
        return Held(None, "")
    _refuse_others(place, found)
    pair = Pair(found.data.get("tls.crt", ""), found.data.get("tls.key", ""))
    try:
        reading.check(pair)
    except CertificateError:
        return Held(None, found.data.get("ca.crt", ""))
    return Held(pair, found.data.get("ca.crt", ""))
