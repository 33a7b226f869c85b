"""Cards in a tool's JSON: realistic outputs, and outputs that are wrong in every way."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.card_json import MOST_CARDS, read_json
from accelshare.vendors.drivers.driver import HostCard, QueryFailed
from accelshare.vendors.profile import JsonRules

# `mthreads-gmi -q -j`, as programs that read it describe it.
GMI: dict[str, Any] = {
    "driver_version": "2.7.0",
    "gpus": [
        {
            "product_name": "MTT S4000",
            "uuid": "2b7d56ad-43c9-89d9-703c-03c503e7fad4",
            "memory_total": "49152 MiB",
            "memory_used": "318 MiB",
        },
        {"product_name": "MTT S4000", "uuid": "7de4d75b-7522-1fdc-8dc4-db9a169a5e88", "memory_total": "49152 MiB"},
    ],
}
# `rocm-smi --json --showmeminfo vram`: a table with the cards' names, and one entry that is no card.
ROCM = {
    "card0": {"VRAM Total Memory (B)": "17163091968", "PCI Bus": "0000:03:00.0", "State": "good"},
    "card12": {"VRAM Total Memory (B)": "17163091968", "PCI Bus": "0000:C3:00.0", "State": "bad"},
    "system": {"Driver version": "6.12"},
}
SIMPLE = JsonRules(id="id", memory="mem")


def rules_of(name: str) -> JsonRules:
    driver = load()[name].driver
    assert driver is not None
    assert driver.static is not None
    assert driver.static.json is not None
    return driver.static.json


def read(content: object, rules: JsonRules = SIMPLE, **defaults: Any) -> list[HostCard]:
    return list(read_json(json.dumps(content), rules, **defaults).cards)


def why_skipped(entry: object, rules: JsonRules = SIMPLE) -> str:
    found = read_json(json.dumps([entry]), rules)
    assert found.cards == ()
    (skipped,) = found.skipped
    return str(skipped)


def test_moore_threads_cards_are_read_with_the_shipped_profile() -> None:
    assert read(GMI, rules_of("mthreads")) == [
        HostCard(0, "2b7d56ad-43c9-89d9-703c-03c503e7fad4", 49152, minor=0, model="MTT S4000"),
        HostCard(1, "7de4d75b-7522-1fdc-8dc4-db9a169a5e88", 49152, minor=1, model="MTT S4000"),
    ]


def test_a_card_without_an_id_is_named_by_its_place() -> None:
    content = deepcopy(GMI)
    del content["gpus"][1]["uuid"]
    assert [card.id for card in read(content, rules_of("mthreads"))] == ["2b7d56ad-43c9-89d9-703c-03c503e7fad4", "card-1"]


def test_a_table_of_cards_has_their_numbers_in_its_names() -> None:
    rules = JsonRules(memory="VRAM Total Memory (B)", memory_unit="bytes", pci="PCI Bus", healthy="State", healthy_value="good")
    first, second = read(ROCM, rules)
    assert (first.index, first.id, first.memory_mib, first.healthy) == (0, "0000:03:00.0", 16368, True)
    assert (second.index, second.pci, second.healthy) == (12, "0000:c3:00.0", False)
    assert "bad" in second.problem


@pytest.mark.parametrize(
    ("unit", "value", "mib"),
    [
        ("bytes", 17179869184, 16384),
        ("KiB", "16777216", 16384),
        ("MiB", 16384, 16384),
        ("MiB", 16384.9, 16384),
        ("GiB", 16, 16384),
        ("GiB", "1.5", 1536),
        ("text", "16384 MiB", 16384),
        ("text", "16384MB", 16384),
        ("text", "16 GiB", 16384),
        ("text", "16g", 16384),
        ("text", "17179869184 B", 16384),
        ("text", "17179869184 bytes", 16384),
        ("text", "1 TiB", 1048576),
    ],
)
def test_memory_is_read_in_its_unit(unit: Any, value: object, mib: int) -> None:
    (card,) = read([{"id": "a", "mem": value}], JsonRules(id="id", memory="mem", memory_unit=unit))
    assert card.memory_mib == mib


@pytest.mark.parametrize("value", [None, "", "many", -1, True, [1], {}, "1 XiB", "0x10", "٤", 2**63, 1e300, "9" * 30])
@pytest.mark.parametrize("unit", ["MiB", "text"])
def test_memory_that_cannot_be_read_skips_its_card(value: object, unit: Any) -> None:
    assert "mem" in why_skipped({"id": "a", "mem": value}, JsonRules(id="id", memory="mem", memory_unit=unit))


def test_a_number_without_a_unit_is_no_memory_text() -> None:
    assert '"16384 MiB"' in why_skipped({"id": "a", "mem": "16384"}, JsonRules(id="id", memory="mem", memory_unit="text"))


def test_paths_lead_through_tables() -> None:
    rules = JsonRules(cards="node.cards", index="place.number", minor="place.minor", memory="memory.total", model="name")
    content = {"node": {"cards": [{"place": {"number": 3, "minor": "7"}, "memory": {"total": 1}, "name": "Z"}]}}
    assert read(content, rules) == [HostCard(3, "card-3", 1, minor=7, model="Z")]


def test_what_the_profile_gives_is_used_where_the_output_has_nothing() -> None:
    assert read([{"id": "a"}], SIMPLE, memory_mib=4096, model="Z") == [HostCard(0, "a", 4096, minor=0, model="Z")]


@pytest.mark.parametrize("number", ["one", -1, 1.5, True, [], {}, 2**40])
def test_a_wrong_index_skips_its_card(number: object) -> None:
    assert "number" in why_skipped({"id": "a", "mem": 1, "number": number}, JsonRules(id="id", memory="mem", index="number"))


@pytest.mark.parametrize("text", ["", "no JSON", "{", '{"gpus": ', "[" * 5000, '"\\ud800"', "NaN", "\x00", "[1] trailing"])
def test_no_json_fails_the_query(text: str) -> None:
    with pytest.raises(QueryFailed, match="printed no JSON"):
        read_json(text, SIMPLE)


@pytest.mark.parametrize("content", [None, 5, "text", True, {"cards": {}}])
def test_no_list_of_cards_fails_the_query_or_is_empty(content: object) -> None:
    if isinstance(content, dict):
        assert read(content, SIMPLE) == []
        return
    with pytest.raises(QueryFailed, match="has no list of cards"):
        read(content, SIMPLE)


def test_a_path_that_leads_nowhere_is_named() -> None:
    with pytest.raises(QueryFailed, match="gpus"):
        read({"cards": []}, rules_of("mthreads"))


def test_the_number_of_cards_is_bounded() -> None:
    with pytest.raises(QueryFailed, match=str(MOST_CARDS)):
        read([{"id": str(number), "mem": 1} for number in range(MOST_CARDS + 1)])


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["gpus", "uuid", "memory_total", "0"]), inner),
    max_leaves=12,
)


@given(anything)
def test_any_json_gives_sure_cards_or_one_error(content: object) -> None:
    """Whatever a tool prints, no other exception comes out, and no card is listed twice or without memory."""
    try:
        found = read_json(json.dumps(content), rules_of("mthreads"))
    except QueryFailed:
        return
    assert len({card.index for card in found.cards}) == len({card.id for card in found.cards}) == len(found.cards)
    assert all(card.memory_mib > 0 for card in found.cards)


@given(st.data())
def test_a_changed_output_never_crashes(data: st.DataObject) -> None:
    text = json.dumps(GMI)
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.text(max_size=3)) + text[at + data.draw(st.integers(0, 5)) :]
    try:
        read_json(changed, rules_of("mthreads"))
    except QueryFailed:
        pass
