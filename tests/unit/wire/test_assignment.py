"""What a bind writes reads back as the assignment."""

import json

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from accelshare.ledger.nouns import Ask, Request, Slice
from accelshare.vendors.catalog import load
from accelshare.wire import assignment
from accelshare.wire.inventory import LONGEST_ID

PROFILES = {profile.name: profile for profile in load().profiles}
SIZES = {(kind, index): 16 for kind in PROFILES for index in range(64)}


def write(*slices: Slice) -> dict[str, str]:
    return assignment.write(slices, profiles=PROFILES, sizes=SIZES, now_ns=1662450043664667707)


def test_the_seed_keys_are_written_as_the_seed_shows_them() -> None:
    """The Enflame guide's own log: card 1 of 16, 12 requested."""
    record = write(Slice("enflame", 1, 12, id="GCU-1"))
    ours = record.pop("accelshare.io/assignment")
    assert record == {
        "enflame.com/gcu-device-id": "1",
        "enflame.com/gcu-device-memory": "16",
        "enflame.com/gcu-device-memory-request": "12",
        "enflame.com/gcu-device-assigned": "false",
        "enflame.com/gcu-device-assign-time": "1662450043664667707",
    }
    assert json.loads(ours) == {"enflame": [{"index": 1, "id": "GCU-1", "units": 12}]}


def test_several_cards_are_joined_by_commas() -> None:
    record = write(Slice("kunlun", 0, 4500), Slice("kunlun", 3, 4500))
    assert record["BAIDU_COM_XPU_MEM_IDX"] == "0,3"
    assert record["BAIDU_COM_XPU_MEM_POD"] == "9000"


def test_whole_cards_are_in_our_record_only() -> None:
    record = write(Slice("nvidia", 2, whole=True, id="GPU-2"))
    assert record == {"accelshare.io/assignment": '{"nvidia":[{"index":2,"id":"GPU-2","whole":true}]}'}


def test_without_cards_nothing_is_written() -> None:
    assert write() == {}


PLAIN, POD = "required-plugins.noderesource.dev", "required-plugins.noderesource.dev/pod"


def test_the_validator_is_required_in_every_scope_whatever_the_pod_has() -> None:
    """A validator reads the narrowest key only, so that a wider one of ours would be shadowed."""
    ours = '["accelshare"]'
    assert assignment.require_plugin(["c0", "init"]) == {
        PLAIN: ours,
        POD: ours,
        f"{PLAIN}/container.c0": ours,
        f"{PLAIN}/container.init": ours,
    }
    for value in ("[]", "", "null-x", '["accelshare-not"]', "- other\n", "[other, '10-more']", "{", "[[[["):
        for key in (PLAIN, POD, f"{PLAIN}/container.c0"):
            written = assignment.require_plugin(["c0"], {key: value})
            assert assignment.requires_plugin({key: value} | written, "c0"), (key, value)
            assert assignment.requires_plugin({key: value} | written, "added-later"), (key, value)


def test_our_plugin_is_required_beside_more_names_than_are_read() -> None:
    written = assignment.require_plugin(["c0"], {PLAIN: ",".join(f"p{number}" for number in range(5000))})
    assert assignment.requires_plugin(written, "c0")


def test_other_plugins_that_a_user_required_stay_required() -> None:
    written = assignment.require_plugin(["c0", "c1"], {PLAIN: "[one]", f"{PLAIN}/container.c0": '["two", "accelshare"]'})
    assert {key: json.loads(value) for key, value in written.items()} == {
        PLAIN: ["accelshare", "one"],
        POD: ["accelshare", "one"],
        f"{PLAIN}/container.c0": ["accelshare", "two"],
        f"{PLAIN}/container.c1": ["accelshare", "one"],
    }


def test_a_name_too_long_for_an_annotation_is_not_written() -> None:
    """That key is invalid, and the API server would refuse every later update of the pod."""
    assert len(assignment.require_plugin(["a" * 63, "b" * 53])) == 3


