"""Records host files of version 0.1 and how it restores this version's: `python -m tests.contract.record_host_files CHECKOUT`.

Belongs here: running the commands of a checkout of version 0.1 and of this version. Never: assertions about this version.

The checkout needs the libraries of its requirements/dev.txt; PYTHON names a Python that has them.
"""

import json
import os
import sys
from pathlib import Path
from typing import Final

from tests.contract.host_file_cases import CASES, HostCase, Tree, call, empty_host, read, write

RECORDED: Final = Path(__file__).parent / "recorded/0.1/host-files.json"
OURS: Final = Path(__file__).parents[2] / "src"


def main() -> None:
    theirs, python = Path(sys.argv[1]).absolute() / "src", os.environ.get("PYTHON", sys.executable)
    recorded = {name: _record(case, theirs, [python]) for name, case in CASES.items()}
    RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


def _record(case: HostCase, theirs: Path, python: list[str]) -> dict[str, Tree]:
    """By 0.1: the host after its applies. By this version: the same, and after 0.1 has restored that."""
    with empty_host():
        write(case.original)
        for words in case.apply:
            _run(case, "apply", *words, source=theirs, program=python)
        of_0_1 = read()
    with empty_host():
        write(case.original)
        for words in case.apply:
            _run(case, "apply", *words, source=OURS, program=[sys.executable])
        of_this_version = read()
        _run(case, "restore", source=theirs, program=python)
        return {"of 0.1": of_0_1, "of this version": of_this_version, "restored by 0.1": read()}


def _run(case: HostCase, verb: str, *words: str, source: Path, program: list[str]) -> None:
    done = call(program, case, verb, *words, source=source)
    assert done.returncode == 0, f"{case.command} {verb}: {done.stdout}{done.stderr}"


if __name__ == "__main__":
    main()
