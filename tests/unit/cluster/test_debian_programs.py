"""Unpacking a program of a Debian package without root, and the error if that is not possible."""

from pathlib import Path

import pytest

from cluster.debian_programs import DebianProgram, ensure
from cluster.errors import ClusterError

THIS = DebianProgram("frobnicate", "frob-tools")
# A download leaves a file, and unpacking it makes the tree that a package has.
DOWNLOAD = '[ "$1" = download ] && : > frob-tools_1_all.deb'
UNPACK = (
    'mkdir -p "$3/usr/bin" && printf "#!/bin/sh\\n%s\\n" "{does}" > "$3/usr/bin/frobnicate" && chmod 755 "$3/usr/bin/frobnicate"'
)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without the program, whose packages' tools are ours, and an empty cache."""
    monkeypatch.setenv("ACCELSHARE_CACHE", str(tmp_path / "cache"))
    directory = tmp_path / "tools"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    return directory


def put(directory: Path, name: str, does: str) -> None:
    file = directory / name
    file.write_text(f"#!/bin/sh\n{does}\n")
    file.chmod(0o755)


def test_it_is_unpacked_once(tools: Path) -> None:
    put(tools, "apt-get", DOWNLOAD)
    put(tools, "dpkg-deb", UNPACK.format(does="exit 0"))
    messages: list[str] = []
    found = ensure(THIS, messages.append)
    assert found.stat().st_mode & 0o111
    assert messages == ["frobnicate is missing: unpacking it from Debian's package frob-tools"]
    put(tools, "apt-get", "exit 1")
    assert ensure(THIS, messages.append) == found
    assert len(messages) == 1


def test_one_that_is_installed_is_taken(tools: Path) -> None:
    put(tools, "frobnicate", "exit 0")
    assert ensure(THIS, print) == tools / "frobnicate"


@pytest.mark.parametrize(
    ("apt_get", "unpacked", "words"),
    [
        ("echo 'E: no route to host' >&2; exit 100", "exit 0", "apt-get cannot download frob-tools (E: no route to host)"),
        (
            DOWNLOAD,
            "echo no libfrob.so.1 >&2; exit 127",
            "frobnicate of frob-tools_1_all.deb does not work here: no libfrob.so.1",
        ),
    ],
)
def test_what_is_missing_and_what_to_do_is_told(tools: Path, apt_get: str, unpacked: str, words: str) -> None:
    put(tools, "apt-get", apt_get)
    put(tools, "dpkg-deb", UNPACK.format(does=unpacked))
    with pytest.raises(ClusterError) as refused:
        ensure(THIS, print)
    assert words in str(refused.value)
    assert str(refused.value).endswith("install what Debian calls frob-tools, or put frobnicate on the PATH")
