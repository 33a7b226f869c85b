"""The image is small, runs as any user, and its bill of materials is true."""

import json
import re
from pathlib import Path

import pytest

from accelshare import __version__
from cluster.image import build_with_debian
from tests.e2e.image.archive import Archive

ROOT = Path(__file__).parents[3]
MOST_BYTES = 120_000_000
# How a compiled file says that nobody needs to look at its source: flags 0b01, PEP 552.
BY_CONTENT_UNCHECKED = b"\x01\x00\x00\x00"


@pytest.fixture(scope="module")
def root(image: Archive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's file system."""
    return image.unpack(tmp_path_factory.mktemp("image"))


def test_its_entry_point_is_the_command_and_its_user_is_not_root(image: Archive) -> None:
    settings = image.configuration["config"]
    assert (settings["Entrypoint"], settings["User"]) == (["accelshare"], "65532:65532")
    (name,) = image.manifest["RepoTags"]
    assert name.endswith(f"/accelshare:{__version__}")


def test_it_adds_little_to_its_base(image: Archive) -> None:
    sizes = {entry.name: entry.size for entry in image.own_entries() if entry.isfile()}
    assert 20_000_000 < sum(sizes.values()) <= MOST_BYTES, sorted(sizes.items(), key=lambda item: -item[1])[:10]


def test_it_runs_as_its_own_user(image: Archive, root: Path) -> None:
    done = image.run(root, "--version")
    assert (done.returncode, done.stdout) == (0, f"accelshare {__version__}\n"), done.stderr
    for command in ("extender", "agent", "scheduler-config", "preflight"):
        done = image.run(root, command, "--help")
        assert done.returncode == 0, done.stderr
    assert "kunlun" in image.run(root, "profile", "list").stdout


def test_nobody_but_root_can_change_it(image: Archive) -> None:
    entries = list(image.own_entries())
    assert {(entry.uid, entry.gid) for entry in entries} == {(0, 0)}
    assert [entry.name for entry in entries if not entry.issym() and entry.mode & 0o7022] == []


def test_every_module_is_compiled_by_content_so_that_no_build_differs_by_its_time(image: Archive, root: Path) -> None:
    names = [entry.name for entry in image.own_entries()]
    compiled = [name for name in names if name.endswith(".pyc")]
    assert len(compiled) > 500
    assert {(root / name).read_bytes()[4:8] for name in compiled} == {BY_CONTENT_UNCHECKED}
    assert len({entry.mtime for entry in image.own_entries() if entry.name.startswith("opt/accelshare/lib")}) == 1


def test_nothing_of_the_machine_that_built_it_is_in_it(image: Archive, root: Path) -> None:
    """Neither pip's settings nor the tools of the build, nor a path of the checkout."""
    names = [entry.name for entry in image.own_entries()]
    assert [name for name in names if re.search(r"pip\.conf|ca\.crt|/pip/|hatchling|^build", name)] == []
    texts = [root / name for name in names if name.endswith((".json", ".txt", "RECORD", "METADATA")) and "dist-info" in name]
    assert [file for file in texts if str(ROOT).encode() in file.read_bytes()] == []


def test_the_bill_of_materials_lists_exactly_what_is_in_it(image: Archive, root: Path) -> None:
    text = image.own_file("opt/accelshare/sbom.cdx.json").decode()
    listed = {part["purl"] for part in json.loads(text)["components"]}
    metadata = [file.read_text() for file in root.glob("opt/accelshare/lib/python3.*/site-packages/*.dist-info/METADATA")]
    python = {f"pkg:pypi/{normal(field(content, 'Name'))}@{field(content, 'Version')}" for content in metadata}
    assert {url for url in listed if url.startswith("pkg:pypi/")} == python - {f"pkg:pypi/accelshare@{__version__}"}
    pinned = re.findall(r"^([a-z0-9-]+)==([^ ]+)", (ROOT / "requirements/runtime.txt").read_text(), re.MULTILINE)
    assert python - {f"pkg:pypi/accelshare@{__version__}"} <= {f"pkg:pypi/{name}@{version}" for name, version in pinned}
    stanzas = (root / "var/lib/dpkg/status").read_text().split("\n\n")
    packages = {field(stanza, "Package") for stanza in stanzas if "\nStatus: install ok installed\n" in stanza}
    assert {url.split("/")[2].split("@")[0].replace("%2B", "+") for url in listed if url.startswith("pkg:deb/")} == packages


def test_a_second_build_of_the_same_source_is_the_same_image(image: Archive, tmp_path: Path) -> None:
    """On the same base; its packages are the distribution's of the day."""
    (tmp_path / "images").mkdir()
    for base in image.path.parent.glob("base-*.tar"):
        (tmp_path / "images" / base.name).symlink_to(base)
    again = build_with_debian(print, cache=tmp_path)
    assert again.archive is not None
    assert again.archive.name == image.path.name, "the source was changed while the tests ran"
    second = Archive(again.archive)
    assert second.manifest == image.manifest
    assert second.configuration == image.configuration


def field(text: str, name: str) -> str:
    found = re.search(rf"^{name}: (.+)$", text, re.MULTILINE)
    assert found is not None
    return found.group(1)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
