"""The desired configuration: where the extender is, which resources it manages, and settings that the operator chose.

Belongs here: the values and their rules. Never: how a version spells them, files.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import SplitResult, urlsplit

from accelshare.install.errors import Clash
from accelshare.vendors.profile import Profile

# Proposed only: the operator's value stays, else kube-scheduler's default.
PROPOSED_PERCENTAGE: Final = 100
PROPOSED_QPS: Final = 200
PROPOSED_BURST: Final = 400
# For kube-scheduler's environment if it calls the extender over TLS, where both may agree on HTTP/2. After 2 s without data it
# sends a ping, and after 4 s without an answer it gives the connection up. With its defaults, 30 and 15 s, calls to an extender
# that is dead or paused would fail for 45 s. The times also hold for its connection to the API server; the pings are harmless.
HTTP2_VARIABLES: Final[Mapping[str, str]] = {"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "2", "HTTP2_PING_TIMEOUT_SECONDS": "4"}


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files as kube-scheduler sees them: the CA of the extender, and kube-scheduler's client certificate."""

    ca_file: str
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(file for file in (self.ca_file, self.cert_file, self.key_file) if file is not None)


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Settings beside the extender; None leaves the present value."""

    percentage: int | None = None
    qps: int | None = None
    burst: int | None = None


@dataclass(frozen=True, slots=True)
class DesiredConfig:
    """The extender's entry, and the settings around it."""

    url: str
    resources: tuple[str, ...]
    tls: TlsFiles | None = None
    weight: int = 1
    timeout_ms: int = 5000
    settings: SchedulerSettings = SchedulerSettings()

    def __post_init__(self) -> None:
        if problems := list(_problems(self)):
            raise Clash("\n".join(problems))

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""


def managed(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """Every resource by which a pod can request these vendors' cards: slices and whole cards."""
    names = [name for profile in profiles for name in profile.resources.requestable]
    return tuple(dict.fromkeys(names))


def is_service_name(host: str) -> bool:
    """Whether only the cluster's DNS resolves this name; the host's network does not use that DNS."""
    return not is_address(host) and host != "localhost" and (".svc" in f"{host}." or "." not in host)


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def _problems(desired: DesiredConfig) -> Iterable[str]:
    parts = _split(desired.url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        yield f"the extender's URL is {desired.url!r}; it must look like https://10.96.0.10:12345/accelshare"
    elif parts.scheme == "https" and desired.tls is None:
        # kube-scheduler with enableHTTPS and no CA does not verify the certificate.
        yield "the extender's URL is https, but no CA file is given; without one kube-scheduler would accept any certificate"
    elif parts.scheme == "http" and desired.tls is not None:
        yield "the extender's URL is http, so certificates would not be used; make it https, or leave them out"
    if not desired.resources:
        yield "no managed resource: kube-scheduler would send every pod to the extender; name a vendor that has resources"
    if desired.weight < 1:
        yield f"weight is {desired.weight}; it must be positive"
    if desired.timeout_ms < 1:
        yield f"the timeout is {desired.timeout_ms} ms; it must be positive"
    if desired.tls is not None:
        if (desired.tls.cert_file is None) != (desired.tls.key_file is None):
            yield "a client certificate needs its key: give both or neither"
        for file in desired.tls.files:
            if not PurePosixPath(file).is_absolute():
                yield f"the file {file!r} must be an absolute path, because kube-scheduler reads it"


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is not a number
    except ValueError:
        return None
    return parts
