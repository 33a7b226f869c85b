"""The driver for Stream Computing's boards, against a fake stc-smi and a /dev of its own."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from accelshare.vendors.drivers.driver import DriverError, Health, HostCard, Options, Roots
from accelshare.vendors.drivers.stream import StreamDriver

FAKE = Path(__file__).parents[3] / "fakes" / "stream" / "stc-smi"


def board(index: int, **over: Any) -> dict[str, Any]:
    return {
        "index": index,
        "name": "STCP920",
        "serial": f"SN{index}",
        "bus": f"0000:0{index}:00.0",
        "status": "on",
        "memory_mib": 16384,
        "clusters": ["WORK"] * 4,
        **over,
    }


class Host:
    """A machine with boards: the tool, its output, and the device files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.dev = root / "dev"
        self.dev.mkdir()
        self.tool = Path(shutil.copy(FAKE, root / "stc-smi"))
        self.says()

    def says(self, *boards: dict[str, Any], **behave: str) -> None:
        forms = {"query": "-q", "csv": "--query-npu", "list": "--list", "all": "*"}
        data = {"boards": boards, "behave": {forms[form]: how for form, how in behave.items()}}
        file = self.root / "stc.json.new"
        file.write_text(json.dumps(data))
        file.rename(self.root / "stc.json")

    def nodes(self, *indexes: int) -> None:
        for index in indexes:
            for part in ("", "c0", "c1", "c2", "c3", "ctrl"):
                (self.dev / f"stc{index}{part}").touch()

    def driver(self, *tools: str, timeout_s: float = 10) -> StreamDriver:
        roots = Roots(dev=self.dev, proc=self.root / "proc", sys=self.root / "sys")
        return StreamDriver(Options(roots, tools=tools or (str(self.tool),), timeout_s=timeout_s, every_s=0.01))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


async def test_boards_are_listed_with_all_their_values(host: Host) -> None:
    host.says(board(0), board(1, serial="B", memory_mib=32768))
    host.nodes(0, 1)
    numa = host.root / "sys" / "bus" / "pci" / "devices" / "0000:01:00.0" / "numa_node"
    numa.parent.mkdir(parents=True)
    numa.write_text("1\n")
    assert await host.driver().discover() == [
        HostCard(0, "SN0", 16384, minor=0, model="STCP920", pci="0000:00:00.0"),
        HostCard(1, "B", 32768, minor=1, model="STCP920", pci="0000:01:00.0", numa=1),
    ]


async def test_no_board_is_an_answer(host: Host) -> None:
    assert await host.driver().discover() == []


@pytest.mark.parametrize("how", ["garbage", "fail"])
async def test_without_the_query_the_other_forms_are_enough(host: Host, how: str) -> None:
    host.says(board(2), query=how)
    host.nodes(2)
    assert await host.driver().discover() == [HostCard(2, "SN2", 16384, minor=2, model="STCP920", pci="0000:02:00.0")]


@pytest.mark.parametrize("how", ["garbage", "fail"])
async def test_without_csv_the_size_is_that_of_the_clusters(host: Host, how: str) -> None:
    host.says(board(0, memory_mib=8192), csv=how)
    host.nodes(0)
    (card,) = await host.driver().discover()
    assert (card.memory_mib, card.healthy) == (8192, True)


async def test_two_boards_with_one_serial_get_distinct_ids(host: Host) -> None:
    host.says(board(0, serial="S"), board(1, serial="S"), board(2, serial=""))
    host.nodes(0, 1, 2)
    assert [card.id for card in await host.driver().discover()] == ["S-0", "S-1", "STC-2"]


async def test_a_board_without_a_size_is_not_offered(host: Host) -> None:
    host.says(board(0, memory_mib=0), board(1))
    host.nodes(0, 1)
    assert [card.index for card in await host.driver().discover()] == [1]


