"""Building programs into the cache, with a Go that writes what it was asked for instead of compiling it."""

from pathlib import Path

import pytest

from cluster.build import binaries, missing

GO = """#!/bin/sh
case "$1" in
env) echo go1.99.0 ;;
list) echo "$MODULES/$6" ;;
build) while [ $# -gt 2 ]; do if [ "$1" = -o ]; then echo "built from $3" >"$2"; fi; shift; done ;;
esac
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where modules are unpacked; `go` is on PATH."""
    program = tmp_path / "path" / "go"
    program.parent.mkdir()
    program.write_text(GO)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("MODULES", str(tmp_path / "modules"))
    for module in ("sigs.k8s.io/kueue", "sigs.k8s.io/jobset"):
        manifests = tmp_path / "modules" / module / "config" / "default"
        manifests.mkdir(parents=True)
        (manifests / "kustomization.yaml").write_text(f"# of {module}\n")
        (manifests / "kustomization.yaml").chmod(0o444)  # as everything in Go's module cache
    return tmp_path / "modules"


def test_the_manifests_of_a_program_are_kept_beside_it(modules: Path, tmp_path: Path) -> None:
    """Go's module cache is thrown away after the build."""
    cache = tmp_path / "cache"
    assert missing(["kueue", "jobset"], cache) == ["kueue", "jobset"]
    built = binaries(["kueue", "jobset"], lambda _: None, cache=cache, keep_go_caches=True)
    for program, package in (("kueue", "sigs.k8s.io/kueue/cmd/kueue"), ("jobset", "sigs.k8s.io/jobset")):
        assert built[program].read_text() == f"built from {package}\n"
        kept = built[program].parent / f"{program}-config" / "default" / "kustomization.yaml"
        assert kept.read_text() == f"# of sigs.k8s.io/{program}\n"
    assert missing(["kueue", "jobset"], cache) == []


def test_a_program_is_not_there_without_its_manifests(modules: Path, tmp_path: Path) -> None:
    (modules / "sigs.k8s.io/jobset/config").rename(modules / "elsewhere")
    with pytest.raises(OSError, match="config"):
        binaries(["kueue"], lambda _: None, cache=tmp_path / "cache", keep_go_caches=True)
    assert missing(["kueue"], tmp_path / "cache") == ["kueue"]
