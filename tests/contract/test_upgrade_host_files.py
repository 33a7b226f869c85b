"""Host files of both versions: this one restores and takes over what 0.1 wrote, and 0.1 restores what this one writes.

kube-scheduler's manifest, unit and configuration, containerd's and CRI-O's files, records and backups. `recorded/0.1` has what
0.1's own commands wrote; how to record again: recorded/0.1/README.md.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from accelshare import cli
from tests.contract.host_file_cases import CASES, HostCase, Tree, empty_host, read, write

RECORDED: dict[str, dict[str, Tree]] = json.loads((Path(__file__).parent / "recorded/0.1/host-files.json").read_text())
EACH = pytest.mark.parametrize("name", list(CASES))


def run(case: HostCase, verb: str, *words: str) -> list[str]:
    """The lines that the command of this version prints."""
    done = CliRunner().invoke(cli.accelshare, [case.command, verb, *case.where, *words])
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def record(tree: Tree) -> Any:
    return json.loads(tree["backup/record.json"])


@EACH
def test_this_version_restores_what_0_1_wrote(name: str) -> None:
    """Every byte as before, and nothing of ours stays."""
    case = CASES[name]
    with empty_host():
        write(RECORDED[name]["of 0.1"])
        assert "restored" in run(case, "restore")
        assert read() == case.original


@EACH
def test_this_version_takes_over_what_0_1_wrote(name: str) -> None:
    """As an upgrade does: nobody's change is found in it, and the way back leads to the files before 0.1."""
    case = CASES[name]
    with empty_host():
        write(RECORDED[name]["of 0.1"])
        run(case, "apply", *case.apply[-1])
        assert record(read())["state"] == "applied"
        run(case, "restore")
        assert read() == case.original


@EACH
def test_this_version_still_writes_what_0_1_was_shown(name: str) -> None:
    """If a writer changes, show 0.1 the new files: record again."""
    case = CASES[name]
    with empty_host():
        write(case.original)
        for words in case.apply:
            run(case, "apply", *words)
        assert read() == RECORDED[name]["of this version"]


@EACH
def test_0_1_restored_what_this_version_wrote(name: str) -> None:
    """After a rollback to 0.1, its uninstall leaves the host as it was."""
    assert RECORDED[name]["restored by 0.1"] == CASES[name].original
    assert record(RECORDED[name]["of this version"])["format"] == 1
