"""With several workers, tests that use the machine run first, one after the other, on one worker; other real tests wait."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.workers import LESS_IMPORTANT

ROOT = Path(__file__).parents[2]
CONFTEST = """
import pytest
from tests.conftest import pytest_collection_modifyitems, pytest_configure_node, pytest_runtest_setup, pytest_xdist_make_scheduler

@pytest.fixture(scope="session")
def machine():
    pass

@pytest.fixture
def cluster(machine):
    pass

@pytest.fixture
def nothing_up(machine):
    pass
"""
REAL = """
import os
import pytest

@pytest.mark.real
def test_{name}_real({fixtures}):
    assert os.getpriority(os.PRIO_PROCESS, 0) {expected}
"""
# Two files that do not need it, one that does in part, and one that does by way of another fixture.
FILES = {
    "test_a.py": "\n".join(f"def test_plain_{number}(): pass" for number in range(9))
    + REAL.format(name="plain", fixtures="", expected=f"== max({LESS_IMPORTANT}, int(os.environ['NICENESS']))"),
    "test_b.py": "\n".join(f"def test_plain_{number}(): pass" for number in range(9)),
    "test_c.py": "def test_plain(): pass\ndef test_machine_ends(nothing_up): pass\ndef test_machine(machine): pass\n",
    "test_d.py": "\n".join(f"def test_machine_{number}(cluster): pass" for number in range(4))
    + REAL.format(name="machine", fixtures="cluster", expected="== int(os.environ['NICENESS'])"),
}


class Ended(NamedTuple):
    worker: str
    file: str
    test: str


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> list[Ended]:
    """All tests in the order of their end; the manner of dealing out that is asked for here would tear files apart."""
    directory = tmp_path_factory.mktemp("workers")
    for name, content in {**FILES, "conftest.py": CONFTEST, "pytest.ini": "[pytest]\n"}.items():
        (directory / name).write_text(content)
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "--dist", "worksteal", "--no-loadscope-reorder"]
    plugins = [f"no:{name}" for name in ("cacheprovider", "asyncio", "hypothesispytest")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}  # we may be a worker ourselves
    done = subprocess.run(
        [*command, *(word for plugin in plugins for word in ("-p", plugin))],
        cwd=directory,
        env={**kept, "PYTHONPATH": str(ROOT), "NICENESS": str(os.getpriority(os.PRIO_PROCESS, 0))},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"^\[(gw\d)\] \[ *\d+%\] PASSED (\S+)::(\S+)", done.stdout, re.MULTILINE)
    assert len(found) == 27, done.stdout
    return [Ended(*each) for each in found]


def test_the_machine_has_one_worker_which_begins_with_it(ended: list[Ended]) -> None:
    (worker,) = {each.worker for each in ended if "machine" in each.test}
    first = [(each.file, each.test) for each in ended if each.worker == worker][:7]
    of_the_cluster = [*(f"test_machine_{number}" for number in range(4)), "test_machine_real"]
    last = ("test_c.py", "test_machine_ends")  # what ends the local cluster
    assert first == [("test_c.py", "test_machine"), *(("test_d.py", name) for name in of_the_cluster), last]


def test_the_other_tests_of_a_file_stay_together(ended: list[Ended]) -> None:
    """Their fixtures may be the file's."""
    plain = [each for each in ended if "plain" in each.test]
    assert {file: len({each.worker for each in plain if each.file == file}) for file in FILES} == {
        "test_a.py": 1,
        "test_b.py": 1,
        "test_c.py": 1,
        "test_d.py": 0,
    }
