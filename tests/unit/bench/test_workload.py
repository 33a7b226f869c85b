"""accelshare reads the nodes and pods of the benchmarks as the page describes them."""

import msgspec
import orjson

from accelshare.ledger.facts import PodSeen
from accelshare.ledger.ledger import Ledger
from accelshare.ledger.nouns import Ask
from accelshare.ledger.refusals import Reason, Refusal
from accelshare.vendors.catalog import load
from accelshare.wire import scheduler
from accelshare.wire.nodes import NodeReader
from accelshare.wire.pods import PodReader, prefers_some_nodes
from bench import workload

CATALOG = load(())
ASKED = (Ask("nvidia", share=workload.SHARE),)


def seen(content: workload.Object) -> bytes:
    """As an API server would show it."""
    metadata = content["metadata"] | {"uid": f"uid-{content['metadata']['name']}", "resourceVersion": "7"}
    return orjson.dumps(content | {"metadata": metadata})


def ledger(nodes: int) -> Ledger:
    made = Ledger()
    for number in range(nodes):
        made.apply(NodeReader(CATALOG).decode(seen(workload.node(number))))
    return made


def book(made: Ledger, content: workload.Object) -> None:
    fact = PodReader(CATALOG).decode(seen(content))
    assert isinstance(fact, PodSeen)
    assert fact.problems == ()
    made.apply(fact)


def test_a_pod_of_the_queue_asks_one_share() -> None:
    fact = PodReader(CATALOG).decode(seen(workload.pod("a")))
    assert isinstance(fact, PodSeen)
    assert (fact.request, fact.refusal) == (ASKED, None)


def test_a_filler_leaves_units_on_every_card_and_room_on_none() -> None:
    made = ledger(1)
    book(made, workload.filler(0))
    assert made.offer(workload.node_name(0), ASKED) == Refusal(Reason.NO_CARD_HAS_ROOM, "nvidia")
    left = workload.CARDS * (workload.CARD_UNITS - workload.FULL_SHARE)
    assert left >= workload.SHARE, "or kube-scheduler would not ask about the node at all"
    assert made.check() == []


def test_a_crowd_fits_on_its_nodes() -> None:
    made = ledger(3)
    for number in range(3 * 10):
        book(made, workload.crowd_pod(number, 3))
    assert made.check() == []
    node = made.node(workload.node_name(0))
    assert node is not None
    assert [card.used for card in node.cards["nvidia"]] == [4, 4, 2, 2, 2, 2, 2, 2]
    assert node.unplaced == {}


def test_a_preferring_pod_has_a_wish_of_its_own() -> None:
    pod = seen(workload.preferring(workload.pod("a")))
    asked = scheduler.read_filter_call(workload.call_with_names(pod, workload.names_json(2)))
    assert prefers_some_nodes(asked.pod.spec)


def test_both_forms_of_a_call_name_the_same_nodes() -> None:
    pod = seen(workload.pod("a"))
    nodes = [msgspec.json.decode(seen(workload.node(number)), type=workload.Object) for number in range(3)]
    by_name = scheduler.read_filter_call(workload.call_with_names(pod, workload.names_json(3)))
    whole = scheduler.read_filter_call(workload.call_with_nodes(pod, nodes))
    assert by_name.names == whole.names == [workload.node_name(number) for number in range(3)]


def test_a_scheduler_without_an_extender_is_configured_alike() -> None:
    bare, ours = workload.scheduler_configuration(), workload.scheduler_configuration(workload.entry("http://127.0.0.1:1"))
    assert "extenders" not in bare
    assert {key: value for key, value in ours.items() if key != "extenders"} == bare
