"""Runs one program of a build to its end: progress every few seconds, and the end of its log if it fails."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cluster.errors import BuildError
from cluster.process import Process


def run(
    name: str,
    command: Sequence[str],
    log: Path,
    say: Callable[[str], None],
    *,
    environment: Mapping[str, str] | None = None,
    how_far: Callable[[], str] = str,
) -> None:
    """Return once it has succeeded; raises an error if it is missing or fails. `how_far` ends each line of progress."""
    program = shutil.which(command[0])
    if program is None:
        raise BuildError(f"{name}: there is no program {command[0]} on PATH")
    process = Process(name, [program, *command[1:]], log, environment={**os.environ, **(environment or {})})
    if process.wait_ended(say, how_far) != 0:
        raise BuildError(f"{name} failed with exit code {process.exit_code}; the end of {log}:\n{process.last_lines()}")
