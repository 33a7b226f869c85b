"""`accelshare sbom`, through the whole command line."""

import json
from pathlib import Path

from click.testing import CliRunner

from accelshare.cli import accelshare


def test_a_file_instead_of_the_screen(tmp_path: Path) -> None:
    file = tmp_path / "sbom.json"
    assert CliRunner().invoke(accelshare, ["sbom", f"--file={file}"]).stdout == ""
    assert json.loads(file.read_text())["metadata"]["component"]["name"] == "accelshare"


def test_a_file_that_cannot_be_written_is_told_without_a_traceback(tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "sbom.json"
    result = CliRunner().invoke(accelshare, ["sbom", f"--file={file}"])
    assert (result.exit_code, result.stderr) == (1, f"Error: {file}: No such file or directory\n")
