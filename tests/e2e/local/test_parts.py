"""Parts of the local cluster that need no machine: images, journal, fake cards."""

import os
import tarfile
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.local.devices import fake_cards, make_node
from cluster.local.images import Content, SymbolicLink, make_image
from cluster.local.journal import Change, Journal, Kind


def test_the_same_files_are_the_same_image(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"#!/bin/sh\n")
    files: dict[str, Content] = {
        "bin/program": tmp_path / "program",
        "/etc/motd": b"hello\n",
        "bin/other": SymbolicLink("/bin/program"),
    }
    first = make_image(tmp_path / "a.tar", "example.com/x:1", files, ["/bin/program"]).read_bytes()
    os.utime(tmp_path / "program", (1, 1))
    assert make_image(tmp_path / "b.tar", "example.com/x:1", files, ["/bin/program"]).read_bytes() == first
    with tarfile.open(tmp_path / "a.tar") as archive:
        assert len(archive.getnames()) == 3  # configuration, manifest, layer


def test_an_image_of_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="missing is not there to become bin/program"):
        make_image(tmp_path / "a.tar", "example.com/x:1", {"bin/program": tmp_path / "missing"}, ["/bin/program"])


def test_the_journal_is_read_from_its_end_and_a_line_cut_short_is_no_change(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.write(Kind.DIRECTORY, "/etc/x")
    journal.write(Kind.DEVICE, "/dev/x", "1:3")
    with (tmp_path / "journal").open("a") as file:
        file.write('["device", "/de')
    assert list(journal.newest_first()) == [Change(Kind.DEVICE, "/dev/x", "1:3"), Change(Kind.DIRECTORY, "/etc/x")]


def test_no_two_fake_cards_share_a_node() -> None:
    nodes = [node for vendor in fake_cards().values() for node in vendor]
    assert len(fake_cards()) == 4
    assert len(set(nodes)) == len(nodes)
    assert all(node.startswith("/dev/") for node in nodes)


def test_a_node_that_exists_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "card0").write_text("real")
    with pytest.raises(ClusterError, match="exists already, and may be real"):
        make_node(tmp_path / "card0", Journal(tmp_path / "journal"))
    assert (tmp_path / "card0").read_text() == "real"
    assert not (tmp_path / "journal").exists()
