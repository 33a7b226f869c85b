"""Enflame's cards by both APIs of libefml and by efsmi's three outputs, with sysfs for their minors."""

import shutil
import subprocess
from dataclasses import replace

import pytest

from accelshare.vendors.drivers.driver import DriverError, HostCard
from accelshare.vendors.drivers.enflame import EnflameDriver
from tests.fakes.hardware import Hardware

S60 = {"uuid": "U53000090104", "sn": "A018K30520031", "pci": "0000:2e:00.0", "memory_mib": 16384, "name": "S60"}
L300 = {"uuid": "U53000090105", "sn": "A018K30520032", "pci": "0000:af:00.0", "memory_mib": 147456, "name": "L300"}


def by_library(hardware: Hardware, timeout_s: float = 10.0) -> EnflameDriver:
    return EnflameDriver(hardware.options(libraries=(hardware.path("libefml.so"),), timeout_s=timeout_s))


def by_newer_library(hardware: Hardware) -> EnflameDriver:
    return EnflameDriver(hardware.options(libraries=(hardware.path("libefml-newer.so"),)))


def by_json(hardware: Hardware) -> EnflameDriver:
    return EnflameDriver(hardware.options(tools=(hardware.path("efsmi"),)))


def by_query(hardware: Hardware) -> EnflameDriver:
    """A tool from before JSON."""
    script = f"""[ "$2" = --json-format ] && exit 2\nexec '{hardware.path("efsmi")}' "$@" """
    return EnflameDriver(hardware.options(tools=(hardware.tool("old-efsmi", script),)))


def by_table(hardware: Hardware) -> EnflameDriver:
    script = f"""[ "$1" = -q ] && exit 2\nexec '{hardware.path("efsmi")}'"""
    return EnflameDriver(hardware.options(tools=(hardware.tool("table-efsmi", script),)))


EVERY_WAY = [by_library, by_newer_library, by_json, by_query, by_table]


@pytest.mark.parametrize("way", EVERY_WAY[:-1])
async def test_every_query_method_with_uuids_lists_the_same_cards(way: type[EnflameDriver], hardware: Hardware) -> None:
    """Minors are the numbers of the nodes, which are not indexes."""
    hardware.has(S60, L300)
    hardware.tree("sys/bus/pci/devices/0000:2e:00.0/enflame/gcu4/dev", "237:4\n")
    hardware.tree("sys/bus/pci/devices/0000:2e:00.0/numa_node", "0\n")
    hardware.tree("sys/bus/pci/devices/0000:af:00.0/zixiao/gcu1/dev", "237:1\n")
    assert await way(hardware).discover() == [  # type: ignore[arg-type]
        HostCard(0, "GCU-U53000090104", 16384, minor=4, model="S60", numa=0, pci="0000:2e:00.0"),
        HostCard(1, "GCU-U53000090105", 147456, minor=1, model="L300", pci="0000:af:00.0"),
    ]


async def test_the_table_identifies_cards_by_serial_number(hardware: Hardware) -> None:
    hardware.has(S60, L300)
    assert [(card.id, card.memory_mib, card.pci) for card in await by_table(hardware).discover()] == [
        ("GCU-A018K30520031", 16384, "0000:2e:00.0"),
        ("GCU-A018K30520032", 147456, "0000:af:00.0"),
    ]


@pytest.mark.parametrize("way", EVERY_WAY)
async def test_virtual_functions_with_one_name_get_distinct_ids(way: type[EnflameDriver], hardware: Hardware) -> None:
    hardware.has(S60, {**S60, "pci": "0000:2f:00.0"})
    ids = [card.id for card in await way(hardware).discover()]  # type: ignore[arg-type]
    assert [id[-2:] for id in ids] == ["-0", "-1"]


@pytest.mark.parametrize("way", [by_library, by_json, by_query])
async def test_an_unhealthy_card_is_listed_as_unhealthy(way: type[EnflameDriver], hardware: Hardware) -> None:
    hardware.has({**S60, "health": 0}, L300)
    first, second = await way(hardware).discover()  # type: ignore[arg-type]
    assert not first.healthy
    assert "not healthy" in first.problem
    assert second.healthy


