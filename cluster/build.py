"""Builds the pinned programs from source into the cache, if they are missing.

A program's directory is named by its version and a hash of all that decides its content, so a changed pin is built again and
an old checkout still finds its own. Go's caches are several GB and serve no further purpose once all is built.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.cache import cache_directory, empty_trash, only_builder, throw_away
from cluster.errors import BuildError
from cluster.process import Process
from cluster.toolchain import Go, find_go
from cluster.versions import CONTROL_PLANE_PROGRAMS, PROGRAMS, SOURCES, TEST_PROGRAMS, TEST_SOURCES, ProgramSource

_SOURCES: Final = (*SOURCES, *TEST_SOURCES)
_PROGRAMS: Final = (*PROGRAMS, *TEST_PROGRAMS)
_FLAGS: Final = ("-trimpath", "-mod=readonly", "-modcacherw", "-buildvcs=false", "-v")
_WORD_EVERY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where the built programs are."""

    paths: Mapping[str, Path]

    def __getitem__(self, program: str) -> Path:
        return self.paths[program]


def binaries(
    names: Sequence[str] = CONTROL_PLANE_PROGRAMS,
    say: Callable[[str], None] = print,
    *,
    cache: Path | None = None,
    keep_go_caches: bool = False,
    wait_for_trash: bool = False,
) -> Binaries:
    """The named programs, built if necessary; prints progress for anything that takes long.

    Go's caches are thrown away in the background, or before the return with `wait_for_trash`.
    """
    if unknown := sorted(set(names) - set(_PROGRAMS)):
        raise BuildError(f"no such program: {', '.join(unknown)}; there are {', '.join(_PROGRAMS)}")
    cache = cache or cache_directory()
    wanted = {
        program: (source, _home(cache, source) / program)
        for source in _SOURCES
        for program in source.packages
        if program in names
    }
    built = Binaries({program: path for program, (_, path) in wanted.items()})
    if not all(path.exists() for path in built.paths.values()):
        with only_builder(cache, say):
            missing = {program: (source, path) for program, (source, path) in wanted.items() if not path.exists()}
            if missing:  # else the process we waited for has built them
                _build_all(missing, cache, say)
                if not keep_go_caches:
                    throw_away(cache, cache / "go")
    if (cache / "trash").exists():
        _empty_trash(cache, say, wait_for_trash)
    return built


def missing(names: Sequence[str], cache: Path | None = None) -> list[str]:
    """Those of the named programs that are not built yet."""
    cache = cache or cache_directory()
    homes = {program: _home(cache, source) for source in _SOURCES for program in source.packages}
    return [name for name in names if not (homes[name] / name).exists()]


def _empty_trash(cache: Path, say: Callable[[str], None], wait: bool) -> None:
    thread = empty_trash(cache)
    begun = time.monotonic()
    while wait and thread.is_alive():
        thread.join(_WORD_EVERY_S)
        say(f"removing Go's caches … {time.monotonic() - begun:.0f} s")


def _build_all(missing: Mapping[str, tuple[ProgramSource, Path]], cache: Path, say: Callable[[str], None]) -> None:
    begun = time.monotonic()
    go = find_go(cache, say)
    hint = "; on 2 cores this takes some 10 minutes, once" if len(missing) >= len(CONTROL_PLANE_PROGRAMS) else ""
    say(f"building {', '.join(missing)} with {go.version} into {cache}{hint}")
    for program, (source, path) in missing.items():
        _build(program, source, path, go, cache / "logs" / f"build-{program}.log", say)
    say(f"built {len(missing)} program{'s' if len(missing) > 1 else ''} in {time.monotonic() - begun:.0f} s")


def _build(program: str, source: ProgramSource, path: Path, go: Go, log: Path, say: Callable[[str], None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{program}.new")
    command: list[str | Path] = [
        go.command,
        "build",
        *_flags(source),
        "-ldflags",
        _linker_flags(source),
        "-o",
        fresh,
        source.packages[program],
    ]
    begun = time.monotonic()
    environment = {**go.environment, "CGO_ENABLED": "1"} if source.c_libraries else go.environment
    process = Process(f"building {program}", command, log, environment=environment, directory=source.directory)
    exit_code = process.wait_ended(say, lambda: _how_far(log, source.packages[program]))
    if exit_code != 0:
        raise BuildError(f"{process.name} failed with exit code {exit_code}; the end of {log}:\n{process.last_lines()}")
    _copy_files(source, path.parent, go)
    fresh.replace(path)  # the last step: a program that is there is complete
    named = program if program == source.name else f"{program} of {source.name}"
    say(f"built {named} {source.version}: {time.monotonic() - begun:.0f} s, {path.stat().st_size / 1e6:.0f} MB")


def _copy_files(source: ProgramSource, home: Path, go: Go) -> None:
    """Manifests that the source's modules ship, beside its programs; Go's module cache is thrown away later."""
    for name, (module, path) in source.files.items():
        command: list[str | Path] = [go.command, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module]
        done = subprocess.run(command, cwd=source.directory, env=go.environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(f"the files of {module} cannot be found: {done.stderr.strip()}")
        if not (home / name).exists():
            fresh = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=home))
            shutil.copytree(Path(done.stdout.strip()) / path, fresh, dirs_exist_ok=True, copy_function=shutil.copyfile)
            fresh.rename(home / name)


def _how_far(log: Path, package: str) -> str:
    """The output of `go build -v` so far: modules while it loads, a package per line while it compiles."""
    lines = log.read_text(errors="replace").splitlines()
    downloaded = sum(line.startswith("go: downloading ") for line in lines)
    compiled = sum(" " not in line for line in lines)
    if package in lines[-1:]:
        return f", {compiled} packages compiled, linking"
    if compiled:
        return f", {compiled} packages compiled"
    return f", {downloaded} modules downloaded" if downloaded else ""


def _flags(source: ProgramSource) -> tuple[str, ...]:
    return (*_FLAGS, f"-tags={','.join(source.tags)}") if source.tags else _FLAGS


def _linker_flags(source: ProgramSource) -> str:
    static = ["-linkmode external", "-extldflags -static"] if source.c_libraries else []
    return " ".join(["-s", "-w", *static, *(f"-X {variable}={value}" for variable, value in source.stamps.items())])


def _home(cache: Path, source: ProgramSource) -> Path:
    """The directory of the source's programs, named by all that decides their content."""
    recipe = hashlib.sha256()
    for part in (
        *((source.directory / name).read_bytes() for name in ("go.mod", "go.sum")),
        " ".join([*_flags(source), _linker_flags(source)]).encode(),
        f"{platform.system()} {platform.machine()}".encode(),
        *(f"{name} {module} {path}".encode() for name, (module, path) in source.files.items()),
    ):
        recipe.update(hashlib.sha256(part).digest())
    return cache / "bin" / f"{source.name}-{source.version}-{recipe.hexdigest()[:12]}"
