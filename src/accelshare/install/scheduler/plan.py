"""Plan kube-scheduler's files from the present ones and the desired configuration: pure functions.

Belongs here: which file kube-scheduler reads its extenders from, what accelshare's file says, and what a `Target` (a way of
starting kube-scheduler) must offer. Never: writing, the clock, a process.
"""

import hashlib
from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, Literal, Protocol

from accelshare.install.errors import Clash, NotUnderstood
from accelshare.install.host_files.changes import PlannedFile
from accelshare.install.host_files.disk import Disk
from accelshare.install.scheduler import content
from accelshare.install.scheduler.arguments import moved_into_file, put, refuse_untranslatable
from accelshare.install.scheduler.desired_config import HTTP2_VARIABLES, DesiredConfig, is_loopback, is_service_name
from accelshare.install.scheduler.release import (
    HTTP2_VARIABLES_BEGIN,
    POLICY,
    POLICY_ENDS,
    POLICY_TRAP,
    Dialect,
    Kind,
    Release,
    configurations,
    dialect,
    policy_trap,
)

CONFIGURATION_FILE: Final = "scheduler-config.yaml"
POLICY_FILE: Final = "scheduler-policy.json"
# Another content has another checksum, and so kubelet starts another pod, as with Helm's checksum annotations.
CHECKSUM: Final = "checksum/accelshare-scheduler-config"


@dataclass(frozen=True, slots=True)
class Intent:
    """The desired configuration, for one version of Kubernetes."""

    desired: DesiredConfig
    release: Release
    directory: str  # of accelshare's file; the same on the host and for kube-scheduler
    kind: Kind | None = None
    replace: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Existing:
    """The operator's own configuration file on the host."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class SchedulerPlan:
    """The files in the order of writing: accelshare's configuration, then the trigger that makes kube-scheduler read it."""

    configuration: PlannedFile
    trigger: PlannedFile
    words: tuple[str, ...]  # kube-scheduler's new command line
    notices: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[PlannedFile, PlannedFile]:
        return self.configuration, self.trigger


@dataclass(frozen=True, slots=True)
class PlannedMode:
    """The kind of configuration to write, and the operator's file of that kind, as kube-scheduler names it."""

    kind: Kind
    file: str | None

    @property
    def flag(self) -> Literal["policy-config-file", "config"]:
        return "policy-config-file" if self.kind == "policy" else "config"


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """A plan, and the operator's files that it was made from beside the trigger."""

    plan: SchedulerPlan
    sources: tuple[str, ...]


class Target(Protocol):
    """One way of starting kube-scheduler. `base` is the trigger without accelshare."""

    @property
    def trigger(self) -> str:
        """The file whose change makes kube-scheduler restart."""

    @property
    def restarts_itself(self) -> bool:
        """Whether kubelet watches the trigger; else `restart` has to be called."""

    def is_ours(self, trigger: bytes) -> bool:
        """Whether accelshare wrote this content of the trigger."""

    def flags(self, base: bytes | None, disk: Disk) -> dict[str, str]:
        """kube-scheduler's flags without accelshare."""

    def release(self, base: bytes | None) -> Release | None:
        """The running version, if the trigger names it."""

    def make(self, base: bytes | None, intent: Intent, disk: Disk) -> TargetPlan:
        """The plan for this host."""

    def health_url(self, base: bytes | None, disk: Disk) -> str:
        """The URL of kube-scheduler's health endpoint."""

    def restart(self) -> None:
        """Restart kube-scheduler, where kubelet does not."""


def choose(flag_values: Mapping[str, str], release: Release, wanted: Kind | None) -> PlannedMode:
    """Where kube-scheduler with these flags reads its extenders from. Refuses what would be a guess."""
    config, policy = (
        flag_values.get("config") or None,
        flag_values.get("policy-config-file") or None,
    )  # an empty value names no file
    legacy = [name for name in flag_values if name.startswith("policy-config") or name == "use-legacy-policy-config"]
    if release.minor >= POLICY_ENDS:
        if legacy:
            raise NotUnderstood(f"kube-scheduler {release} has no flag --{legacy[0]}; the command line is for an older version")
        if wanted == "policy":
            dialect(release, wanted)  # raises
        return PlannedMode("configuration", config)
    if config and release.minor <= 18:
        policy = None  # 1.18 ignores the policy flags beside --config
    elif flag_values.get("policy-configmap") and flag_values.get("use-legacy-policy-config", "false") == "false":
        place = flag_values.get("policy-configmap-namespace", "kube-system")
        raise NotUnderstood(
            f"the policy is in the ConfigMap {place}/{flag_values['policy-configmap']}; "
            "add the extender there: `accelshare scheduler-config render` prints the entry"
        )
    # With both, the extenders of the policy replace those of the configuration.
    present: Kind | None = "policy" if policy else "configuration" if config else None
    if present is not None and wanted is not None and present != wanted:
        raise Clash(f"kube-scheduler already reads its extenders from a {present}; a {wanted} beside it would have no effect")
    kind = present or dialect(release, wanted).kind
    return PlannedMode(kind, policy if kind == "policy" else config)


