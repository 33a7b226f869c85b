"""filter over many nodes: the short search has the same result as the full one."""

import msgspec

from accelshare.extender.decisions import FEW, Decisions
from accelshare.ledger.ledger import Ledger
from accelshare.vendors.catalog import load
from accelshare.wire.pods import PodReader
from accelshare.wire.scheduler import read_filter_call
from tests.builders import card, node, pending, running, share

CATALOG = load()
READER = PodReader(CATALOG)
KIND = "nvidia"


def asked(units: int, names: list[str]) -> bytes:
    container = {"name": "c", "resources": {"limits": {"aliyun.com/gpu-mem": str(units)}}}
    pod = {"metadata": {"name": "a", "namespace": "default", "uid": "a"}, "spec": {"containers": [container]}}
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})


def ledger_of(names: list[str], full: int) -> Ledger:
    ledger = Ledger()
    for name in names:
        ledger.apply(node(name, cards=(card(0, 16, kind=KIND),)))
    for name in names[:full]:
        ledger.apply(running(f"on-{name}", on=f"{name}/0", request=share(16, kind=KIND)))
    return ledger


def test_the_best_and_every_reason_are_the_same_whether_names_are_read_or_looked_for() -> None:
    names = [f"n{number:03}" for number in range(300)]
    for full in (0, FEW - 1, FEW + 1):
        ledger = ledger_of(names, full)
        results = [
            Decisions(ledger, CATALOG, READER, shortlist=length).filter(read_filter_call(asked(4, names))) for length in (1, 0)
        ]
        assert results[0].answer.names == results[1].answer.names[:1] == [names[full]]
        assert results[0].answer.curable == results[1].answer.curable
        assert set(results[0].answer.curable) == set(names[:full])
        assert results[0].refused == results[1].refused


def test_the_best_node_is_not_named_unless_kube_scheduler_named_it() -> None:
    names = [f"n{number:03}" for number in range(300)]
    ledger = ledger_of(names, 2)
    result = Decisions(ledger, CATALOG, READER, shortlist=1).filter(read_filter_call(asked(4, names[40:])))
    assert result.answer.names == [names[40]]


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
