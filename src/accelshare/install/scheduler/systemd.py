"""kube-scheduler as a systemd unit of a binary installation: a drop-in beside the unit, which itself stays as it is.

Belongs here: reading a unit's text and writing a drop-in's. Never: files, systemctl.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from accelshare.install.errors import NotUnderstood
from accelshare.install.scheduler.arguments import flags, put
from accelshare.install.scheduler.plan import (
    CHECKSUM,
    Existing,
    Intent,
    Plan,
    PlannedFile,
    PlannedMode,
    checksum,
    choose,
    configuration_file,
    notices_of_address,
)

DROP_IN: Final = "50-accelshare.conf"
_PROGRAM: Final = "kube-scheduler"
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def is_ours(drop_in: bytes) -> bool:
    return CHECKSUM.encode() in drop_in


def drop_in_path(unit: str) -> str:
    return f"{unit}.d/{DROP_IN}"


def refuse_to_be_overruled(drop_ins: Mapping[str, bytes]) -> None:
    """Raises if somebody's drop-in says after ours what is to be started: then ours would have no effect."""
    for path, content in drop_ins.items():
        if PurePosixPath(path).name > DROP_IN and any(key == "ExecStart" for key, _ in _service(content, path)):
            raise NotUnderstood(
                f"{path} is read after {DROP_IN} and has ExecStart too, so that ours would have no effect; "
                "give it a name that comes before, such as 10-own.conf"
            )


def environment_files(unit: bytes, name: str) -> tuple[str, ...]:
    """Files whose variables the command line may use."""
    return tuple(value.lstrip("-") for key, value in _service(unit, name) if key == "EnvironmentFile" and value)


def environment(unit: bytes, name: str, files: Mapping[str, bytes]) -> dict[str, str]:
    """The variables that the unit and its files set."""
    variables: dict[str, str] = {}
    for key, value in _service(unit, name):
        if key == "Environment":
            variables |= dict(word.partition("=")[::2] for word in _unquoted(value))
        elif key == "EnvironmentFile":
            text = files.get(value.lstrip("-"), b"").decode("utf-8", errors="replace").replace("\\\n", " ")
            for line in text.splitlines():
                variable, equals, said = line.strip().partition("=")
                if equals and not line.lstrip().startswith(("#", ";")):
                    variables[variable.strip()] = " ".join(_unquoted(said))
    return variables


def existing_path(unit: bytes, name: str, variables: Mapping[str, str], intent: Intent) -> str | None:
    """Where the operator's own configuration file lies, if there is one to be kept."""
    return choose(flags(_expanded(_start(unit, name), variables)), intent.release, intent.kind).file


def given_flags(unit: bytes, name: str, variables: Mapping[str, str]) -> dict[str, str]:
    return flags(_expanded(_start(unit, name), variables))


def plan(unit: bytes, name: str, variables: Mapping[str, str], existing: Existing | None, intent: Intent) -> Plan:
    """A drop-in that starts the unit's own command with our file. Variables stay variables: only what we add is new."""
    words = _start(unit, name)
    given = flags(_expanded(words, variables))
    choice = choose(given, intent.release, intent.kind)
    if choice.file is not None and existing is None:
        raise NotUnderstood(f"{name}: --{choice.flag}={choice.file} is named, but its content is not known")
    planned, notices = configuration_file(choice, existing, given, intent)
    _name_file(words, choice, planned, intent)
    text = "\n".join(
        [
            "# Made by `accelshare scheduler-config`; the unit itself is unchanged, and without this file it starts as before.",
            f"# {CHECKSUM}: {checksum(planned.content)}",
            "[Service]",
            "ExecStart=",
            "ExecStart=" + " \\\n  ".join(words),
            "",
        ]
    )
    return Plan(
        planned,
        PlannedFile(drop_in_path(name), text.encode(), name),
        tuple(_expanded(words, variables)),
        (*notices_of_address(intent), *notices),
    )


def _name_file(words: list[str], choice: PlannedMode, planned: PlannedFile, intent: Intent) -> None:
    # A flag inside a variable is overruled by ours behind it: the last one counts.
    put(words, choice.flag, planned.path)
    if choice.kind == "policy":
        settings = intent.desired.settings
        for name, value in (("kube-api-qps", settings.qps), ("kube-api-burst", settings.burst)):
            if value is not None:
                put(words, name, str(value))


def _start(unit: bytes, name: str) -> list[str]:
    """The words of ExecStart, or a refusal that says what is there instead."""
    starts: list[str] = []
    for key, value in _service(unit, name):
        if key == "ExecStart":
            starts = [*starts, value] if value else []  # an empty one forgets those before
    if len(starts) != 1:
        raise NotUnderstood(f"{name} has {len(starts)} ExecStart lines; it must have one")
    words = starts[0].split()
    program = PurePosixPath(words[0].lstrip("@-:+!")).name
    if program != _PROGRAM:
        raise NotUnderstood(f"{name} starts {program!r}, not kube-scheduler itself; put the settings in by hand")
    if re.search(r"[\"';|&]", starts[0]):
        raise NotUnderstood(f"{name}: ExecStart has quotes or several commands; put the settings in by hand")
    return words


def _expanded(words: list[str], variables: Mapping[str, str]) -> list[str]:
    """The words that kube-scheduler gets."""
    seen: list[str] = []
    for word in words:
        missing = [a or b for a, b in _VARIABLE.findall(word) if (a or b) not in variables]
        if missing:
            raise NotUnderstood(f"ExecStart uses ${missing[0]}, which neither the unit nor its environment files set")
        seen += _VARIABLE.sub(lambda found: variables[found[1] or found[2]], word).split()
    return seen


def _unquoted(text: str) -> list[str]:
    """The words of a value; where a quote is never closed, quotes are taken as they stand."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


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
