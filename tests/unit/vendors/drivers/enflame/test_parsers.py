"""efsmi's texts: three generations of its table, two of -q, JSON; and that any text is refused or gives sure cards only."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.vendors.drivers.driver import Listing, QueryFailed
from accelshare.vendors.drivers.enflame_efsmi import parse_json, parse_query, parse_table
from tests.fakes.sure import assert_sure

HEADER = """\
| DEV    NAME                | FW VER          | BUS-ID      ECC           |
| TEMP   Dpm   Pwr(Usage/Cap)| Mem     GCU Virt| DUsed       SN            |
|--------------------------------------------------------------------------|
"""
GENERATIONS = {
    "1.2": """\
| 0      S60                 | 33.6.2          | 00:01:00.0  Disable       |
| 39 C   Sleep    105W  300W | 49120MiB Disable|   0.0%      A073640510015 |
""",
    "1.4": """\
| 0      Enflame S60          | 33.6.5           | 00:01:00.0  Enable        |
| -      Sleep    -           | 49120MiB Disable | 0%          A073640510015 |
""",
    "1.6": """\
| 0      Enflame S60-G        | 31.5.3            | 00:01:00.0  Disable       |
| 34℃    LP0      N/A         | 49120MiB  SRIOV   | 0%          A073640510015 |
""",
    "1.7": """\
| 0      Enflame L300         | 40.2.8.3          | 00:01:00.0  Enable        |
| 35℃    LP1      68W / 300W  | 49120MiB Disable | 0%          A073640510015 |
""",
}
BLOCK = """\
DEV ID 7
    Driver Info
        Ver                     : 1.2.4.12
    Device Info
        Dev Name                : S60
        Dev UUID                : TR1V57100501
        Dev SN                  : C0AAD40510049
        Health                  : True
    PCIe Info
        Vendor ID               : 1e36
        Device ID               : c035
        Domain                  : 0000
        Bus                     : b1
        Dev                     : 00
        Func                    : 0
    Device Mem Info
        {size}              : 42976 MiB
        Mem Usage               : 1129 MiB
"""


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_generation_of_the_table_is_read(generation: str) -> None:
    [card] = parse_table(HEADER + GENERATIONS[generation]).cards
    assert (card.index, card.id, card.memory_mib, card.pci) == (0, "GCU-A073640510015", 49120, "0000:01:00.0")


def test_a_dash_in_a_name_is_no_rule() -> None:
    assert [card.model for card in parse_table(HEADER + GENERATIONS["1.6"]).cards] == ["Enflame S60-G"]


def test_without_a_serial_number_the_id_is_the_pci_address() -> None:
    text = HEADER + GENERATIONS["1.4"].replace("A073640510015", "xxx")
    assert [card.id for card in parse_table(text).cards] == ["GCU-0000:01:00.0"]


@pytest.mark.parametrize("size", ["Mem Size  ", "Total Size"])
def test_both_generations_of_the_query_are_read(size: str) -> None:
    [card] = parse_query(BLOCK.format(size=size)).cards
    assert (card.index, card.id, card.memory_mib, card.pci) == (7, "GCU-TR1V57100501", 42976, "0000:b1:00.0")


@pytest.mark.parametrize("size", [42976, "42976", "42976 MiB", 42976.0])
def test_json_sizes_may_be_numbers_or_text(size: object) -> None:
    answer = {"devices": [{"id": 0, "Device Info": {"Dev UUID": "U1"}, "Device Mem Info": {"Total Size": size}}]}
    assert [(card.id, card.memory_mib) for card in parse_json(json.dumps(answer)).cards] == [("GCU-U1", 42976)]


@pytest.mark.parametrize("parsed", [parse_json, parse_query, parse_table])
@pytest.mark.parametrize(
    "whole",
    [HEADER + GENERATIONS["1.7"], BLOCK.format(size="Total Size"), json.dumps({"devices": [{"id": 0, "Total Size": 42976}]})],
)
def test_a_cut_answer_never_changes_a_size(parsed: Callable[[str], Listing], whole: str) -> None:
    for length in range(len(whole)):
        try:
            sizes = {card.memory_mib for card in parsed(whole[:length]).cards}
        except QueryFailed:
            continue
        assert sizes <= {42976, 49120}


@pytest.mark.parametrize("text", ["[]", "{}", '{"devices": 3}', '{"devices": [3]}', "null", "[" * 100_000])
def test_json_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(QueryFailed):
        parse_json(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from(["42976 MiB", "b1", "True"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "Total Size", "Dev UUID", "Domain", "Bus", "Dev", "Func", "Health", "x"]), inner, max_size=6
        )
    ),
    max_leaves=12,
)


@given(VALUES, st.booleans())
def test_only_sure_cards_come_out_of_any_json(value: Any, as_devices: bool) -> None:
    try:
        assert_sure(parse_json(json.dumps({"devices": value} if as_devices else value)))
    except QueryFailed:
        pass


LINES = st.sampled_from(
    [
        *"".join([HEADER, *GENERATIONS.values()]).splitlines(),
        *BLOCK.splitlines(),
        "DEV ID 0",
        "DEV ID 1",
        "Total Size : ²",
        "Bus : 1ff",
    ]
)


@given(
    st.lists(LINES | st.text(max_size=20), max_size=12).map("\n".join), st.sampled_from([parse_json, parse_query, parse_table])
)
def test_only_sure_cards_come_out_of_any_text(text: str, parsed: Callable[[str], Listing]) -> None:
    try:
        assert_sure(parsed(text))
    except QueryFailed:
        pass
