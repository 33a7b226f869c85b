"""Kunlun's cards by libxpuml, by xpu_smi's table and by xpu_smi -m."""

import logging
import shutil
import subprocess
from dataclasses import replace

import pytest

from accelshare.vendors.drivers.driver import DriverError, HostCard
from accelshare.vendors.drivers.kunlun import KunlunDriver
from tests.fakes.hardware import Hardware

# A K200 is two cards with one serial number and one PCI address; an R200 is one, and larger.
K200 = {"sn": "000000000007a136", "pci": "0000:86:00.0", "memory_mib": 8064, "model": 0}
R200 = {"sn": "02K00Y6217", "pci": "0000:af:00.0", "memory_mib": 16384, "model": 2}
FOUND = [
    HostCard(0, "000000000007a136-chip0", 8064, minor=0, model="K200", pci="0000:86:00.0"),
    HostCard(1, "000000000007a136-chip1", 8064, minor=1, model="K200", pci="0000:86:00.0"),
    HostCard(2, "02K00Y6217", 16384, minor=2, model="R200", pci="0000:af:00.0"),
]


def by_library(hardware: Hardware, timeout_s: float = 10.0) -> KunlunDriver:
    return KunlunDriver(hardware.options(libraries=(hardware.path("libxpuml.so"),), timeout_s=timeout_s))


def by_table(hardware: Hardware, timeout_s: float = 10.0) -> KunlunDriver:
    return KunlunDriver(hardware.options(tools=(hardware.path("xpu_smi"),), timeout_s=timeout_s))


def by_lines(hardware: Hardware) -> KunlunDriver:
    """A tool that knows nothing but -m."""
    script = f"""[ "$1" = -m ] || exit 3\nexec '{hardware.path("xpu_smi")}' -m"""
    return KunlunDriver(hardware.options(tools=(hardware.tool("m_only", script),)))


def by_text(hardware: Hardware, text: str, *, code: int = 0, name: str = "smi") -> KunlunDriver:
    return KunlunDriver(hardware.options(tools=(hardware.prints(name, text, code=code),)))


@pytest.mark.parametrize("way", [by_library, by_table, by_lines])
async def test_every_query_method_lists_the_same_cards(way: type[KunlunDriver], hardware: Hardware) -> None:
    hardware.has(K200, K200, R200)
    assert await way(hardware).discover() == FOUND  # type: ignore[arg-type]


@pytest.mark.parametrize("way", [by_library, by_table, by_lines])
async def test_a_physical_function_is_no_card(
    way: type[KunlunDriver], hardware: Hardware, caplog: pytest.LogCaptureFixture
) -> None:
    hardware.has({**R200, "model": 200}, {**R200, "model": 201})
    with caplog.at_level(logging.WARNING):
        assert [card.model for card in await way(hardware).discover()] == ["R200-VF-16G"]  # type: ignore[arg-type]
    assert "device 0: it is a physical function" in caplog.text


async def test_sriov_mode_also_identifies_a_physical_function(hardware: Hardware) -> None:
    hardware.has({**R200, "mode": 2}, R200)
    assert [card.index for card in await by_library(hardware).discover()] == [1]


@pytest.mark.parametrize(
    ("state", "problem"), [(207, "state ERROR"), (205, "state IN_RESET"), (208, "state IN_EXCEPTION"), (999, "state 999")]
)
async def test_the_librarys_state_decides_health(hardware: Hardware, state: int, problem: str) -> None:
    hardware.has({**R200, "state": state}, {**R200, "state": 0})
    assert [(card.healthy, card.problem) for card in await by_library(hardware).discover()] == [(False, problem), (True, "")]


async def test_state_e_in_the_table_is_unhealthy(hardware: Hardware) -> None:
    hardware.has({**R200, "letter": "E"}, R200)
    assert [card.healthy for card in await by_table(hardware).discover()] == [False, True]


async def test_the_kernels_state_of_a_card_counts_too(hardware: Hardware) -> None:
    hardware.has(R200, R200)
    hardware.tree("proc/xpu/dev0/state", "ERROR\n")
    hardware.tree("proc/xpu/dev1/state", "running\n")
    first, second = await by_table(hardware).discover()
    assert not first.healthy
    assert first.problem.endswith("/xpu/dev0/state is 'ERROR'")
    assert second.healthy


async def test_the_numa_node_comes_from_sysfs(hardware: Hardware) -> None:
    hardware.has(R200)
    hardware.tree("sys/bus/pci/devices/0000:af:00.0/numa_node", "1\n")
    assert [card.numa for card in await by_library(hardware).discover()] == [1]


async def test_a_lost_card_is_skipped(hardware: Hardware) -> None:
    hardware.has(K200, {**K200, "code": 15})
    assert [card.index for card in await by_library(hardware).discover()] == [0]


