"""Builds the least extender, once, with the Go that builds the control plane.

Belongs here: the program (main.go) and where it is built. Never: measuring it.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cluster.cache import cache_directory, only_builder, throw_away
from cluster.errors import BuildError
from cluster.process import Process
from cluster.toolchain import find_go

SOURCE: Final = Path(__file__).parent


def program(say: Callable[[str], None]) -> Path:
    """The built program; one for each content of its source."""
    cache = cache_directory()
    content = b"".join((SOURCE / name).read_bytes() for name in ("go.mod", "main.go"))
    built = cache / "bin" / f"least-extender-{hashlib.sha256(content).hexdigest()[:12]}" / "least-extender"
    if built.exists():
        return built
    with only_builder(cache, say):
        caches = cache / "go"
        were_there = caches.exists()
        go = find_go(cache, say)
        built.parent.mkdir(parents=True, exist_ok=True)
        fresh = built.with_name(".least-extender.new")
        command: list[str | Path] = [go.command, "build", "-trimpath", "-buildvcs=false", "-o", fresh, "."]
        log = cache / "logs" / "build-least-extender.log"
        building = Process("building the least extender", command, log, environment=go.environment, directory=SOURCE)
        if building.wait_ended(say, str) != 0:
            raise BuildError(f"{building.name} failed; the end of {log}:\n{building.last_lines()}")
        fresh.replace(built)
        if not were_there:
            throw_away(cache, caches)
    return built
