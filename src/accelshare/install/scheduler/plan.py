"""From what is there and what is wished to the files that shall be there: pure, and the same answer for the same question.

Belongs here: which file kube-scheduler reads its extenders from, what our file says, and the difference in words that people
read. Never: the disk, the clock, a process.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, Literal

from accelshare.install.errors import Clash, NotUnderstood
from accelshare.install.host_files.difference import unified
from accelshare.install.scheduler import content
from accelshare.install.scheduler.arguments import moved_into_file, refuse_untranslatable
from accelshare.install.scheduler.desired_config import DesiredConfig, is_loopback, is_name_of_service
from accelshare.install.scheduler.release import (
    POLICY,
    POLICY_ENDS,
    POLICY_TRAP,
    Dialect,
    Kind,
    Release,
    configurations,
    dialect,
    policy_trap,
    remarks,
)

CONFIGURATION_FILE: Final = "scheduler-config.yaml"
POLICY_FILE: Final = "scheduler-policy.json"
# As Helm's users know it: another content, another checksum, another pod.
CHECKSUM: Final = "checksum/accelshare-scheduler-config"


@dataclass(frozen=True, slots=True)
class Intent:
    """All that is wished, beside what is there."""

    desired: DesiredConfig
    release: Release
    directory: str  # where our file lies, on the host and for kube-scheduler alike
    kind: Kind | None = None
    replace: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Existing:
    """The operator's own configuration file, where it lies on the host."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file as it shall be. `like`: a file whose owner and mode it takes, if that is there."""

    path: str
    content: bytes
    like: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The files that shall be there, in the order of writing: our configuration, then what makes kube-scheduler read it."""

    configuration: PlannedFile
    trigger: PlannedFile
    words: tuple[str, ...]  # kube-scheduler's new command line
    notices: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[PlannedFile, PlannedFile]:
        return self.configuration, self.trigger


@dataclass(frozen=True, slots=True)
class PlannedMode:
    """Which kind of configuration is in force, or shall be, and the operator's file with it, as kube-scheduler names it."""

    kind: Kind
    file: str | None

    @property
    def flag(self) -> Literal["policy-config-file", "config"]:
        return "policy-config-file" if self.kind == "policy" else "config"


def choose(given: Mapping[str, str], release: Release, wanted: Kind | None) -> PlannedMode:
    """Where extenders are read from, given kube-scheduler's flags. Refuses what would be guessed."""
    config, policy = given.get("config") or None, given.get("policy-config-file") or None  # an empty one names no file
    legacy = [name for name in given if name.startswith("policy-config") or name == "use-legacy-policy-config"]
    if release.minor >= POLICY_ENDS:
        if legacy:
            raise NotUnderstood(f"kube-scheduler {release} has no flag --{legacy[0]}; the command line is of an older version")
        if wanted == "policy":
            dialect(release, wanted)  # refuses it in words
        return PlannedMode("configuration", config)
    if config and release.minor <= 18:
        policy = None  # 1.18 ignores the policy flags beside --config
    elif given.get("policy-configmap") and given.get("use-legacy-policy-config", "false") == "false":
        place = given.get("policy-configmap-namespace", "kube-system")
        raise NotUnderstood(
            f"the policy is in the ConfigMap {place}/{given['policy-configmap']}; "
            "put the extender in there, with the entry that `accelshare scheduler-config render` prints"
        )
    # With both, a policy's extenders take the place of the configuration's.
    found: Kind | None = "policy" if policy else "configuration" if config else None
    if found is not None and wanted is not None and found != wanted:
        raise Clash(f"kube-scheduler already reads a {found}, whose extenders count; a {wanted} beside it would not do")
    kind = found or dialect(release, wanted).kind
    return PlannedMode(kind, policy if kind == "policy" else config)


def configuration_file(
    choice: PlannedMode, existing: Existing | None, given: Mapping[str, str], intent: Intent
) -> tuple[PlannedFile, tuple[str, ...]]:
    """Our file, and what there is to say about it. The operator's own stays untouched: ours is it, with the extender."""
    notices: tuple[str, ...] = ()
    if choice.kind == "policy":
        notices = _notices_of_a_policy(given, intent)
        if given.get("config"):
            content.refuse_client_limits(intent.desired)
    name = POLICY_FILE if choice.kind == "policy" else CONFIGURATION_FILE
    path = str(PurePosixPath(intent.directory) / name)
    if existing is not None:
        accepted: Sequence[Dialect] = (POLICY,) if choice.kind == "policy" else configurations(intent.release)
        text = content.merged(
            existing.content, name=existing.path, accepted=accepted, desired=intent.desired, replace=intent.replace
        )
    else:
        if intent.replace:
            raise Clash(
                f"there is no extender {', '.join(intent.replace)} to be replaced: kube-scheduler has no file with extenders"
            )
        moved: dict[str, Any] = {}
        if choice.kind == "configuration":
            moved = moved_into_file(given, intent.release)
        else:
            refuse_untranslatable(given)
        text = content.fresh(dialect(intent.release, choice.kind), intent.desired, moved)
    like = existing.path if existing is not None else None
    notices = (
        *notices,
        *remarks(intent.release),
        *content.proposals(text, path),
        *content.plain_port(text, path, intent.release),
    )
    return PlannedFile(path, text, like), notices


def _notices_of_a_policy(given: Mapping[str, str], intent: Intent) -> tuple[str, ...]:
    """Raises where kube-scheduler 1.22 would end at its start; says so where it would after another flag."""
    if intent.release.minor != POLICY_TRAP:
        return ()
    beside = "unless --config beside it names a KubeSchedulerConfiguration v1beta1"
    verbosity = given.get("v", "0")
    if not given.get("config") and verbosity.isdigit() and int(verbosity) >= 2:
        raise NotUnderstood(f"{policy_trap(intent.release)}, {beside}, and --v={verbosity} is set; lower it, or leave the Policy")
    return (f"{policy_trap(intent.release)}, {beside}",)


def notices_of_address(intent: Intent) -> tuple[str, ...]:
    """kube-scheduler runs in the host's network: what that means for the address."""
    desired = intent.desired
    if is_name_of_service(desired.host):
        raise NotUnderstood(
            f"{desired.url}: kube-scheduler runs in the host's network, where names of Services are not resolved; give an address"
        )
    if desired.tls is None and not is_loopback(desired.host):
        return (f"{desired.url} is plain HTTP: whoever reaches it can bind pods; use https with certificates",)
    return ()


def checksum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def difference(plan: Plan, read: Callable[[str], bytes | None]) -> str:
    """The plan as a unified diff against what is there; empty if nothing would change."""
    return "".join(unified(file.path, read(file.path), file.content) for file in plan.files)