@pytest.mark.parametrize(
    ("over", "gone", "problem"),
    [
        ({"status": "off"}, None, "its status is off, not on"),
        ({"clusters": ["WORK", "DEAD", "WORK", "DEAD"]}, None, "cluster 1, 3 is DEAD"),
        ({}, "stc0", "/dev/stc0 is missing"),
        ({}, "stc0ctrl", "/dev/stc0ctrl is missing"),
        ({}, "stc0c2", "/dev/stc0c2 is missing"),
        ({"status": "off"}, "stc0c0", "/dev/stc0c0 is missing; its status is off, not on"),
    ],
)
async def test_an_unhealthy_board_is_listed_with_its_problem(
    host: Host, over: dict[str, Any], gone: str | None, problem: str
) -> None:
    host.says(board(0, **over))
    host.nodes(0)
    if gone:
        (host.dev / gone).unlink()
    (card,) = await host.driver().discover()
    assert (card.healthy, card.problem) == (False, problem)


async def test_an_empty_status_is_no_problem(host: Host) -> None:
    """The tool shows N/A for boards that work."""
    host.says(board(0, status="N/A"))
    host.nodes(0)
    (card,) = await host.driver().discover()
    assert card.healthy


async def test_a_board_has_as_many_clusters_as_it_reports(host: Host) -> None:
    host.says(board(0, clusters=["WORK", "WORK"]))
    host.nodes(0)
    (host.dev / "stc0c2").unlink()
    (host.dev / "stc0c3").unlink()
    (card,) = await host.driver().discover()
    assert card.healthy


async def test_changes_of_health_and_recovery_are_reported(host: Host) -> None:
    host.says(board(0), board(1))
    host.nodes(0, 1)
    driver = host.driver()
    reported = driver.watch_health(await driver.discover())

    (host.dev / "stc1c3").unlink()
    assert await anext(reported) == Health("SN1", False, "/dev/stc1c3 is missing")
    host.says(board(0, clusters=["DEAD", "WORK", "WORK", "WORK"]), board(1))
    assert await anext(reported) == Health("SN0", False, "cluster 0 is DEAD")
    host.nodes(1)
    assert await anext(reported) == Health("SN1", True)
    host.says(board(1))
    assert await anext(reported) == Health("SN0", False, "is no longer listed")
    host.says(board(0), board(1))
    assert await anext(reported) == Health("SN0", True)


async def test_a_tool_that_keeps_failing_makes_boards_unhealthy_until_it_answers(host: Host) -> None:
    host.says(board(0))
    host.nodes(0)
    driver = host.driver()
    reported = driver.watch_health(await driver.discover())
    host.says(board(0), all="fail")
    health = await anext(reported)
    assert not health.healthy
    assert "3 times in a row" in health.problem
    host.says(board(0))
    assert await anext(reported) == Health("SN0", True)


async def test_a_missing_tool_is_reported_for_each_path_that_was_tried(host: Host) -> None:
    with pytest.raises(DriverError) as caught:
        await host.driver("/nowhere/stc-smi", "no-such-stc-smi").discover()
    assert caught.value.tried == ("/nowhere/stc-smi: no such file", "no-such-stc-smi: not found on PATH")


async def test_the_next_tool_is_tried(host: Host) -> None:
    host.says(board(0))
    host.nodes(0)
    assert len(await host.driver("no-such-stc-smi", str(host.tool)).discover()) == 1


@pytest.mark.parametrize(("how", "says"), [("garbage", "which begins with"), ("fail", "exit code 9")])
async def test_a_tool_that_fails_is_quoted(host: Host, how: str, says: str) -> None:
    host.says(board(0), all=how)
    with pytest.raises(DriverError, match=says):
        await host.driver().discover()


async def test_a_tool_that_hangs_is_killed_with_its_children(host: Host) -> None:
    host.says(board(0), all="hang")
    started = time.monotonic()
    with pytest.raises(DriverError, match=r"no answer within 5 s"):
        await host.driver(timeout_s=5).discover()
    assert time.monotonic() - started < 60
    child = int((host.root / "child.pid").read_text())
    # A killed process takes a moment to be gone.
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(child)


def alive(pid: int) -> bool:
    """Whether this process still runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
