"""Builds Go programs that are measured beside ours, once, with the Go that builds the control plane.

Belongs here: one build, kept in the cache. Never: their sources, measuring them.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from cluster.cache import build_directory, cache_directory, only_builder, throw_away
from cluster.errors import BuildError
from cluster.process import Process
from cluster.toolchain import Go, find_go


def program(
    name: str, identity: bytes, sources: Callable[[Go, Path], Path], say: Callable[[str], None], *, package: str = "."
) -> Path:
    """The built program; one for each identity.

    `sources` returns the directory of the sources. It may write into the directory that it is given, which is removed later.
    """
    cache = cache_directory()
    built = cache / "bin" / f"{name}-{hashlib.sha256(identity).hexdigest()[:12]}" / name
    if built.exists():
        return built
    with only_builder(cache, say):
        caches = cache / "go"
        were_there = caches.exists()
        go = find_go(cache, say)
        try:
            with build_directory(cache, name) as directory:
                _build(built, go, sources(go, directory), package, cache / "logs" / f"build-{name}.log", say)
        finally:
            if not were_there and caches.exists():
                throw_away(cache, caches)
    return built


def _build(built: Path, go: Go, directory: Path, package: str, log: Path, say: Callable[[str], None]) -> None:
    built.parent.mkdir(parents=True, exist_ok=True)
    fresh = built.with_name(f".{built.name}.new")
    command: list[str | Path] = [go.command, "build", "-trimpath", "-buildvcs=false", "-mod=mod", "-o", fresh, package]
    building = Process(f"building {built.name}", command, log, environment=go.environment, directory=directory)
    if building.wait_ended(say, str) != 0:
        raise BuildError(f"{building.name} failed; the end of {log}:\n{building.last_lines()}")
    fresh.replace(built)  # the last step: a program that is there is complete
