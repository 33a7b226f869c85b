"""Which versions of Kubernetes are supported, and which configuration kube-scheduler of each version reads.

Belongs here: tables read from Kubernetes' sources (`pkg/scheduler/apis/config/scheme/scheme.go` of each minor). Never: content.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from accelshare.install.errors import NotUnderstood

Kind = Literal["policy", "configuration"]

# The tables below were read from the sources of these minors; others are refused.
OLDEST: Final = 18
NEWEST: Final = 36
SUPPORTED: Final = f"1.{OLDEST} to 1.{NEWEST}"
POLICY_TRAP: Final = 22  # with any Policy it exits at --v=2 or more, unless --config beside it is v1beta1
POLICY_ENDS: Final = 23  # from here on there is no --policy-config-file
PLAIN_PORT: Final = 10251
PLAIN_PORT_ENDS: Final = 23  # before, a configuration file opens port 10251 and overrides --port and --address
HTTP2_VARIABLES_BEGIN: Final = 20  # from here on kube-scheduler reads them (apimachinery's util/net/http.go)
FLAGS_OVERRIDE_LEADER_ELECTION: Final = 22  # before, --config made kube-scheduler ignore --leader-elect*
GROUP: Final = "kubescheduler.config.k8s.io"


@dataclass(frozen=True, slots=True)
class Release:
    """One version of Kubernetes."""

    minor: int
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def complete(self) -> bool:
        """Whether it names the patch too, as an image's tag does."""
        return re.match(r"v1\.\d+\.\d+", self.text) is not None


def minor_of(version: str) -> int | None:
    """The second number of `v1.36.4`, `1.20` or `v1.28.3+vendor`; None if it is not a version of Kubernetes."""
    match = re.match(r"v?1\.([0-9]{1,9})(?![0-9])", version)
    return int(match[1]) if match else None


def parse(text: str) -> Release:
    """A supported version: `1.36`, `v1.36.4` or `v1.20.4-vendor.1`. Raises NotUnderstood."""
    minor = minor_of(text.strip())
    if minor is None or not re.fullmatch(r"v?1\.\d+(?:\.\d+)?(?:[-+].*)?", text.strip()):
        raise NotUnderstood(f"{text!r} is not a version of Kubernetes; it must look like 1.36 or v1.36.4")
    if not OLDEST <= minor <= NEWEST:
        raise NotUnderstood(f"Kubernetes {text} is not supported; the supported versions are {SUPPORTED}")
    return Release(minor, "v" + text.strip().removeprefix("v"))


@dataclass(frozen=True, slots=True)
class Dialect:
    """One spelling of the configuration. From v1beta1 on decoding is strict: kube-scheduler exits at an unknown field."""

    kind: Kind
    api_version: str
    https_key: str = "enableHTTPS"
    timeout_in_nanoseconds: bool = False


POLICY: Final = Dialect("policy", "v1", https_key="enableHttps", timeout_in_nanoseconds=True)
_CONFIGURATIONS: Final[Mapping[str, Dialect]] = {
    version: Dialect("configuration", f"{GROUP}/{version}", **spelling)  # type: ignore[arg-type]
    for version, spelling in {
        "v1alpha2": {"https_key": "enableHttps", "timeout_in_nanoseconds": True},
        "v1beta1": {},
        "v1beta2": {},
        "v1beta3": {},
        "v1": {},
    }.items()
}
# First minor → accepted versions, the best one last. v1alpha1 has no extenders and is left out.
_ACCEPTED: Final[Mapping[int, tuple[str, ...]]] = {
    18: ("v1alpha2",),
    19: ("v1beta1",),
    22: ("v1beta1", "v1beta2"),
    23: ("v1beta2", "v1beta3"),
    25: ("v1beta2", "v1beta3", "v1"),
    28: ("v1beta3", "v1"),
    29: ("v1",),
}


def configurations(release: Release) -> tuple[Dialect, ...]:
    """The KubeSchedulerConfigurations with extenders that this release accepts, the best one last."""
    first = max(first for first in _ACCEPTED if first <= release.minor)
    return tuple(_CONFIGURATIONS[version] for version in _ACCEPTED[first])


def dialect(release: Release, kind: Kind | None = None) -> Dialect:
    """The dialect of a new configuration for this release: a Policy below 1.22, unless the other kind is wanted."""
    kind = kind or ("policy" if release.minor < POLICY_TRAP else "configuration")
    if kind == "policy":
        if release.minor == POLICY_TRAP:
            raise NotUnderstood(f"{policy_trap(release)}; use a configuration")
        return existing_policy(release)
    return configurations(release)[-1]


def existing_policy(release: Release) -> Dialect:
    """The dialect of an existing Policy. Raises NotUnderstood where kube-scheduler has no Policy any more."""
    if release.minor >= POLICY_ENDS:
        raise NotUnderstood(f"kube-scheduler {release} has no Policy (removed in 1.{POLICY_ENDS}); use a configuration")
    return POLICY


def policy_trap(release: Release) -> str:
    """Why a Policy is a bad choice for 1.22."""
    return f"kube-scheduler {release} with a Policy exits at its start with --v=2 or more"
