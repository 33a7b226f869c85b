"""kube-scheduler's command line, as kube-scheduler reads it."""

import pytest

from accelshare.scheduler_config.arguments import flags, moved_into_file, put
from accelshare.scheduler_config.problems import NotUnderstood
from accelshare.scheduler_config.release import parse


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


def test_leader_election_flags_count_beside_a_file_from_122_on() -> None:
    given = {"leader-elect": "false"}
    assert moved_into_file(given, parse("1.21")) == {"leaderElection": {"leaderElect": False}}
    assert moved_into_file(given, parse("1.22")) == {}
