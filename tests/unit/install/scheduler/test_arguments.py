"""kube-scheduler's command line, as kube-scheduler reads it."""

import pytest

from accelshare.install.errors import NotUnderstood
from accelshare.install.scheduler.arguments import flags, moved_into_file, put
from accelshare.install.scheduler.release import parse


def test_both_spellings_booleans_and_underscores() -> None:
    words = ["kube-scheduler", "--config", "/a", "--v=2", "--leader-elect", "--policy_config_file=/b", "--profiling", "--v=3"]
    assert flags(words) == {"config": "/a", "v": "3", "leader-elect": "true", "policy-config-file": "/b", "profiling": "true"}


def test_a_flag_is_changed_where_it_stands() -> None:
    words = ["x", "--config=/a", "--v=2"]
    put(words, "config", "/b")
    assert words == ["x", "--config=/b", "--v=2"]
    put(words, "new", "1")
    assert words[-1] == "--new=1"


def test_a_value_that_cannot_be_moved_is_refused() -> None:
    with pytest.raises(NotUnderstood, match="--kube-api-qps=many"):
        moved_into_file({"kube-api-qps": "many"}, parse("1.36"))
    with pytest.raises(NotUnderstood, match="--profiling=maybe"):
        moved_into_file({"profiling": "maybe"}, parse("1.36"))


def test_the_short_spelling_of_verbosity_is_read() -> None:
    assert flags(["x", "-v=2"])["v"] == "2"
    assert flags(["x", "-v", "4", "--config=/a"]) == {"v": "4", "config": "/a"}


@pytest.mark.parametrize("version", ["1.18", "1.20", "1.22", "1.24"])
def test_the_old_names_of_the_lock_move_into_the_file_on_every_version_that_has_them(version: str) -> None:
    given = {"lock-object-name": "mine", "lock-object-namespace": "there"}
    assert moved_into_file(given, parse(version))["leaderElection"] == {"resourceName": "mine", "resourceNamespace": "there"}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--lock-object-name=old", "--leader-elect-resource-name=new"], "new"),
        (["--leader-elect-resource-name=new", "--lock-object-name=old"], "old"),
        (["--lock-object-name=a", "--leader-elect-resource-name=new", "--lock-object-name=old"], "old"),
    ],
)
def test_of_two_flags_for_the_lock_the_last_one_counts_before_122(words: list[str], name: str) -> None:
    assert moved_into_file(flags(words), parse("1.20"))["leaderElection"]["resourceName"] == name


@pytest.mark.parametrize("version", ["1.18", "1.21", "1.22"])
@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, "127.0.0.1:10251"),
        ({"port": "0"}, "127.0.0.1:10251"),
        ({"port": "0", "address": "0.0.0.0"}, "127.0.0.1:10251"),
        ({"address": "10.0.0.5"}, "10.0.0.5:10251"),
        ({"port": "10300"}, "127.0.0.1:10300"),
        ({"port": "10300", "address": "::1"}, "[::1]:10300"),
    ],
)
def test_the_plain_port_that_a_file_opens_is_kept_from_everybody(version: str, given: dict[str, str], address: str) -> None:
    """Beside --config kube-scheduler ignores --port and --address, and listens at 0.0.0.0:10251 with pprof and metrics."""
    content = moved_into_file(given, parse(version))
    assert (content["healthzBindAddress"], content["metricsBindAddress"]) == (address, address)


def test_from_123_on_there_is_no_plain_port_to_speak_of() -> None:
    assert moved_into_file({"port": "0"}, parse("1.23")) == {}


def test_a_plain_port_that_is_no_number_is_refused() -> None:
    with pytest.raises(NotUnderstood, match="--port=many"):
        moved_into_file({"port": "many"}, parse("1.20"))


def test_leader_election_flags_count_beside_a_file_from_122_on() -> None:
    given = {"leader-elect": "false"}
    assert moved_into_file(given, parse("1.21"))["leaderElection"] == {"leaderElect": False}
    assert "leaderElection" not in moved_into_file(given, parse("1.22"))
