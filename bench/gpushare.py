"""gpushare's own Go extender, which is measured beside ours.

Belongs here: where its sources come from, the two lines that are changed for one row, how it is started. Never: its code.

The sources come from the Go module proxy, at the last commit of the repository, or from a checkout on this machine.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench import go_program
from bench.results import GPUSHARE, GPUSHARE_PATCHED, GPUSHARE_QUIET
from cluster.errors import BuildError, ClusterError
from cluster.toolchain import Go

MODULE: Final = "github.com/AliyunContainerService/gpushare-scheduler-extender"
COMMIT: Final = "c0b6141"  # the last one, of March 2023
MAIN: Final = Path("cmd/main.go")
# Where the client is made and the least log level is set, and the same without a limit of 5 requests a second and without a log.
CLIENT: Final = "clientset, err = kubernetes.NewForConfig(restConfig)"
LEAST_LOG: Final = "logLevel = 5\n"
PATCHES: Final = ((CLIENT, f"restConfig.QPS = -1\n\t{CLIENT}"), (LEAST_LOG, "logLevel = 0\n"))
READY: Final = "/version"
# Its own manifest sets the level debug.
LOG_LEVELS: Final[Mapping[str, str]] = {GPUSHARE: "debug", GPUSHARE_QUIET: "error", GPUSHARE_PATCHED: "error"}


class NotServedError(ClusterError):
    """The Go module proxy does not serve the module."""


@dataclass(frozen=True, slots=True)
class Gpushare:
    """The sources; `checkout`: on this machine, else those of the Go module proxy."""

    checkout: Path | None = None

    @property
    def origin(self) -> str:
        """For the page."""
        if self.checkout is None:
            return f"{MODULE}@{COMMIT}"
        return f"{MODULE}, a checkout whose Go files and modules have the SHA-256 {_digest(self.checkout)[:12]}"

    def program(self, variant: str, say: Callable[[str], None]) -> Path:
        """The built program for this row. NotServedError: there are no sources."""
        patched = variant == GPUSHARE_PATCHED
        identity = f"{self.origin} {PATCHES if patched else ()}"
        name = "gpushare-patched" if patched else "gpushare-extender"
        return go_program.program(name, identity.encode(), partial(self._sources, patched=patched), say, package="./cmd")

    def _sources(self, go: Go, directory: Path, *, patched: bool) -> Path:
        found = self.checkout if self.checkout is not None else _download(go)
        copy = directory / "sources"
        shutil.copytree(found, copy, copy_function=shutil.copyfile, ignore=shutil.ignore_patterns(".git", "bin"))
        for part in (copy, *copy.rglob("*")):  # the module cache is read-only
            part.chmod(0o755 if part.is_dir() else 0o644)
        if patched:
            patch(copy / MAIN)
        return copy


def environment(variant: str, kubeconfig: Path, port: int) -> dict[str, str]:
    """With which it is started for this row."""
    return {**os.environ, "KUBECONFIG": str(kubeconfig), "PORT": str(port), "LOG_LEVEL": LOG_LEVELS[variant]}


def check_checkout(directory: Path) -> None:
    """ValueError if it is not a checkout of gpushare's extender."""
    try:
        first = (directory / "go.mod").read_text().split("\n", 1)[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{directory}/go.mod cannot be read: {error}") from error
    if first != f"module {MODULE}":
        raise ValueError(f"{directory}/go.mod begins with {first[:200]!r}, not with 'module {MODULE}'")


def patch(main: Path) -> None:
    text = main.read_text()
    for line, other in PATCHES:
        if text.count(line) != 1:
            raise BuildError(f"{main} does not have {line!r} once, so it cannot be replaced by {other!r}")
        text = text.replace(line, other)
    main.write_text(text)


def _download(go: Go) -> Path:
    command = [str(go.command), "mod", "download", "-json", f"{MODULE}@{COMMIT}"]
    done = subprocess.run(command, env=dict(go.environment), capture_output=True, text=True, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {"Error": done.stderr.strip() or f"exit code {done.returncode}"}
    if "Dir" not in answer:
        raise NotServedError(f"the Go module proxy does not serve {MODULE}@{COMMIT}: {cause(answer.get('Error', 'no reason'))}")
    return Path(answer["Dir"])


def cause(error: str) -> str:
    """The end of the first line of Go's error, such as "403 Forbidden". Before it stands the address of a registry."""
    return error.split("\n", 1)[0].rpartition(": ")[2]


def _digest(checkout: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted([*checkout.rglob("*.go"), checkout / "go.mod", checkout / "go.sum"]):
        digest.update(f"{path.relative_to(checkout)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
