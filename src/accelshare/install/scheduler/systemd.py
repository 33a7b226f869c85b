"""kube-scheduler as a systemd unit of a binary installation: a drop-in beside the unit, which itself stays unchanged.

Belongs here: reading a unit and its drop-ins, the text of accelshare's drop-in, restarting the unit. Never: what the
configuration says.
"""

import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from accelshare.install.errors import InstallError, NotUnderstood
from accelshare.install.host_files.changes import PlannedFile
from accelshare.install.host_files.disk import Disk
from accelshare.install.scheduler.arguments import flags, health_address
from accelshare.install.scheduler.plan import (
    CHECKSUM,
    Existing,
    Intent,
    SchedulerPlan,
    TargetPlan,
    checksum,
    choose,
    configuration_file,
    missing_variables,
    notices_of_address,
    read_existing,
    read_required,
    require_content,
    set_flags,
)
from accelshare.install.scheduler.release import Release

DROP_IN: Final = "50-accelshare.conf"
_PROGRAM: Final = "kube-scheduler"
_SYSTEMCTL_LIMIT_S: Final = 90.0
# Where systemd also looks for drop-ins, wherever the unit is; the last directory counts.
_UNIT_DIRECTORIES: Final = ("/usr/lib/systemd/system", "/run/systemd/system", "/etc/systemd/system")
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True, slots=True)
class Systemd:
    """The target: a unit of a binary installation, with a drop-in."""

    unit: str
    systemctl: str = "systemctl"

    @property
    def trigger(self) -> str:
        return drop_in_path(self.unit)

    @property
    def restarts_itself(self) -> bool:
        return False

    def is_ours(self, trigger: bytes) -> bool:
        return is_ours(trigger)

    def flags(self, base: bytes | None, disk: Disk) -> dict[str, str]:
        unit, variables, _ = self._unit(disk)
        return flags_of(unit, self.unit, variables)

    def release(self, base: bytes | None) -> Release | None:
        return None

    def make(self, base: bytes | None, intent: Intent, disk: Disk) -> TargetPlan:
        if base is not None and not is_ours(base):
            raise NotUnderstood(f"{self.trigger} exists and was not written by accelshare; remove it first")
        unit, variables, files = self._unit(disk)
        path = existing_path(unit, self.unit, variables, intent)
        made = plan(unit, self.unit, variables, read_existing(path, disk), intent)
        return TargetPlan(made, (self.unit, *files, *(() if path is None else (path,))))

    def health_url(self, base: bytes | None, disk: Disk) -> str:
        return f"https://{health_address(self.flags(base, disk))}/healthz"

    def restart(self) -> None:
        for arguments in (["daemon-reload"], ["restart", Path(self.unit).name]):
            try:
                done = subprocess.run(
                    [self.systemctl, *arguments], capture_output=True, text=True, timeout=_SYSTEMCTL_LIMIT_S, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise InstallError(f"{self.systemctl} {' '.join(arguments)}: {error}") from error
            if done.returncode != 0:
                raise InstallError(f"{self.systemctl} {' '.join(arguments)}: {done.stderr.strip() or done.returncode}")

    def _unit(self, disk: Disk) -> tuple[bytes, dict[str, str], tuple[str, ...]]:
        """The unit with the drop-ins of others, as systemd combines them; its variables; the files beside it."""
        drop_ins = {path: read_required(path, disk) for path in self._drop_ins()}
        refuse_to_be_overruled(drop_ins)
        unit = b"\n".join([read_required(self.unit, disk), *drop_ins.values()])
        files = environment_files(unit, self.unit)
        contents = {file: content for file in files if (content := disk.read(file)) is not None}
        return unit, environment(unit, self.unit, contents), (*drop_ins, *contents)

    def _drop_ins(self) -> list[str]:
        """Drop-ins of others, sorted by name; of one name the last file counts."""
        name = Path(self.unit).name
        places = [Path(self.unit), *(Path(directory) / name for directory in _UNIT_DIRECTORIES)]
        drop_ins = {file.name: str(file) for place in places for file in Path(f"{place}.d").glob("*.conf")}
        return [drop_ins[name] for name in sorted(drop_ins) if name != DROP_IN]


def is_ours(drop_in: bytes) -> bool:
    return CHECKSUM.encode() in drop_in


def drop_in_path(unit: str) -> str:
    return f"{unit}.d/{DROP_IN}"


def refuse_to_be_overruled(drop_ins: Mapping[str, bytes]) -> None:
    """Raise if a drop-in that is read after accelshare's sets ExecStart: accelshare's would have no effect."""
    for path, content in drop_ins.items():
        if PurePosixPath(path).name > DROP_IN and any(key == "ExecStart" for key, _ in _service(content, path)):
            raise NotUnderstood(
                f"{path} is read after {DROP_IN} and also sets ExecStart, so accelshare's would have no effect; "
                "rename it so that it is read before, such as 10-own.conf"
            )


def environment_files(unit: bytes, name: str) -> tuple[str, ...]:
    """Files whose variables the command line may use."""
    return tuple(value.lstrip("-") for value in _list(unit, name, "EnvironmentFile"))


def environment(unit: bytes, name: str, files: Mapping[str, bytes]) -> dict[str, str]:
    """The variables that the unit and its files set. Files override the unit, wherever they are named in it (systemd.exec)."""
    variables: dict[str, str] = {}
    for value in _list(unit, name, "Environment"):
        variables |= dict(argument.partition("=")[::2] for argument in _unquoted(value))
    for file in environment_files(unit, name):
        text = files.get(file, b"").decode("utf-8", errors="replace").replace("\\\n", " ")
        for line in text.splitlines():
            variable, equals, content = line.strip().partition("=")
            if equals and not line.lstrip().startswith(("#", ";")):
                variables[variable.strip()] = " ".join(_unquoted(content))
    return variables


def existing_path(unit: bytes, name: str, variables: Mapping[str, str], intent: Intent) -> str | None:
    """The operator's own configuration file, if there is one."""
    return choose(flags(_expanded(_start(unit, name), variables)), intent.release, intent.kind).file


def flags_of(unit: bytes, name: str, variables: Mapping[str, str]) -> dict[str, str]:
    return flags(_expanded(_start(unit, name), variables))


def plan(unit: bytes, name: str, variables: Mapping[str, str], existing: Existing | None, intent: Intent) -> SchedulerPlan:
    """A drop-in with the unit's own command, accelshare's file and variables. Variables in the command stay variables."""
    arguments = _start(unit, name)
    flag_values = flags(_expanded(arguments, variables))
    choice = choose(flag_values, intent.release, intent.kind)
    require_content(choice, existing, name)
    planned, notices = configuration_file(choice, existing, flag_values, intent)
    # A flag inside a variable is overridden by the one after it: the last one counts.
    set_flags(arguments, choice, planned, intent)
    missing, notices_of_variables = missing_variables(variables, intent)
    text = "\n".join(
        [
            "# Written by `accelshare scheduler-config`. The unit itself is unchanged; without this file it starts as before.",
            f"# {CHECKSUM}: {checksum(planned.content)}",
            "[Service]",
            *(f"Environment={variable}={value}" for variable, value in missing.items()),
            "ExecStart=",
            "ExecStart=" + " \\\n  ".join(arguments),
            "",
        ]
    )
    return SchedulerPlan(
        planned,
        PlannedFile(drop_in_path(name), text.encode(), name),
        tuple(_expanded(arguments, variables)),
        (*notices_of_address(intent), *notices_of_variables, *notices),
    )


def _start(unit: bytes, name: str) -> list[str]:
    """The arguments of ExecStart. Raises NotUnderstood with what is there instead."""
    starts = _list(unit, name, "ExecStart")
    if len(starts) != 1:
        raise NotUnderstood(f"{name} has {len(starts)} ExecStart lines; it must have one")
    arguments = starts[0].split()
    program = PurePosixPath(arguments[0].lstrip("@-:+!")).name
    if program != _PROGRAM:
        raise NotUnderstood(f"{name} starts {program!r}, not kube-scheduler itself; add the settings by hand")
    if re.search(r"[\"';|&]", starts[0]):
        raise NotUnderstood(f"{name}: ExecStart has quotes or several commands; add the settings by hand")
    return arguments


def _expanded(arguments: list[str], variables: Mapping[str, str]) -> list[str]:
    """The arguments that kube-scheduler receives."""
    expanded: list[str] = []
    for argument in arguments:
        missing = [a or b for a, b in _VARIABLE.findall(argument) if (a or b) not in variables]
        if missing:
            raise NotUnderstood(f"ExecStart uses ${missing[0]}, which neither the unit nor its environment files set")
        expanded += _VARIABLE.sub(lambda match: variables[match[1] or match[2]], argument).split()
    return expanded


def _unquoted(text: str) -> list[str]:
    """The arguments of a value; with an unclosed quote, quotes are taken literally."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _list(unit: bytes, name: str, wanted: str) -> list[str]:
    """The values of a setting that may be given several times."""
    values: list[str] = []
    for key, value in _service(unit, name):
        if key == wanted:
            values = [*values, value] if value else []  # an empty one clears those before
    return values


def _service(unit: bytes, name: str) -> list[tuple[str, str]]:
    """Key and value of every setting in [Service], continued lines joined."""
    try:
        text = unit.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotUnderstood(f"{name} is not UTF-8 text") from error
    settings: list[tuple[str, str]] = []
    section, open_line = "", ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(("#", ";")) or (not stripped and not open_line):
            continue
        if stripped.endswith("\\"):
            open_line += stripped[:-1].strip() + " "
            continue
        whole, open_line = open_line + stripped, ""
        if whole.startswith("["):
            section = whole
        elif section == "[Service]" and "=" in whole:
            key, _, value = whole.partition("=")
            settings.append((key.strip(), value.strip()))
    return settings