def configuration_file(
    choice: PlannedMode, existing: Existing | None, flag_values: Mapping[str, str], intent: Intent
) -> tuple[PlannedFile, tuple[str, ...]]:
    """accelshare's file and notices about it. It is a copy of the operator's file, if there is one, with the extender added."""
    notices: tuple[str, ...] = ()
    if choice.kind == "policy":
        notices = _notices_of_a_policy(flag_values, intent)
        if flag_values.get("config"):
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
            raise Clash(f"--replace {', '.join(intent.replace)}: kube-scheduler has no file with extenders")
        moved: dict[str, Any] = {}
        if choice.kind == "configuration":
            moved = moved_into_file(flag_values, intent.release)
        else:
            refuse_untranslatable(flag_values)
        text = content.fresh(dialect(intent.release, choice.kind), intent.desired, moved)
    like = existing.path if existing is not None else None
    notices = (
        *notices,
        *content.proposals(text, path),
        *content.plain_port(text, path, intent.release),
    )
    return PlannedFile(path, text, like), notices


def _notices_of_a_policy(flag_values: Mapping[str, str], intent: Intent) -> tuple[str, ...]:
    """Raise where kube-scheduler 1.22 would exit at its start; warn where another flag would make it exit."""
    if intent.release.minor != POLICY_TRAP:
        return ()
    beside = "unless --config beside it names a KubeSchedulerConfiguration v1beta1"
    verbosity = flag_values.get("v", "0")
    if not flag_values.get("config") and verbosity.isdigit() and int(verbosity) >= 2:
        raise NotUnderstood(f"{policy_trap(intent.release)}, {beside}, and --v={verbosity} is set; lower it, or use no Policy")
    return (f"{policy_trap(intent.release)}, {beside}",)


def notices_of_address(intent: Intent) -> tuple[str, ...]:
    """Notices about the extender's address, which must be reachable from the host's network."""
    desired = intent.desired
    if is_service_name(desired.host):
        raise NotUnderstood(
            f"{desired.url}: the host's network, in which kube-scheduler runs, does not resolve names of Services; give an IP"
        )
    if desired.tls is None and not is_loopback(desired.host):
        return (f"{desired.url} is plain HTTP: anybody who reaches it can bind pods; use https with certificates",)
    return ()


def connection_variables(desired: DesiredConfig, release: Release) -> Mapping[str, str]:
    """Environment variables with which kube-scheduler soon gives up an HTTP/2 connection to a dead extender."""
    return HTTP2_VARIABLES if desired.tls is not None and release.minor >= HTTP2_VARIABLES_BEGIN else {}


def missing_variables(present: Mapping[str, str], intent: Intent) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables to add to kube-scheduler's environment, and notices about those that the operator has set to other values."""
    wanted = connection_variables(intent.desired, intent.release)
    return {name: value for name, value in wanted.items() if name not in present}, tuple(
        f"{name} is {present[name] or 'empty'} in kube-scheduler's environment and stays so; {value} is proposed: "
        "with HTTP/2, it decides how soon kube-scheduler gives up a connection to a dead extender"
        for name, value in wanted.items()
        if present.get(name, value) != value
    )


def checksum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def require_content(choice: PlannedMode, existing: Existing | None, name: str) -> None:
    """Raise if kube-scheduler reads a file of the operator's whose content is not known."""
    if choice.file is not None and existing is None:
        raise NotUnderstood(f"{name}: --{choice.flag}={choice.file} is set, but the file's content is not known")


def set_flags(words: MutableSequence[str], choice: PlannedMode, planned: PlannedFile, intent: Intent) -> None:
    """Make the command line name accelshare's file. A Policy has no client limits, so these go into flags."""
    put(words, choice.flag, planned.path)
    if choice.kind == "policy":
        settings = intent.desired.settings
        for name, value in (("kube-api-qps", settings.qps), ("kube-api-burst", settings.burst)):
            if value is not None:
                put(words, name, str(value))


def read_existing(path: str | None, disk: Disk) -> Existing | None:
    """The operator's file that kube-scheduler reads; None if it reads none."""
    return None if path is None else Existing(path, read_required(path, disk))


def read_required(path: str, disk: Disk) -> bytes:
    content = disk.read(path)
    if content is None:
        raise NotUnderstood(f"{path} does not exist, although kube-scheduler is configured to read it")
    return content
