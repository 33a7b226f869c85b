"""Which configuration a kube-scheduler of a given version reads, and how it spells what changed over time.

Belongs here: tables read from Kubernetes' sources (`pkg/scheduler/apis/config/scheme/scheme.go` of each minor). Never: content.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from accelshare.install.errors import NotUnderstood

Kind = Literal["policy", "configuration"]

OLDEST: Final = 11  # extenders with managedResources and bindVerb are as old as the first sharing schedulers
OLDEST_READ: Final = 18  # older sources were not read for the tables below
NEWEST_READ: Final = 36
POLICY_TRAP: Final = 22  # any Policy ends this kube-scheduler at --v=2 or more, unless --config beside it is v1beta1
POLICY_ENDS: Final = 23  # --policy-config-file and its kin are gone from here on
PLAIN_PORT: Final = 10251
PLAIN_PORT_ENDS: Final = 23  # before, a configuration file opens port 10251, and --port and --address do not count beside it
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
        """It names the patch too, as an image's tag does."""
        return re.match(r"v1\.\d+\.\d+", self.text) is not None


def parse(text: str) -> Release:
    """`1.36`, `v1.36.4` or `v1.20.4-vendor.1`."""
    found = re.match(r"v?1\.(\d+)(?:\.\d+)?(?:[-+].*)?$", text.strip())
    if found is None:
        raise NotUnderstood(f"{text!r} is no version of Kubernetes; it must look like 1.36 or v1.36.4")
    minor = int(found[1])
    if minor < OLDEST:
        raise NotUnderstood(f"Kubernetes {text} is older than 1.{OLDEST}, the first that can share cards through an extender")
    return Release(minor, "v" + text.strip().removeprefix("v"))


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way to write a configuration. Decoding is strict from v1beta1 on: a field spelled another way ends kube-scheduler."""

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
# First minor → what it accepts, the best one last. v1alpha1 knows no extenders and is therefore left out.
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
    firsts = [first for first in _ACCEPTED if first <= release.minor]
    return tuple(_CONFIGURATIONS[version] for version in _ACCEPTED[max(firsts)]) if firsts else ()


def dialect(release: Release, kind: Kind | None = None) -> Dialect:
    """How to write a new configuration for this release: as a Policy below 1.22 unless the other kind is wanted."""
    kind = kind or ("policy" if release.minor < POLICY_TRAP else "configuration")
    if kind == "policy":
        if release.minor == POLICY_TRAP:
            raise NotUnderstood(f"{policy_trap(release)}; use a configuration")
        return existing_policy(release)
    accepted = configurations(release)
    if not accepted:
        raise NotUnderstood(f"the KubeSchedulerConfiguration of {release} has no extenders; use a policy")
    return accepted[-1]


def existing_policy(release: Release) -> Dialect:
    """The dialect of a Policy that is there already, or refuses it in words where there is none any more."""
    if release.minor >= POLICY_ENDS:
        raise NotUnderstood(f"kube-scheduler {release} has no Policy (gone in 1.{POLICY_ENDS}); use a configuration")
    return POLICY


def policy_trap(release: Release) -> str:
    """Why a Policy is no good choice for 1.22."""
    return f"kube-scheduler {release} with a Policy ends at its start with --v=2 or more"


def remarks(release: Release) -> tuple[str, ...]:
    """What to know about a release outside the tables."""
    if release.minor < OLDEST_READ:
        return (f"Kubernetes {release} is older than 1.{OLDEST_READ}: its Policy is taken to be the same, which is not checked",)
    if release.minor > NEWEST_READ:
        return (f"Kubernetes {release} is newer than 1.{NEWEST_READ}, the newest known here; v1 is taken to be still right",)
    return ()
