"""Will this runtime refuse a container rather than make it without us?

Belongs here: the judgement, from version, files and the moment of the runtime's start. Never: changing any of it.

NRI goes on without a plugin that is away, unless the runtime's own validator is switched on: then a pod that requires us is
refused while we are not there. It takes a version that has it and a configuration that was there when the runtime started.
"""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from accelshare.runtimes import containerd, crio
from accelshare.runtimes.plugin_settings import Said, UnreadableError
from accelshare.runtimes.tree import Tree
from accelshare.runtimes.versions import VALIDATOR_SINCE, release


class Standing(Enum):
    """How it stands with a runtime's validator."""

    INSISTS = "insisting"
    NOT_RESTARTED = "written, but not restarted since"
    OFF = "off"
    TOO_OLD = "too old"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the runtime insists on us, and why it is thought so."""

    standing: Standing
    why: str

    @property
    def insists(self) -> bool:
        return self.standing is Standing.INSISTS


@dataclass(frozen=True, slots=True)
class Files:
    """Where the runtimes keep their configuration."""

    containerd_config: Path = containerd.CONFIG
    crio_config: Path = crio.CONFIG

    def said(self, name: str, tree: Tree) -> Said:
        """What the named runtime's files say, all of them together."""
        if name.lower() == "containerd":
            return containerd.said(containerd.layers(self.containerd_config, tree))
        return crio.said(crio.layers(self.crio_config, tree))


def judge(name: str, version: str | None, *, files: Files, socket: Path | None = None, tree: Tree | None = None) -> Verdict:
    """What this runtime will do when we are away. No socket: the one that its files name. No version: believed to be new."""
    tree = tree or Tree()
    if (too_old := judge_version(name, version)) is not None:
        return too_old
    try:
        said = files.said(name, tree)
    except (OSError, UnreadableError) as error:
        return Verdict(Standing.UNKNOWN, f"the configuration of {name} cannot be read: {error}")
    if not said.files:
        where = files.containerd_config if name.lower() == "containerd" else files.crio_config
        return Verdict(Standing.OFF, f"no configuration of {name} was found ({where}), so that the validator is off")
    if not said.insists:
        return Verdict(Standing.OFF, _why_off(said))
    socket = socket or said.socket
    try:
        started = socket.stat().st_ctime
    except FileNotFoundError:
        return Verdict(
            Standing.NOT_RESTARTED, f"{_where(said)}, and there is no {socket}: {name} is not running, or was not restarted"
        )
    changed = [path for path in said.files if tree.changed_s(path) > started]
    if changed:
        return Verdict(
            Standing.NOT_RESTARTED, f"{_where(said)}, and {changed[-1]} has changed since {name} was started: restart {name}"
        )
    return Verdict(Standing.INSISTS, _where(said))


def judge_version(name: str, version: str | None) -> Verdict | None:
    """A verdict if the version alone decides."""
    since = VALIDATOR_SINCE.get(name.lower())
    if since is None:
        return Verdict(Standing.UNKNOWN, f"runtime {name} is not known to have a validator")
    if version is not None and release(version) < since:
        first = ".".join(map(str, since[:2]))
        return Verdict(Standing.TOO_OLD, f"{name} {version} has no validator; it comes with {first}")
    return None


def _where(said: Said) -> str:
    return f"the validator is on in {said.validator_in}"


def _why_off(said: Said) -> str:
    if said.switched_off_in is not None:
        return f"plugins are switched off by disabled_plugins in {said.switched_off_in}"
    if not said.nri or not said.connections:
        return f"plugins are switched off in {said.files[-1] if len(said.files) == 1 else ' or '.join(map(str, said.files))}"
    return f"the validator is off{f' in {said.validator_in}' if said.validator_in else ''}"