def test_a_container_may_require_no_plugin() -> None:
    assert assignment.requires_plugin({}, "c0") is None
    assert assignment.requires_plugin({f"{PLAIN}/container.c1": "[]"}, "c0") is None
    assert assignment.requires_plugin({PLAIN: '["accelshare"]', f"{PLAIN}/container.c0": "[]"}, "c0") is False


@st.composite
def assignments(draw: st.DrawFn) -> tuple[Request, tuple[Slice, ...]]:
    asks: list[Ask] = []
    slices: list[Slice] = []
    for kind in draw(st.lists(st.sampled_from(sorted(PROFILES)), min_size=1, unique=True)):
        cards = draw(st.lists(st.integers(0, 63), min_size=1, max_size=8, unique=True))
        whole = PROFILES[kind].resources.memory is None or draw(st.booleans())
        share = 0 if whole else draw(st.integers(1, 10_000))
        asks.append(Ask(kind, len(cards), share, whole))
        slices += [Slice(kind, index, share, whole, draw(st.sampled_from(["", f"{kind}-{index}"]))) for index in sorted(cards)]
    return tuple(asks), tuple(slices)


@for_all(assignments())
def test_annotations_round_trip(case: tuple[Request, tuple[Slice, ...]]) -> None:
    request, slices = case
    record = write(*slices)
    read, problems = assignment.read(record, request, PROFILES)
    assert (read, problems) == (slices, ())
    assert all(len(key.rpartition("/")[2]) <= 63 for key in record)


@for_all(assignments())
def test_an_original_system_that_reads_only_its_own_keys_sees_the_same_cards(case: tuple[Request, tuple[Slice, ...]]) -> None:
    request, slices = case
    record = write(*slices)
    del record["accelshare.io/assignment"]
    read, problems = assignment.read(record, request, PROFILES)
    shared = [s for s in slices if not s.whole and PROFILES[s.kind].annotations.index]
    assert [(s.kind, s.index, s.units) for s in read] == [(s.kind, s.index, s.units) for s in shared]
    assert problems == ()


@for_all(st.dictionaries(st.sampled_from(["accelshare.io/assignment", "ALIYUN_COM_GPU_MEM_IDX"]), st.text(max_size=50)))
def test_no_text_on_a_pod_breaks_the_reading(annotations: dict[str, str]) -> None:
    slices, _ = assignment.read(annotations, (Ask("nvidia", 1, 3),), PROFILES)
    assert all(slice_.units == 3 and 0 <= slice_.index <= 255 for slice_ in slices)


@pytest.mark.parametrize("index", [-1, 1024, 10**12])
def test_an_impossible_index_is_rejected(index: int) -> None:
    record = {"accelshare.io/assignment": json.dumps({"nvidia": [{"index": index}]})}
    assert assignment.read(record, (Ask("nvidia", 1, 3),), PROFILES)[0] == ()


@pytest.mark.parametrize(
    "entry",
    [{"index": 0, "id": "x" * (LONGEST_ID + 1)}, {"index": 0, "whole": True}],
    ids=["an id that is too long", "a whole card"],
)
def test_one_entry_that_does_not_serve_the_request_is_rejected(entry: dict[str, object]) -> None:
    """A record of one card is read by a way of its own, with the same bounds."""
    annotations = {assignment.OURS: json.dumps({"nvidia": [entry]})}
    assert assignment.read(annotations, (Ask("nvidia", 1, 3),), PROFILES)[0] == ()


def test_a_record_that_names_a_card_twice_is_rejected() -> None:
    """The pod has two cards; the second would count nowhere."""
    record = {"nvidia": [{"index": 0, "id": "GPU-a"}, {"index": 1, "id": "GPU-a"}]}
    annotations = {assignment.OURS: json.dumps(record)}
    assert assignment.read(annotations, (Ask("nvidia", cards=2, share=4),), PROFILES)[0] == ()
