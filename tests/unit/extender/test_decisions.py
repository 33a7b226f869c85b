"""filter over many nodes: the short search finds the same node as the full one."""

from typing import Any

import msgspec

from accelshare.extender.decisions import MANY, Decisions
from accelshare.extender.promises.plan import Plan
from accelshare.ledger.ledger import Ledger
from accelshare.vendors.catalog import load
from accelshare.wire.objects import pod_decoder
from accelshare.wire.pods import PodReader
from accelshare.wire.scheduler import read_filter_call
from accelshare.wire.scheduling import SchedulingNode, SchedulingPod
from tests.builders import card, node, pending, running, share

CATALOG = load()
READER = PodReader(CATALOG)
KIND = "nvidia"


def pod(units: int, version: str) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {"aliyun.com/gpu-mem": str(units)}}}
    metadata = {"name": "a", "namespace": "default", "uid": "a", "resourceVersion": version}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def asked(units: int, names: list[str], version: str = "") -> bytes:
    return msgspec.json.encode({"Pod": pod(units, version), "Nodes": None, "NodeNames": names})


def ledger_of(names: list[str], full: int) -> Ledger:
    ledger = Ledger()
    for name in names:
        ledger.apply(node(name, cards=(card(0, 16, kind=KIND),)))
    for name in names[:full]:
        ledger.apply(running(f"on-{name}", on=f"{name}/0", request=share(16, kind=KIND)))
    return ledger


def test_the_best_node_is_the_same_whether_names_are_read_or_looked_for() -> None:
    names = [f"n{number:03}" for number in range(300)]
    for full in (0, 1, 20, 299):
        ledger = ledger_of(names, full)
        short, every = (
            Decisions(ledger, CATALOG, READER, shortlist=length).filter(read_filter_call(asked(4, names))) for length in (1, 0)
        )
        assert short.answer.names == every.answer.names[:1] == [names[full]]
        assert set(every.answer.curable) == set(names[:full])
        assert (short.answer.curable, short.refused) == ({}, None), "kube-scheduler needs no reasons while a node is left"


def test_a_pod_that_fits_nowhere_gets_the_reason_of_every_node() -> None:
    names = [f"n{number:03}" for number in range(300)]
    ledger = ledger_of(names, len(names))
    results = [
        Decisions(ledger, CATALOG, READER, shortlist=length).filter(read_filter_call(asked(4, names))) for length in (1, 0)
    ]
    assert results[0] == results[1]
    assert list(results[0].answer.names) == []
    assert set(results[0].answer.curable) == set(names)
    assert results[0].refused is not None
    assert sum(results[0].refused.values()) == len(names)


def test_a_short_call_gets_the_reason_of_every_refused_node() -> None:
    names = [f"n{number:03}" for number in range(MANY - 1)]
    result = Decisions(ledger_of(names, 2), CATALOG, READER, shortlist=1).filter(read_filter_call(asked(4, names)))
    assert result.answer.names == [names[2]]
    assert set(result.answer.curable) == set(names[:2])
    assert result.refused is not None
    assert sum(result.refused.values()) == 2


def test_the_best_node_is_not_named_unless_kube_scheduler_named_it() -> None:
    names = [f"n{number:03}" for number in range(300)]
    ledger = ledger_of(names, 2)
    result = Decisions(ledger, CATALOG, READER, shortlist=1).filter(read_filter_call(asked(4, names[40:])))
    assert result.answer.names == [names[40]]


def test_a_pod_that_changed_since_the_watch_showed_it_gets_what_it_requests_now() -> None:
    ledger = ledger_of(["n1"], 0)
    decisions = Decisions(ledger, CATALOG, READER, shortlist=1)
    seen = READER.fact(pod_decoder.decode(msgspec.json.encode(pod(4, "7"))))
    assert seen is not None
    ledger.apply(seen)
    assert decisions.pod(read_filter_call(asked(4, ["n1"], "7")).pod) == seen
    assert list(decisions.filter(read_filter_call(asked(4, ["n1"], "7"))).answer.names) == ["n1"]
    for version in ("8", "6", "", "a"):
        assert list(decisions.filter(read_filter_call(asked(17, ["n1"], version))).answer.names) == []


def test_a_node_to_which_binds_fail_is_offered_last_until_one_succeeds_or_its_cards_change() -> None:
    """Otherwise filter would prefer it for ever, and no pod would be bound."""
    names = ["n1", "n2", "n3"]
    ledger = ledger_of(names, 0)
    for uid in ("p1", "p2"):
        ledger.apply(pending(uid, share(4, kind=KIND)))
    decisions = Decisions(ledger, CATALOG, READER, shortlist=0)
    question = read_filter_call(asked(4, names))

    def offered() -> list[str]:
        assert list(decisions.prioritize(question)) == list(decisions.filter(question).answer.names)
        return list(decisions.filter(question).answer.names)

    for _ in range(3):
        decisions.bind_ended("n1", "p1", bound=False)
    assert offered() == names, "one pod may fail for its own sake"
    decisions.bind_ended("n1", "gone", bound=False)
    assert offered() == names, "so does one that is not there any more"
    decisions.bind_ended("n1", "p2", bound=False)
    assert offered() == ["n2", "n3", "n1"]
    assert decisions.filter(read_filter_call(asked(4, ["n1"]))).answer.names == ["n1"], "last, not never"
    decisions.bind_ended("n1", "p2", bound=True)
    assert offered() == names
    for uid in ("p1", "p2"):
        decisions.bind_ended("n1", uid, bound=False)
    assert offered() == ["n2", "n3", "n1"]
    ledger.apply(node("n1", cards=(card(0, 16, kind=KIND, id="new"),)))
    assert offered() == names


def test_a_pod_that_was_refused_before_is_not_kept_on_a_node_on_which_binds_fail() -> None:
    names = ["n1", "n2"]
    ledger = ledger_of(names, 0)
    memory = CATALOG[KIND].resources.memory or ""
    plan = Plan(ledger, managed={memory}, shortest_queue=1, clock=lambda: 1000.0, count=lambda _: None)
    for name in names:
        plan.node_seen(SchedulingNode(name, {}, (), False, {"pods": 110_000}))
    seen = READER.fact(pod_decoder.decode(msgspec.json.encode(pod(4, "7"))))
    assert seen is not None
    for fact in (seen, pending("other", share(4, kind=KIND))):
        ledger.apply(fact)
        plan.pod_seen(SchedulingPod(fact.uid, "default", fact.name, fact.version, "", ((memory, 4000),), refused=fact is seen))
    plan.pod_seen(SchedulingPod("first", "default", "first", 1, "", ((memory, 4000),)))
    decisions = Decisions(ledger, CATALOG, READER, shortlist=1, plan=plan)
    decisions.filter(read_filter_call(asked(4, names, "7")))
    question = read_filter_call(asked(4, names, "7"))
    assert decisions.filter(question).answer.names == ["n1"]
    for uid in ("a", "other"):
        decisions.bind_ended("n1", uid, bound=False)
    assert decisions.filter(question).answer.names == ["n2"]
