"""Layout rules: import contracts hold, every package has a charter, no vendor is named outside vendors/."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "accelshare"
VENDORS = re.compile(
    r"nvidia|aliyun|gpushare|kunlun|baidu|xpushare|enflame|gcushare|streamcomputing|stc-|nvml|cuda|\b(gcu|xpu)\b", re.IGNORECASE
)


def python_files(*folders: Path) -> list[Path]:
    return sorted(file for folder in folders for file in folder.rglob("*.py"))


def test_arrows_point_inward() -> None:
    """The contracts are in pyproject.toml; shells are one layer each and never import one another."""
    done = subprocess.run([Path(sys.executable).parent / "lint-imports"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_vendors_are_data() -> None:
    """A vendor's name in the engine is a rule that should have been a row of its profile."""
    files = [file for file in python_files(SOURCE, ROOT / "demo", ROOT / "cluster") if SOURCE / "vendors" not in file.parents]
    found = {
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if VENDORS.search(line)
    }
    assert found == set()


def test_everything_printed_passes_the_terminal_module() -> None:
    """Names, records and messages are written by others: accelshare.terminal makes them visible on their way to a person."""
    printing = re.compile(r"click\.s?echo|\bprint\(|sys\.(stdout|stderr)\.(write|buffer)")
    allowed = {
        "terminal.py",
        "testing/api_server/__main__.py",
    }  # the second prints one address of its own, for a test that starts it
    found = {
        f"{file.relative_to(SOURCE)}:{number}: {line.strip()}"
        for file in python_files(SOURCE)
        if str(file.relative_to(SOURCE)) not in allowed
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if printing.search(line)
    }
    assert found == set()


def test_waits_with_a_time_limit_lose_no_cancellation() -> None:
    """Before Python 3.12, asyncio.wait_for forgets a cancellation that comes together with its result: use asyncio.timeout."""
    files = (ROOT / "src/accelshare").rglob("*.py")
    assert [str(file) for file in files if "asyncio.wait_for(" in file.read_text()] == []


@pytest.mark.parametrize("file", python_files(SOURCE), ids=lambda file: str(file.relative_to(SOURCE)))
def test_every_file_says_what_belongs_in_it(file: Path) -> None:
    docstring = ast.get_docstring(ast.parse(file.read_text()))
    assert docstring, f"{file.name} has no charter"
    assert len(docstring.splitlines()[0]) > 10


def test_no_path_of_a_machine_and_no_registry_is_named() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    hosts = "|".join(["pypi" + r"\.org", "pythonhosted" + r"\.org", "proxy" + r"\.golang\.org", "sum" + r"\.golang\.org"])
    pattern = re.compile(rf"{hosts}|/(home|Users)/[a-z]+/|/root" + "/")
    found = [name for name in tracked if (ROOT / name).is_file() and pattern.search((ROOT / name).read_text(errors="ignore"))]
    assert found == []
