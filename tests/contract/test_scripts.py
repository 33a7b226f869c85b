"""The shell scripts: clean by the shell and by shellcheck, and each tells what it can do."""

import subprocess
from pathlib import Path

import pytest

from cluster.debian_programs import SHELLCHECK, ensure
from cluster.errors import ClusterError

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted([*(ROOT / "deploy").glob("*.sh"), *(ROOT / "deploy/scripts").glob("*.sh")])
TO_CALL = [script for script in SCRIPTS if script.name != "common.sh"]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_is_one(script: Path) -> None:
    assert run("/bin/sh", "-n", script).returncode == 0
    if script in TO_CALL:
        text = script.read_text()
        assert text.startswith("#!/bin/sh\n")
        assert "\nset -eu\n" in text
        assert script.stat().st_mode & 0o111 == 0o111


@pytest.fixture(scope="module")
def shellcheck() -> Path:
    try:
        return ensure(SHELLCHECK, print)
    except ClusterError as error:
        pytest.skip(f"no shellcheck: {error}")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_shellcheck_finds_nothing(shellcheck: Path, script: Path) -> None:
    done = run(shellcheck, "--external-sources", "--source-path=SCRIPTDIR", script)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "script", [script for script in TO_CALL if script.parent.name == "scripts"], ids=lambda script: script.name
)
def test_a_script_tells_its_manual(script: Path) -> None:
    done = run(script, "--help")
    assert done.returncode == 0
    assert script.name in done.stderr
    assert "set -eu" not in done.stderr
    assert not done.stderr.startswith("#")
