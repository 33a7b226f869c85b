"""kube-scheduler's real messages are decoded in both spellings, and it can read our answers.

`recorded/` holds bodies that kube-scheduler 1.36.4 sent to an extender, with nodeCacheCapable true ("names") and false
("objects"). Clients before 1.17 had lower-case tags; their form is made from the recorded one, key by key.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from accelshare.wire import scheduler
from accelshare.wire.decoding import UnreadableError
from accelshare.wire.scheduler import FilterAnswer, Victims

RECORDED = Path(__file__).parent / "recorded"


def body(name: str) -> bytes:
    return (RECORDED / f"{name}.json").read_bytes()


def lower_case(content: bytes) -> bytes:
    return json.dumps({key.lower(): value for key, value in json.loads(content).items()}).encode()


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize("form", ["names", "objects"])
@pytest.mark.parametrize("casing", [bytes, lower_case])
def test_a_filter_call_is_read(verb: str, form: str, casing: Any) -> None:
    asked = scheduler.read_filter_call(casing(body(f"{verb}-{form}")))
    assert asked.pod.metadata.namespace == "default"
    assert asked.pod.spec.containers is not None
    assert set(asked.names) <= {"n1", "n2"}
    assert asked.names
    assert (asked.objects is None) == (form == "names")


@pytest.mark.parametrize("form", ["names", "objects"])
def test_proposed_victims_are_read_in_both_forms(form: str) -> None:
    asked = scheduler.read_preemption_call(body(f"preempt-{form}"))
    assert asked.pod.spec.priority == 1000
    assert set(asked.proposals) == {"n1", "n2"}
    assert all(len(victims.uids) == 2 and all(len(uid) == 36 for uid in victims.uids) for victims in asked.proposals.values())


@pytest.mark.parametrize("form", ["names", "objects"])
def test_a_bind_is_read(form: str) -> None:
    asked = scheduler.read_bind(body(f"bind-{form}"))
    assert (asked.pod_name, asked.pod_namespace, len(asked.pod_uid)) == ("important", "default", 36)
    assert asked.node in ("n1", "n2")


def test_the_filter_answer_has_gos_own_casing() -> None:
    asked = scheduler.read_filter_call(body("filter-names"))
    answer = json.loads(scheduler.write_filter_answer(FilterAnswer(["n1"], {"n2": "full"}, {"n3": "small"}), asked))
    assert answer == {
        "Nodes": None,
        "NodeNames": ["n1"],
        # kube-scheduler before 1.21 reads this map only: without n3 in it the event would not have the reason for n3.
        "FailedNodes": {"n2": "full", "n3": "small"},
        "FailedAndUnresolvableNodes": {"n3": "small"},
        "Error": "",
    }


def test_whole_nodes_are_answered_with_the_nodes_of_the_call() -> None:
    content = body("filter-objects")
    asked = scheduler.read_filter_call(content)
    answer = json.loads(scheduler.write_filter_answer(FilterAnswer(asked.names[:1]), asked))
    assert answer["NodeNames"] is None
    assert answer["Nodes"]["items"] == json.loads(content)["Nodes"]["items"][:1]


def test_the_preemption_answer_is_in_meta_form() -> None:
    answer = json.loads(scheduler.write_preemption_answer({"n1": Victims(["u1", "u2"], 3)}))
    assert answer == {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u1"}, {"UID": "u2"}], "NumPDBViolations": 3}}}


def test_scores_are_a_plain_list_in_the_order_of_the_call() -> None:
    writer = scheduler.ScoreWriter()
    for _ in range(2):
        answer = json.loads(writer.write(["a", "b", "c"], {"b": 10}))
        assert answer == [{"Host": "a", "Score": 0}, {"Host": "b", "Score": 10}, {"Host": "c", "Score": 0}]


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b"{}", b'{"Pod": 3}', b'{"Pod": {}}', b"\xff", b"[" * 100_000])
def test_any_other_message_is_reported_as_unreadable(content: bytes) -> None:
    for read in (scheduler.read_filter_call, scheduler.read_preemption_call, scheduler.read_bind):
        with pytest.raises(UnreadableError, match="message"):
            read(content)
