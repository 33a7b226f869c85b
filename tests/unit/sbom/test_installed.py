"""What is installed is read from what installers left behind."""

import json
import subprocess
import sys
from importlib.metadata import Distribution, PathDistribution, distributions
from pathlib import Path

from accelshare.sbom import installed

STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9
Description: GNU C Library
 Package: of a longer description

Package: gone
Status: deinstall ok config-files
Version: 1
"""


def distribution(directory: Path, *lines: str) -> Distribution:
    home = directory / f"{len(list(directory.iterdir()))}.dist-info"
    home.mkdir()
    (home / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines]) + "\n")
    return PathDistribution(home)


def test_a_distribution_has_one_spelling_its_licence_and_what_it_needs(tmp_path: Path) -> None:
    first = distribution(
        tmp_path,
        "Name: Ruamel.YAML",
        "Version: 1",
        "License: MIT",
        "Requires-Dist: a_b>=2; python_version > '3'",
        "Requires-Dist: c; extra == 'x'",
    )
    again = distribution(tmp_path, "Name: ruamel-yaml", "Version: 2")
    (part,) = installed.python_parts([first, again])
    assert (part.name, part.version, part.license, part.needs) == ("ruamel-yaml", "1", "MIT", ("a-b",))


def test_a_licence_is_a_name_and_never_a_whole_text(tmp_path: Path) -> None:
    expression = distribution(tmp_path, "Name: a", "Version: 1", "License: old", "License-Expression: MIT OR Apache-2.0")
    text = distribution(
        tmp_path, "Name: b", "Version: 1", f"License: {'word ' * 40}", "Classifier: License :: OSI Approved :: BSD License"
    )
    silent = distribution(tmp_path, "Name: c", "Version: 1")
    parts = installed.python_parts([expression, text, silent])
    assert [part.license for part in parts] == ["MIT OR Apache-2.0", "BSD License", ""]


def test_the_systems_packages_are_those_that_dpkg_has_installed(tmp_path: Path) -> None:
    (tmp_path / "status").write_text(STATUS)
    (tmp_path / "os-release").write_text('NAME="Some"\nID="ubuntu"\n')
    (part,) = installed.system_parts(tmp_path / "status", tmp_path / "os-release")
    assert (part.namespace, part.name, part.version, part.qualifiers) == ("ubuntu", "libc6", "2.36-9", (("arch", "amd64"),))
    assert installed.system_parts(tmp_path / "nowhere", tmp_path / "os-release") == []


def test_the_command_lists_exactly_what_is_installed_here() -> None:
    done = subprocess.run([sys.executable, "-m", "accelshare", "sbom"], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    python = {part["name"] for part in told["components"] if part["purl"].startswith("pkg:pypi/")}
    names = {installed._normal(found.metadata["Name"]) for found in distributions()}
    assert python == names - {"accelshare"}
    assert told["metadata"]["component"]["name"] == "accelshare"
