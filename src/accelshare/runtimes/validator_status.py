"""Whether the container runtime's validator is enabled, so that it refuses a container while the agent is not connected.

NRI continues without a plugin that is not connected, unless the runtime's default validator is enabled: then a container whose
pod requires the plugin is refused. This needs a version that has it, and a configuration that existed when the runtime started.

Belongs here: the state from version, files and start time. Never: changing any of them.
"""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from accelshare.runtimes import containerd, crio
from accelshare.runtimes.config_files import NriSettings, Tree, UnreadableConfigError
from accelshare.runtimes.versions import VALIDATOR_SINCE, release


class ValidatorState(Enum):
    """The state of a runtime's validator."""

    ENABLED = "enabled"
    NOT_RESTARTED = "written, but not restarted since"
    OFF = "off"
    TOO_OLD = "too old"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ValidatorStatus:
    """The state of the validator, and the reason."""

    state: ValidatorState
    why: str

    @property
    def enabled(self) -> bool:
        return self.state is ValidatorState.ENABLED


@dataclass(frozen=True, slots=True)
class Files:
    """Paths of the runtimes' main configuration files."""

    containerd_config: Path = containerd.CONFIG
    crio_config: Path = crio.CONFIG

    def nri_settings(self, name: str, tree: Tree) -> NriSettings:
        """The NRI settings of the named runtime's files, combined."""
        if name.lower() == "containerd":
            return containerd.nri_settings(containerd.layers(self.containerd_config, tree))
        return crio.nri_settings(crio.layers(self.crio_config, tree))


def validator_status(
    name: str, version: str | None, *, files: Files, socket: Path | None = None, tree: Tree | None = None
) -> ValidatorStatus:
    """The status of the validator. Without a socket: the one in the files. Without a version: taken as new enough."""
    tree = tree or Tree()
    if (too_old := status_by_version(name, version)) is not None:
        return too_old
    try:
        settings = files.nri_settings(name, tree)
    except (OSError, UnreadableConfigError) as error:
        return ValidatorStatus(ValidatorState.UNKNOWN, f"the configuration of {name} cannot be read: {error}")
    if not settings.files:
        where = files.containerd_config if name.lower() == "containerd" else files.crio_config
        return ValidatorStatus(ValidatorState.OFF, f"no configuration of {name} exists ({where}), so its validator is off")
    if not settings.enforced:
        return ValidatorStatus(ValidatorState.OFF, _why_off(settings))
    socket = socket or settings.socket
    try:
        started = socket.stat().st_ctime
    except FileNotFoundError:
        return ValidatorStatus(
            ValidatorState.NOT_RESTARTED,
            f"{_where(settings)}, but {socket} does not exist: {name} does not run, or was not restarted",
        )
    changed = [path for path in settings.files if tree.changed_s(path) > started]
    if changed:
        return ValidatorStatus(
            ValidatorState.NOT_RESTARTED,
            f"{_where(settings)}, but {changed[-1]} changed after {name} was started: restart {name}",
        )
    return ValidatorStatus(ValidatorState.ENABLED, _where(settings))


def status_by_version(name: str, version: str | None) -> ValidatorStatus | None:
    """The status if the version alone decides it."""
    since = VALIDATOR_SINCE.get(name.lower())
    if since is None:
        return ValidatorStatus(ValidatorState.UNKNOWN, f"runtime {name} has no known validator")
    if version is not None and release(version) < since:
        first = ".".join(map(str, since[:2]))
        return ValidatorStatus(
            ValidatorState.TOO_OLD, f"{name} {version} has no validator; {first} is the first version with one"
        )
    return None


def _where(settings: NriSettings) -> str:
    return f"the validator is on in {settings.validator_in}"


def _why_off(settings: NriSettings) -> str:
    if settings.disabled_in is not None:
        return f"NRI is disabled by disabled_plugins in {settings.disabled_in}"
    if not settings.nri or not settings.connections:
        return f"NRI is disabled in {settings.files[-1] if len(settings.files) == 1 else ' or '.join(map(str, settings.files))}"
    return f"the validator is off{f' in {settings.validator_in}' if settings.validator_in else ''}"
