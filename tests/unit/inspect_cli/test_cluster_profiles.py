"""Profiles from the cluster's ConfigMap: what is asked, how often, and which answers are none."""

from collections.abc import Iterator, Mapping

import msgspec
import pytest

from accelshare.inspect_cli.cluster_profiles import ClusterProfiles
from accelshare.kube.errors import BadAnswer, Forbidden
from accelshare.vendors.catalog import load
from tests.unit.vendors.builders import COMPLETE, as_file

SHIPPED = load()


class Client:
    """An API server without agents' pods, whose ConfigMap is what a test says."""

    def __init__(self, answer: bytes | Exception) -> None:
        self.answer = answer
        self.paths: list[str] = []

    def get(self, path: str, *, most_bytes: int) -> bytes:
        assert most_bytes < 10**7
        self.paths.append(path)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def items(self, _path: str, _params: Mapping[str, str]) -> Iterator[msgspec.Raw]:
        return iter(())


def profiles(answer: bytes | Exception) -> tuple[ClusterProfiles, Client]:
    client = Client(answer)
    return ClusterProfiles(client, SHIPPED, ()), client  # type: ignore[arg-type]  # the two methods that are used


def config_map(**texts: str) -> bytes:
    return msgspec.json.encode({"data": {f"{name}.toml": text for name, text in texts.items()}})


def test_known_kinds_ask_nobody() -> None:
    found, client = profiles(b"")
    found.seek(["nvidia", "kunlun"])
    assert (client.paths, found.catalog) == ([], SHIPPED)


def test_an_unknown_kind_is_asked_for_once() -> None:
    """A live view reads the cluster every two seconds."""
    found, client = profiles(config_map())
    for _ in range(3):
        found.seek(["acme"], ["n1"])
    assert client.paths == ["/api/v1/namespaces/kube-system/configmaps/accelshare-profiles"]
    assert "has no usable profile acme" in found.failure
    found.seek(["acme", "other"], ["n1"])
    assert len(client.paths) == 2


def test_the_profiles_of_the_cluster_stand_beside_the_shipped_ones() -> None:
    found, _ = profiles(config_map(acme=as_file(COMPLETE), site='extends = "nvidia"\ntitle = "Ours"\n', broken="[["))
    found.seek(["acme"])
    assert {profile.name for profile in found.catalog} == {"acme", *(profile.name for profile in SHIPPED)}
    assert found.catalog["nvidia"].title == "Ours"
    (problem,) = found.problems
    assert "broken.toml" in problem


def test_only_files_of_profiles_are_read() -> None:
    texts = {"acme.toml": as_file(COMPLETE), "README.md": "[[", ".acme.toml.swp": "[[", ".toml": "[["}
    found, _ = profiles(msgspec.json.encode({"data": texts}))
    found.seek(["acme"])
    assert "acme" in found.catalog
    assert (found.problems, found.failure) == ((), "")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b'{"data": 3}',
        b'{"data": {"acme.toml": 7}}',
        b'{"data": {"acme.toml": "\\ud800"}}',
        b'{"data": ' + b'{"a":' * 5000,
        BadAnswer("longer than it may be \x1b[2J"),
        Forbidden(403, "Forbidden", "no"),
    ],
)
def test_an_answer_that_cannot_be_used_changes_nothing(answer: bytes | Exception) -> None:
    found, _ = profiles(answer)
    found.seek(["acme"])
    assert found.catalog == SHIPPED
    assert "accelshare-profiles" in found.failure
    assert "\x1b" not in found.failure


def test_messages_stay_short() -> None:
    wrong = "".join(f'[x{number}]\n"{"y" * 3000}" = 1\n' for number in range(60))
    found, _ = profiles(config_map(**{f"p{number}": wrong for number in range(50)}))
    found.seek(["acme" * 100])
    assert len(found.problems) <= 4
    assert sum(map(len, (*found.problems, found.failure))) < 3000
