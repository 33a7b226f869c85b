"""Runs a system command; an error has its output."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.errors import ClusterError


def run(
    command: Sequence[str | Path], *, stdin: str = "", environment: Mapping[str, str] | None = None, limit_s: float = 300.0
) -> str:
    """What it prints."""
    shown = " ".join(map(str, command))
    try:
        done = subprocess.run(command, input=stdin, env=environment, capture_output=True, text=True, check=False, timeout=limit_s)
    except FileNotFoundError as error:
        raise ClusterError(f"{command[0]}: no such program") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{shown}: not done within {limit_s:g} s") from error
    if done.returncode != 0:
        raise ClusterError(f"{shown}: exit code {done.returncode}: {done.stderr.strip() or done.stdout.strip() or 'no message'}")
    return done.stdout


def run_json(command: Sequence[str]) -> Any:
    """What it prints, read as JSON; nothing printed is an empty list."""
    return json.loads(run(command) or "[]")
