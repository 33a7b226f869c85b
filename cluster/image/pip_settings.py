"""Passes this machine's pip settings to the pip inside a build, so that the repository names no package index."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

# Where the Dockerfile's second secret appears, and which settings make sense on another file system.
CA_INSIDE: Final = "/run/secrets/ca.crt"
_REACHING: Final = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")


def secrets(directory: Path, settings: Mapping[str, str] | None = None) -> list[str]:
    """Flags of a build, the same for every engine, that hand over pip's settings; their files are written into `directory`."""
    values = _pip_settings() if settings is None else settings
    file = directory / "pip.conf"
    file.touch(mode=0o600)  # an index's address may carry a password
    file.write_text(configuration(values))
    flags = ["--secret", f"id=pip.conf,src={file}"]
    if "cert" in values and Path(values["cert"]).is_file():
        flags += ["--secret", f"id=ca.crt,src={values['cert']}"]
    return flags


def configuration(settings: Mapping[str, str]) -> str:
    """A pip.conf with the settings that another file system can use."""
    lines = ["[global]", *(f"{key} = {_indented(settings[key])}" for key in _REACHING if key in settings)]
    if "cert" in settings:
        lines.append(f"cert = {CA_INSIDE}")
    return "\n".join(lines) + "\n"


def read(lines: Sequence[str]) -> dict[str, str]:
    """The settings that `pip config list` prints; a variable of the environment beats a file, as pip itself has it."""
    found: dict[str, str] = {}
    for line in sorted(lines, key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        words = shlex.split(value)
        found[name.rpartition(".")[2].replace("default-timeout", "timeout")] = words[0] if words else ""
    return found


def _pip_settings() -> dict[str, str]:
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    return read(done.stdout.splitlines())


def _indented(value: str) -> str:
    """A value continues only on indented lines."""
    return value.strip().replace("\\n", "\n").replace("\n", "\n  ")