@pytest.mark.parametrize("way", [by_library, by_newer_library])
async def test_a_card_that_does_not_answer_is_skipped(way: type[EnflameDriver], hardware: Hardware) -> None:
    hardware.has({**S60, "code": 254}, L300)
    assert [card.index for card in await way(hardware).discover()] == [1]  # type: ignore[arg-type]


@pytest.mark.parametrize("way", [by_library, by_newer_library, by_json, by_table])
async def test_no_cards_is_an_answer(way: type[EnflameDriver], hardware: Hardware) -> None:
    hardware.has()
    assert await way(hardware).discover() == []  # type: ignore[arg-type]


async def test_an_unknown_minor_number_is_not_guessed(hardware: Hardware) -> None:
    """Without sysfs the index is taken only where a node of that number is there."""
    hardware.has(S60, L300)
    hardware.tree("dev/gcu1", "")
    assert [card.minor for card in await by_library(hardware).discover()] == [None, 1]


@pytest.mark.parametrize(
    ("vendor", "last"),
    [
        ("0x1e36", "has devices of vendor 1e36, but does not have their memory"),
        ("0x8086", "has no device of vendor 1e36"),
        ("", "cannot be read"),
    ],
)
async def test_every_query_method_tried_has_a_line_in_the_error(hardware: Hardware, vendor: str, last: str) -> None:
    if vendor:
        hardware.tree("sys/bus/pci/devices/0000:2e:00.0/vendor", vendor)
    with pytest.raises(DriverError) as caught:
        await EnflameDriver(hardware.options()).discover()
    library, newer, as_json, query, table, sysfs = caught.value.tried
    assert library.startswith("/nowhere/lib.so (Efml…): cannot be loaded")
    assert newer.startswith("/nowhere/lib.so (efml…): cannot be loaded")
    assert [line.partition(": ")[0] for line in (as_json, query, table)] == [
        "/nowhere/tool -q --json-format",
        "/nowhere/tool -q",
        "/nowhere/tool",
    ]
    assert sysfs.endswith(last)


@pytest.mark.parametrize(
    ("text", "code", "problem"), [("¿", 0, "printed '¿'; it must be JSON"), ("", 1, "ended with exit code 1")]
)
async def test_garbage_and_failure_are_no_cards(hardware: Hardware, text: str, code: int, problem: str) -> None:
    driver = EnflameDriver(hardware.options(tools=(hardware.prints("broken", text, code=code),)))
    with pytest.raises(DriverError, match=problem):
        await driver.discover()


async def test_a_failed_init_can_be_repeated(hardware: Hardware) -> None:
    hardware.has(S60, init=6)
    driver = by_library(hardware)
    with pytest.raises(DriverError, match=r"EfmlInit returned 6 \(driver not loaded\)"):
        await driver.discover()
    hardware.has(S60)
    assert len(await driver.discover()) == 1


async def test_a_hanging_library_falls_back_to_the_tool(hardware: Hardware) -> None:
    hardware.has(S60, hang="EfmlGetDevMem")
    said = subprocess.run([hardware.path("efsmi"), "-q", "--json-format"], capture_output=True, text=True, check=True).stdout
    tool = hardware.prints("quick", said)
    options = hardware.options(libraries=(hardware.path("libefml.so"),), tools=(tool,), timeout_s=1)
    assert [card.id for card in await EnflameDriver(options).discover()] == ["GCU-U53000090104"]


async def test_a_hanging_tool_is_abandoned(hardware: Hardware) -> None:
    hardware.has(S60, hang="efsmi")
    driver = EnflameDriver(hardware.options(tools=(hardware.path("efsmi"),), timeout_s=0.2))
    with pytest.raises(DriverError, match=r"gave no answer within 0\.2 s and was killed"):
        await driver.discover()


async def test_the_library_is_found_where_the_vendor_puts_it_on_the_host(hardware: Hardware) -> None:
    hardware.has(S60)
    there = hardware.folder / "host/usr/lib/x86_64-linux-gnu"
    there.mkdir(parents=True)
    for name in ("libefml.so", "cards"):
        shutil.copy(hardware.path(name), there / name)
    options = replace(hardware.options(), libraries=(), host=hardware.folder / "host")
    assert len(await EnflameDriver(options).discover()) == 1
