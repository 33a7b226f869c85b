"""xpu_smi's texts: the seed's own table, its known oddities, and that any text is refused or gives sure cards only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelshare.vendors.drivers.driver import QueryFailed
from accelshare.vendors.drivers.kunlun_smi import parse_lines, parse_table
from tests.fakes.sure import assert_sure

DASHES = "-" * 80
HEADER = "| DevID |   PCI Addr   | Model |        SN        |    INODE   | State | UseRate |    L3     |   Memory    | Power(W) |"


def row(
    dev: object = 0,
    *,
    model: str = "K200",
    state: str = "N",
    memory: str = "0 / 8064 MB",
    node: str = "/dev/xpu0",
    sn: str = "7a136",
) -> str:
    return f"|     {dev} | 0000:86:00.0 | {model}  | {sn} | {node}  |     {state} |     0 % | 0 / 16 MB | {memory} |       37 |"


def table(*rows: str) -> str:
    lines = ["Runtime Version: 4.0", "Driver Version: 4.0", "  DEVICES", DASHES, HEADER, DASHES, *rows, DASHES]
    return "\n".join(
        [*lines, "  PROCESSES", DASHES, "| DevID | PID | Streams | L3 | Memory | Command |", "| 0 | 1 | 1 | 0 | 5 / 8 MB | x |"]
    )


P800 = "".join(
    f'00000000:{bus}:00.0 {n} {n} {sn} 36 0 0 0 86 {"1450 " * 6}2 96 90440 98304 0 1.0:2.6:1.39.1.7 "P800 OAM" 0 0 0 0\n'
    for n, bus, sn in [(0, "03", "02K15K624CV00304"), (1, "05", "02K15K624CV0030V")]
)


def test_both_chips_of_a_k200_are_cards() -> None:
    found = parse_table(table(row(0), row(1, node="/dev/xpu1")))
    assert [(card.id, card.minor) for card in found.cards] == [("7a136-chip0", 0), ("7a136-chip1", 1)]


def test_memory_may_lack_the_space() -> None:
    assert [card.memory_mib for card in parse_table(table(row(memory="0 / 16384MB"))).cards] == [16384]


def test_the_device_file_has_the_minor_number() -> None:
    assert [card.minor for card in parse_table(table(row(0, node="/dev/xpu5"))).cards] == [5]


def test_processes_are_no_cards() -> None:
    assert [card.index for card in parse_table(table(row(3))).cards] == [3]


def test_columns_are_found_by_name() -> None:
    text = "| Memory | State | SN | Model | PCI Addr | DevID |\n| 1 / 2 MB | N | s | m | 0000:01:00.0 | 4 |"
    assert [(card.index, card.memory_mib) for card in parse_table(text).cards] == [(4, 2)]


def test_a_card_without_a_serial_number_is_identified_by_its_pci_address() -> None:
    assert [card.id for card in parse_table(table(row(sn="N/A"))).cards] == ["0000:86:00.0"]


@pytest.mark.parametrize("bad", [row(memory="N/A"), row("?"), row()[:70]])
def test_a_doubtful_row_is_skipped(bad: str) -> None:
    found = parse_table(table(bad, row(1)))
    assert [card.index for card in found.cards] == [1]
    assert len(found.skipped) == 1


def test_the_line_format_of_a_p800() -> None:
    found = parse_lines(P800)
    assert [(card.id, card.memory_mib, card.model) for card in found.cards] == [
        ("02K15K624CV00304", 98304, "P800 OAM"),
        ("02K15K624CV0030V", 98304, "P800 OAM"),
    ]
    assert found.cards[1].pci == "0000:05:00.0"


@given(st.integers(0, len(P800)))
def test_a_cut_answer_never_changes_a_card(length: int) -> None:
    try:
        assert all(card.memory_mib == 98304 and card.model == "P800 OAM" for card in parse_lines(P800[:length]).cards)
    except QueryFailed:
        pass


CELLS = st.sampled_from(
    ["0", "1", "0000:86:00.0", "K200", "R200-PF", "N", "E", "0 / 8064 MB", "0 / 16384MB", "/dev/xpu0", "PROCESSES", "²"]
)
ROWS = st.lists((CELLS | st.text(max_size=6)), min_size=5, max_size=11).map(lambda cells: f"| {' | '.join(cells)} |")


@given(st.lists(ROWS | st.builds(row, st.integers(0, 3), memory=CELLS) | st.text(max_size=30), max_size=8), st.booleans())
def test_only_sure_cards_come_out_of_any_table(rows: list[str], headed: bool) -> None:
    try:
        assert_sure(parse_table("\n".join([HEADER, *rows] if headed else rows)))
    except QueryFailed:
        pass


@given(
    st.text()
    | st.lists(st.lists(CELLS | st.sampled_from(['"P800 OAM"', '"']), max_size=25).map(" ".join), max_size=4).map("\n".join)
)
def test_only_sure_cards_come_out_of_any_lines(text: str) -> None:
    try:
        assert_sure(parse_lines(text))
    except QueryFailed:
        pass


def test_a_header_with_a_column_twice_is_read_by_its_width() -> None:
    """Found by tests/fuzz: it was an IndexError. A column that is needed and occurs twice says nothing sure."""
    twice = table(row(0) + " 1 |").replace(HEADER, HEADER + " UseRate |")
    assert [card.id for card in parse_table(twice).cards] == ["7a136"]
    with pytest.raises(QueryFailed):
        parse_table(table(row(0) + " 1 |").replace(HEADER, HEADER + " Memory |"))