@pytest.mark.parametrize("way", [by_library, by_table, by_lines])
async def test_no_cards_is_an_answer(way: type[KunlunDriver], hardware: Hardware) -> None:
    hardware.has()
    assert await way(hardware).discover() == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "Usage: xpu-smi [Options]\nIntel XPU System Management Interface -- v1.2",
        "+-----------+--------------------+\n| Device ID | Device Information |\n| 0 | Device Name: Intel(R) Data Center GPU |",
    ],
)
async def test_intels_tool_of_the_same_name_is_recognized(hardware: Hardware, text: str) -> None:
    with pytest.raises(DriverError, match="is Intel's tool of that name"):
        await by_text(hardware, text).discover()


async def test_a_host_without_kunlun_devices_has_intels_xpu_smi(hardware: Hardware) -> None:
    hardware.tree("sys/bus/pci/devices/0000:03:00.0/vendor", "0x8086\n")
    with pytest.raises(DriverError, match="may be Intel's tool of that name: this host has no PCI device of vendor 1d22"):
        await by_text(hardware, "anything", name="xpu-smi").discover()


async def test_every_query_method_tried_has_a_line_in_the_error(hardware: Hardware) -> None:
    with pytest.raises(DriverError) as caught:
        await KunlunDriver(hardware.options()).discover()
    assert [line.partition(": ")[0] for line in caught.value.tried] == ["/nowhere/lib.so", "/nowhere/tool", "/nowhere/tool -m"]


@pytest.mark.parametrize(
    ("text", "code", "problem"), [("core dumped", 0, "printed 'core dumped'"), ("", 7, "ended with exit code 7")]
)
async def test_garbage_and_failure_are_no_cards(hardware: Hardware, text: str, code: int, problem: str) -> None:
    with pytest.raises(DriverError, match=problem):
        await by_text(hardware, text, code=code).discover()


async def test_a_hanging_query_is_abandoned_and_can_be_repeated(hardware: Hardware) -> None:
    hardware.has(R200, hang="xpu_smi")
    driver = by_table(hardware, timeout_s=0.2)
    with pytest.raises(DriverError, match=r"gave no answer within 0\.2 s and was killed"):
        await driver.discover()


async def test_a_hanging_library_falls_back_to_the_tool(hardware: Hardware) -> None:
    hardware.has(R200, hang="xpumlDeviceGetState")
    said = subprocess.run([hardware.path("xpu_smi")], capture_output=True, text=True, check=True).stdout
    tool = hardware.prints("quick", said)
    options = hardware.options(libraries=(hardware.path("libxpuml.so"),), tools=(tool,), timeout_s=1)
    assert [card.id for card in await KunlunDriver(options).discover()] == ["02K00Y6217"]


async def test_a_failed_init_can_be_repeated(hardware: Hardware) -> None:
    hardware.has(R200, init=9)
    driver = by_library(hardware)
    with pytest.raises(DriverError, match=r"xpumlInit returned 9 \(Driver Not Loaded\)"):
        await driver.discover()
    hardware.has(R200)
    assert len(await driver.discover()) == 1


@pytest.mark.parametrize("way", [by_library, by_table])
async def test_the_id_of_a_card_does_not_change_when_another_fails(way: type[KunlunDriver], hardware: Hardware) -> None:
    """The remaining cards are renumbered, and the device files keep their numbers."""
    other = {**R200, "sn": "02K00Y9999", "pci": "0000:d8:00.0"}
    hardware.has({**R200, "minor": 0}, {**other, "minor": 1})
    before = await way(hardware).discover()  # type: ignore[arg-type]
    hardware.has({**other, "minor": 1})
    after = await way(hardware).discover()  # type: ignore[arg-type]
    assert [(card.index, card.id, card.minor) for card in before] == [(0, "02K00Y6217", 0), (1, "02K00Y9999", 1)]
    assert [(card.index, card.id, card.minor) for card in after] == [(0, "02K00Y9999", 1)]


@pytest.mark.parametrize("way", [by_library, by_table])
async def test_the_remaining_card_of_a_board_keeps_its_rank(way: type[KunlunDriver], hardware: Hardware) -> None:
    hardware.has({**K200, "minor": 0}, {**K200, "minor": 1})
    driver = way(hardware)  # type: ignore[arg-type]
    await driver.discover()
    hardware.has({**K200, "minor": 1})
    assert [(card.id, card.minor) for card in await driver.discover()] == [("000000000007a136-chip1", 1)]


async def test_an_id_of_an_earlier_version_still_names_its_card(hardware: Hardware) -> None:
    hardware.has(K200, K200, R200)
    former = [card.former_ids for card in await by_library(hardware).discover()]
    assert former == [("000000000007a136-0",), ("000000000007a136-1",), ("02K00Y6217-2",)]


async def test_the_library_is_found_where_the_vendor_puts_it_on_the_host(hardware: Hardware) -> None:
    hardware.has(R200)
    there = hardware.folder / "host/usr/local/xpu/lib64"
    there.mkdir(parents=True)
    for name in ("libxpuml.so", "cards"):
        shutil.copy(hardware.path(name), there / name)
    options = replace(hardware.options(), libraries=(), host=hardware.folder / "host")
    assert len(await KunlunDriver(options).discover()) == 1
