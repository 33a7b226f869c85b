"""Processes read off a command's output: those that surely use a card, with their memory where the output has it."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelshare.vendors.catalog import load
from accelshare.vendors.drivers.driver import CardProcess, DriverError, HostCard, Options
from accelshare.vendors.drivers.patterns import Matcher, PatternMatch
from accelshare.vendors.drivers.process_table import ProcessTable, _process
from accelshare.vendors.profile import ProcessRules

MIB = 2**20
CARDS = (HostCard(0, "A", 8064, pci="0000:86:00.0"), HostCard(1, "B", 8064, pci="0000:87:00.0"))
PATTERN = r"^(?:card (?P<index>\d+)|(?P<pci>[0-9a-f:.]+)|id (?P<id>\S+)) pid (?P<pid>-?\d+)(?: (?P<memory_mib>\S+)MiB)?"
Made = Callable[..., ProcessTable]


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Made]:
    tables: list[ProcessTable] = []

    def make(*lines: str, code: int = 0, pattern: str = PATTERN) -> ProcessTable:
        tool = tmp_path / "acme-smi"
        (tmp_path / "lines").write_text("".join(f"{line}\n" for line in lines))
        tool.write_text(f"#!/bin/sh\ncat {tmp_path / 'lines'}\nexit {code}\n")
        tool.chmod(0o755)
        tables.append(ProcessTable(Options(timeout_s=20), ProcessRules((str(tool),), pattern)))
        return tables[-1]

    yield make
    for table in tables:
        await table.close()


async def test_each_card_has_its_own_processes(made: Made) -> None:
    table = made("header", "card 0 pid 7 512MiB", "0000:87:00.0 pid 8 1.5MiB", "id B pid 7", "card 0 pid 9 xMiB")
    assert await table.processes(CARDS) == {
        "A": (CardProcess(7, 512 * MIB), CardProcess(9)),
        "B": (CardProcess(7), CardProcess(8, 3 * MIB // 2)),
    }


async def test_no_line_is_no_process(made: Made) -> None:
    assert await made("header").processes(CARDS) == {"A": (), "B": ()}


async def test_several_lines_of_a_process_are_added_up(made: Made) -> None:
    table = made("card 0 pid 7 5MiB", "card 0 pid 7", "card 0 pid 7 6MiB")
    assert (await table.processes(CARDS))["A"] == (CardProcess(7, 11 * MIB),)


async def test_lines_about_unknown_cards_and_impossible_pids_are_left_out(made: Made) -> None:
    table = made("card 7 pid 7 5MiB", "card 0 pid 0 5MiB", "card 0 pid -1 5MiB", f"card 0 pid {2**40} 5MiB", "id C pid 4")
    assert await table.processes(CARDS) == {"A": (), "B": ()}


@pytest.mark.parametrize("memory", ["-5", "nan", "inf", "1e400", str(2**60)])
async def test_impossible_memory_is_not_known(made: Made, memory: str) -> None:
    assert (await made(f"card 0 pid 7 {memory}MiB").processes(CARDS))["A"] == (CardProcess(7),)


async def test_a_tool_that_fails_is_an_error(made: Made) -> None:
    with pytest.raises(DriverError):
        await made("card 0 pid 7", code=1).processes(CARDS)


async def test_a_tool_that_is_missing_is_an_error(tmp_path: Path) -> None:
    table = ProcessTable(Options(), ProcessRules((str(tmp_path / "nothing"),), PATTERN))
    with pytest.raises(DriverError, match="nothing"):
        await table.processes(CARDS)


XPU_SMI = """\
  DEVICES
| DevID |   PCI Addr   | Model |        SN        |    INODE   | State | UseRate |    L3     |    Memory    | Power(W) |
|     0 | 0000:86:00.0 | K200  | 0200210302000998 | /dev/xpu0  |     N |     0 % | 0 / 16 MB |  0 / 8064 MB |       37 |
|     1 | 0000:86:00.0 | K200  | 0200210302000998 | /dev/xpu1  |     N |     0 % | 0 / 16 MB |  0 / 8064 MB |       37 |
  VIDEO
| DevID | Model |         DEC         |         ENC         |       IMGPROC       |
|     0 |  R300 | 0 %, 0 fps, 800 MHz | 0 %, 0 fps, 800 MHz | 0 %, 0 fps, 800 MHz |
  PROCESSES
| DevID |   PID | Streams |   L3 | Memory | Command |
|     0 |  4711 |       2 | 1 MB | 504 MB | python3 train.py |
|     1 |  4712 |       1 | 0 MB |  12 / 8064 MB | x|y |
|     1 |  4713 |       1 | 0 MB |    N/A | z |
"""


async def test_kunluns_table_of_processes_is_read_with_the_shipped_profile(made: Made) -> None:
    driver = load()["kunlun"].driver
    assert driver is not None
    assert driver.processes is not None
    table = made(*XPU_SMI.splitlines(), pattern=driver.processes.pattern)
    assert await table.processes(CARDS) == {
        "A": (CardProcess(4711, 504 * MIB),),
        "B": (CardProcess(4712, 12 * MIB), CardProcess(4713)),
    }
    assert "driver.processes.pattern" in load()["kunlun"].unverified


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text())
def test_any_output_gives_possible_processes_only(text: str) -> None:
    for match in Matcher(r"(?P<index>.)(?P<pid>.*?)(?P<memory_mib>.*)").match_lines(text):
        process = _process(PatternMatch(match.groups))
        assert process is None or (process.pid > 0 and (process.used_bytes is None or process.used_bytes >= 0))
