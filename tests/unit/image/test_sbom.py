"""The bill of materials lists what installers left, in the form that SBOM tools read."""

import json
import subprocess
import sys
from importlib.metadata import Distribution, PathDistribution, distributions
from pathlib import Path

from cluster.image import sbom
from cluster.image.sbom import Part, document, package_url

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
SUBJECT = Part("pypi", "accelshare", "1.0", license="Apache-2.0", needs=("click", "not-here"))
CLICK = Part("pypi", "click", "8.2+local")
GLIBC = Part("deb", "libstdc++6", "1:12-3~deb", namespace="debian", qualifiers=(("arch", "amd64"),))


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
    (part,) = sbom.python_parts([first, again])
    assert (part.name, part.version, part.license, part.needs) == ("ruamel-yaml", "1", "MIT", ("a-b",))


def test_a_licence_is_a_name_and_never_a_whole_text(tmp_path: Path) -> None:
    expression = distribution(tmp_path, "Name: a", "Version: 1", "License: old", "License-Expression: MIT OR Apache-2.0")
    text = distribution(
        tmp_path, "Name: b", "Version: 1", f"License: {'word ' * 40}", "Classifier: License :: OSI Approved :: BSD License"
    )
    silent = distribution(tmp_path, "Name: c", "Version: 1")
    parts = sbom.python_parts([expression, text, silent])
    assert [part.license for part in parts] == ["MIT OR Apache-2.0", "BSD License", ""]


def test_the_systems_packages_are_those_that_dpkg_has_installed(tmp_path: Path) -> None:
    (tmp_path / "status").write_text(STATUS)
    (tmp_path / "os-release").write_text('NAME="Some"\nID="ubuntu"\n')
    (part,) = sbom.system_parts(tmp_path / "status", tmp_path / "os-release")
    assert (part.namespace, part.name, part.version, part.qualifiers) == ("ubuntu", "libc6", "2.36-9", (("arch", "amd64"),))
    assert sbom.system_parts(tmp_path / "nowhere", tmp_path / "os-release") == []


def test_the_program_lists_exactly_what_is_installed_here(tmp_path: Path) -> None:
    """Run as the Dockerfile runs it: by its path, with no package around it."""
    file = tmp_path / "sbom.json"
    environment = {"PATH": "", "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run([sys.executable, "-B", sbom.__file__, str(file)], check=True, env=environment, cwd=tmp_path)
    content = json.loads(file.read_text())
    python = {part["name"] for part in content["components"] if part["purl"].startswith("pkg:pypi/")}
    names = {sbom.normal_name(each.metadata["Name"]) for each in distributions()}
    assert python == names - {"accelshare"}
    assert content["metadata"]["component"]["name"] == "accelshare"
    assert file.stat().st_mtime == 1700000000


def test_a_package_url_escapes_what_would_be_read_as_its_own_marks() -> None:
    assert package_url(CLICK) == "pkg:pypi/click@8.2%2Blocal"
    assert package_url(GLIBC) == "pkg:deb/debian/libstdc%2B%2B6@1%3A12-3~deb?arch=amd64"


def test_the_document_names_the_subject_its_parts_and_who_needs_whom() -> None:
    content = json.loads(document(SUBJECT, [GLIBC, CLICK]))
    assert (content["bomFormat"], content["specVersion"]) == ("CycloneDX", "1.6")
    assert content["metadata"]["component"]["purl"] == "pkg:pypi/accelshare@1.0"
    assert content["metadata"]["component"]["licenses"] == [{"license": {"name": "Apache-2.0"}}]
    assert [part["name"] for part in content["components"]] == ["libstdc++6", "click"]
    assert content["dependencies"] == [{"ref": "pkg:pypi/accelshare@1.0", "dependsOn": ["pkg:pypi/click@8.2%2Blocal"]}]


def test_the_same_parts_in_any_order_are_the_same_bytes() -> None:
    assert document(SUBJECT, [GLIBC, CLICK]) == document(SUBJECT, [CLICK, GLIBC])
