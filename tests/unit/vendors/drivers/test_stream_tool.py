"""What stc-smi prints, as the vendor's guide shows it."""

import pytest

from accelshare.vendors.drivers.driver import QueryFailed
from accelshare.vendors.drivers.stream_tool import Board, from_csv, from_list, from_query, size_mib

# As in the guide for version 1.9.3, some lines left out.
QUERY = """NPU: 0
        Product Name: STCP920
        Product Brand: STREAMCOMPUTING
        Sn: 01PSF60000060709
        Temperature:   32C
        Status: on
        Cluster count: 4
        Frequency: 1000M
        Bus: 0000:03:00.0
        Vendor: 23e2 Device: 0100
        Current link speed: 16.0 GT/s PCIe
        NPU ctrl firmware: 10.3.6
                Cluster 0:
                Frequency: 1000M        DMA count: 2    Util: 0 %       Status: WORK    Memory Used / Total: 156.00M / 4.00G

                Cluster 1:
                Frequency: 1000M        DMA count: 2    Util: 0 %       Status: WORK    Memory Used / Total: 156.00M / 4.00G

                Cluster 2:
                Frequency: 1000M        DMA count: 2    Util: 0 %       Status: DEAD    Memory Used / Total: 156.00M / 4.00G

                Cluster 3:
                Frequency: 1000M        DMA count: 2    Util: 0 %       Status: WORK    Memory Used / Total: 156.00M / 4.00G
"""


def test_the_query_output_has_every_value() -> None:
    assert from_query(QUERY) == [
        Board(
            index=0,
            model="STCP920",
            serial="01PSF60000060709",
            memory_mib=16384,
            pci="0000:03:00.0",
            status="on",
            cluster_count=4,
            clusters=("WORK", "WORK", "DEAD", "WORK"),
        )
    ]


def test_several_boards_are_distinguished() -> None:
    boards = from_query(QUERY + QUERY.replace("NPU: 0", "NPU: 3").replace("Status: on", "Status: off"))
    assert [(board.index, board.status, len(board.clusters)) for board in boards] == [(0, "on", 4), (3, "off", 4)]


def test_csv_is_read_by_the_names_in_its_header() -> None:
    text = "serial, index, memory.total [MiB], name\nA1, 0, 16384 MiB, STCP920\n\nB2, 1, 15.5G, STCP950\n"
    assert from_csv(text) == [
        Board(0, model="STCP920", serial="A1", memory_mib=16384),
        Board(1, model="STCP950", serial="B2", memory_mib=15872),
    ]


def test_a_header_alone_is_no_board() -> None:
    assert from_csv("index, name, serial, memory.total [MiB]\n") == []


def test_the_list_has_model_address_and_serial() -> None:
    text = "NPU: 0\n\tSTCP920\t\tBUS-ID: 0:65:00.0 (01PSF60000170610)\n"
    assert from_list(text) == [Board(0, model="STCP920", serial="01PSF60000170610", pci="0000:65:00.0")]


@pytest.mark.parametrize("read", [from_query, from_csv, from_list])
@pytest.mark.parametrize("text", ["bash: no such thing", "+----+\n| 0 |\n", "{}", "\x7fELF\x00"])
def test_any_other_output_is_an_error(read: object, text: str) -> None:
    assert callable(read)
    with pytest.raises(QueryFailed, match="which begins with"):
        read(text)


@pytest.mark.parametrize("row", ["0, STCP920", "x, STCP920, A, 16384 MiB", "0, a, b, c, d"])
def test_a_row_that_does_not_fit_its_header_is_an_error(row: str) -> None:
    with pytest.raises(QueryFailed, match="does not fit its header"):
        from_csv(f"index, name, serial, memory.total [MiB]\n{row}\n")


@pytest.mark.parametrize(
    ("text", "mib"),
    [("16384 MiB", 16384), ("16384", 16384), ("4.00G", 4096), ("1T", 1048576), ("512K", 0), ("N/A", 0), ("", 0), ("-1 MiB", 0)],
)
def test_sizes_are_read_in_any_unit(text: str, mib: int) -> None:
    assert size_mib(text) == mib


def test_numbers_of_thousands_of_digits_are_no_numbers() -> None:
    """Python refuses to read them, with an error that is not ours."""
    many = "9" * 5000
    with pytest.raises(QueryFailed, match="does not fit its header"):
        from_csv(f"index, name\n{many}, STCP920\n")
    with pytest.raises(QueryFailed, match="no line 'NPU: n'"):
        from_list(f"NPU: {many}\n")
    (board,) = from_query(f"NPU: 0\nCluster count: {many}\nCluster 0:\nMemory Used / Total: 0 / {many}\n")
    assert (board.cluster_count, board.memory_mib) == (0, 0)


def test_blanks_by_the_thousand_cost_no_time() -> None:
    """The time must not grow with the square of a line's length: this would take minutes."""
    blanks = " " * 200_000
    assert from_query(f"NPU: 0\nSn: a{blanks}b\n")[0].serial == f"a{blanks}b"
    assert from_csv(f"index, a{blanks}b [MiB]\n0, 1\n") == [Board(0)]
