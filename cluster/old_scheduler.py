"""Builds a kube-scheduler of an older version from source into the cache.

Not pinned as the others are: Kubernetes' own go.mod of that version pins all it needs, and Go's checksum database vouches for it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cluster.cache import cache_directory, only_builder
from cluster.errors import BuildError
from cluster.process import Process
from cluster.toolchain import Go, find_go

_PACKAGE: Final = "k8s.io/kubernetes/cmd/kube-scheduler"
_PREFIX: Final = "kube-scheduler-"
# Needed by kubectl only, and its address is gone: an empty module stands in for it.
_ABSENT: Final = "vbom.ml/util"
# Older ones crash under a Go of today.
_NEWER: Final = {"github.com/modern-go/reflect2 v1.0.1": "github.com/modern-go/reflect2 v1.0.2"}


def built(cache: Path | None = None) -> dict[str, Path]:
    """Version → program, of those in $ACCELSHARE_OLD_SCHEDULERS or else in the cache, the oldest first."""
    own = os.environ.get("ACCELSHARE_OLD_SCHEDULERS")
    found = {path.name.removeprefix(_PREFIX): path for path in (Path(own) if own else _home(cache)).glob(f"{_PREFIX}1.*")}
    return {version: found[version] for version in sorted(found, key=lambda text: [int(part) for part in text.split(".")])}


def build(version: str, say: Callable[[str], None], cache: Path | None = None) -> Path:
    """The kube-scheduler of this version such as 1.18.19; built if it is not there."""
    if re.fullmatch(r"1\.\d+\.\d+", version) is None:
        raise BuildError(f"{version!r} is no version of Kubernetes; it must look like 1.18.19")
    cache = cache or cache_directory()
    program = _home(cache) / f"{_PREFIX}{version}"
    if program.exists():
        return program
    with only_builder(cache, say), tempfile.TemporaryDirectory(prefix="old-scheduler-") as temporary:
        directory = Path(temporary)
        go = find_go(cache, say)
        (directory / "absent").mkdir()
        (directory / "absent" / "go.mod").write_text(f"module {_ABSENT}\n")
        (directory / "go.mod").write_text(_module(_go_mod_of(version, go, directory), version))
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_name(f".{program.name}.new")
        stamps = {"gitVersion": f"v{version}", "gitMajor": "1", "gitMinor": version.split(".")[1]}
        linker = " ".join(
            [
                "-s",
                "-w",
                "-checklinkname=0",
                *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items()),
            ]
        )
        command: list[str | Path] = [go.command, "build", "-trimpath", "-mod=mod", "-modcacherw", "-buildvcs=false", "-v"]
        log = cache / "logs" / f"build-{program.name}.log"
        process = Process(
            f"building {program.name}",
            [*command, "-ldflags", linker, "-o", fresh, _PACKAGE],
            log,
            environment=go.environment,
            directory=directory,
        )
        if (exit_code := process.wait_ended(say, str)) != 0:
            raise BuildError(f"{process.name} failed with exit code {exit_code}; the end of {log}:\n{process.last_lines()}")
        fresh.replace(program)
    return program


def _home(cache: Path | None) -> Path:
    return (cache or cache_directory()) / "bin" / "old-schedulers"


def _go_mod_of(version: str, go: Go, directory: Path) -> str:
    command: list[str | Path] = [go.command, "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"]
    done = subprocess.run(command, cwd=directory, env=go.environment, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout or "{}")
    if done.returncode != 0 or "GoMod" not in answer:
        raise BuildError(f"Kubernetes {version} cannot be downloaded: {answer.get('Error') or done.stderr.strip()}")
    return Path(answer["GoMod"]).read_text()


def _module(text: str, version: str) -> str:
    """A module with the same requirements as Kubernetes itself, whose parts in its own tree are taken from their own modules."""
    part = f"v0.{version.partition('.')[2]}"
    text = re.sub(r"^module .*$", "module old-scheduler", text, flags=re.MULTILINE)
    text = re.sub(r"^godebug .*\n|^godebug \([^)]*\)\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"(\S+) => \./staging/src/\S+", rf"\1 => \1 {part}", text)
    text = re.sub(rf"^\s+{re.escape(_ABSENT)} => .*$", "", text, flags=re.MULTILINE)
    for old, new in _NEWER.items():
        text = text.replace(old, new)
    return f"{text}\nrequire k8s.io/kubernetes v{version}\nreplace {_ABSENT} => ./absent\n"
