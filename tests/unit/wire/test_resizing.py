"""The annotations of a resize: hostile texts are no amount, no grant and no report."""

import json

import pytest

from accelshare.ledger.facts import PodSeen
from accelshare.ledger.nouns import Resize
from accelshare.vendors.catalog import load
from accelshare.wire import resizing
from accelshare.wire.inventory import LARGEST_SIZE
from accelshare.wire.nodes import NodeReader
from accelshare.wire.objects import Metadata, Node
from accelshare.wire.pods import PodReader

MEMORY = "aliyun.com/gpu-mem"


@pytest.mark.parametrize(
    ("text", "units"),
    [("8", 8), ("08", 8), ("0", 0), ("-1", 0), ("+8", 0), ("8.0", 0), ("8Gi", 0), (" 8", 0), ("", 0), ("٨", 0), ("9" * 5000, 0)],
)
def test_only_a_whole_number_is_an_amount(text: str, units: int) -> None:
    wanted = resizing.wanted(text, one_container=True)
    assert wanted.units == units
    assert wanted.text == text[: resizing.LONGEST_TEXT]


def test_an_amount_that_no_card_has_stays_one() -> None:
    """So that its refusal names the card's size."""
    assert resizing.wanted(str(LARGEST_SIZE * 2), one_container=True).units == LARGEST_SIZE + 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8",
        "[]",
        "{}",
        '{"units": 8}',
        '{"units": 0, "n": 1}',
        '{"units": -8, "n": 1}',
        '{"units": 8, "n": 0}',
        '{"units": "8", "n": 1}',
        '{"units": 8.5, "n": 1}',
        json.dumps({"units": LARGEST_SIZE + 1, "n": 1}),
        json.dumps({"units": 8, "n": 2**40}),
        json.dumps({"units": 8, "n": 1, "more": "x" * 2000}),
        '{"units": ' + "[" * 5000,
    ],
)
def test_what_is_no_grant_grants_nothing(text: str) -> None:
    assert resizing.granted(text) is None
    assert resizing.applied(json.dumps({"u": text})) == {}


def test_grants_and_reports_are_read_as_they_were_written() -> None:
    one = Resize(8, 3)
    assert resizing.granted(resizing.granted_text(one)) == one
    assert resizing.applied(resizing.applied_text({"a": one, "b": Resize(1, 1)})) == {"a": one, "b": Resize(1, 1)}


def test_a_bad_report_about_one_pod_hides_no_other() -> None:
    text = '{"a": {"units": 8, "n": 1}, "b": {"units": 0, "n": 1}}'
    assert resizing.applied(text) == {"a": Resize(8, 1)}


def test_the_report_of_a_node_is_bounded() -> None:
    many = {f"uid-{number}": Resize(LARGEST_SIZE, 2**31) for number in range(5000)}
    text = resizing.applied_text(many)
    assert len(text) < 100 * 1024
    assert "uid-4999" in resizing.applied(text)


def pod(*, bound: bool = True, containers: int = 1, **annotations: str) -> PodSeen:
    spec: dict[str, object] = {
        "containers": [{"name": f"c{i}", "resources": {"limits": {MEMORY: "4"}}} for i in range(containers)],
        **({"nodeName": "n1"} if bound else {}),
    }
    noted = {f"accelshare.io/{key}": value for key, value in annotations.items()}
    metadata = {"name": "a", "namespace": "default", "uid": "u", "annotations": noted}
    fact = PodReader(load()).decode(json.dumps({"metadata": metadata, "spec": spec}).encode())
    assert isinstance(fact, PodSeen)
    return fact


def test_a_wish_and_a_grant_never_change_the_request_that_is_read() -> None:
    fact = pod(resize="8", granted='{"units":8,"n":1}')
    assert fact.request[0].share == 4
    assert fact.granted == Resize(8, 1)
    assert fact.resize is not None
    assert (fact.resize.units, fact.resize.one_container) == (8, True)
    several = pod(resize="8", containers=2).resize
    assert several is not None
    assert not several.one_container


def test_a_grant_on_a_pod_that_is_not_bound_is_ignored() -> None:
    assert pod(bound=False, granted='{"units":8,"n":1}').granted is None


@pytest.mark.parametrize(("resizes", "without", "having"), [(True, {}, True), (False, None, False), (None, None, True)])
def test_reports_count_where_slices_are_resized(resizes: bool | None, without: object, having: bool) -> None:
    """The extender is told; other readers see it by the annotation of an agent that does it."""
    reader = NodeReader(load(), resizes=resizes)
    assert reader.fact(Node(Metadata(name="n1"))).applied == without
    noted = Node(Metadata(name="n1", annotations={resizing.APPLIED: '{"u": {"units": 8, "n": 1}}'}))
    assert reader.fact(noted).applied == ({"u": Resize(8, 1)} if having else None)
