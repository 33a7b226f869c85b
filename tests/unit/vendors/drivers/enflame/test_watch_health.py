"""Enflame's cards become unhealthy, leave the bus, and recover."""

import shutil

import pytest

from accelshare.vendors.drivers.driver import Health
from accelshare.vendors.drivers.enflame import EnflameDriver
from tests.fakes.hardware import Hardware, Watching

ONE = {"uuid": "U1", "sn": "AAAAAAAAAA1", "pci": "0000:2e:00.0", "memory_mib": 16384, "name": "S60"}
TWO = {"uuid": "U2", "sn": "AAAAAAAAAA2", "pci": "0000:2f:00.0", "memory_mib": 16384, "name": "S60"}


def by_library(hardware: Hardware) -> EnflameDriver:
    return EnflameDriver(hardware.options(libraries=(hardware.path("libefml.so"),)))


@pytest.mark.parametrize(
    ("library", "tool", "problem"),
    [("libefml.so", "none", "the driver reports it as not healthy"), ("none.so", "efsmi", "efsmi reports it as not healthy")],
)
async def test_loss_and_recovery_of_health_are_reported(hardware: Hardware, library: str, tool: str, problem: str) -> None:
    hardware.has(ONE, TWO)
    driver = EnflameDriver(hardware.options(libraries=(hardware.path(library),), tools=(hardware.path(tool),)))
    async with Watching(driver, await driver.discover()) as watching:
        hardware.has({**ONE, "health": 0}, TWO)
        assert await watching.next() == Health("GCU-U1", False, problem)
        hardware.has(ONE, TWO)
        assert await watching.next() == Health("GCU-U1", True)


async def test_a_card_off_the_bus_is_unhealthy_until_it_is_back(hardware: Hardware) -> None:
    hardware.has(ONE, TWO)
    hardware.tree("sys/bus/pci/devices/0000:2e:00.0/enflame/gcu0/dev", "237:0")
    hardware.tree("sys/bus/pci/devices/0000:2f:00.0/enflame/gcu1/dev", "237:1")
    driver = by_library(hardware)
    async with Watching(driver, await driver.discover()) as watching:
        shutil.rmtree(hardware.folder / "sys/bus/pci/devices/0000:2f:00.0")
        assert await watching.next() == Health("GCU-U2", False, "its PCI device is gone")
        hardware.tree("sys/bus/pci/devices/0000:2f:00.0/enflame/gcu1/dev", "237:1")
        assert await watching.next() == Health("GCU-U2", True)


async def test_a_card_that_stops_answering_is_reported_with_the_librarys_error(hardware: Hardware) -> None:
    hardware.has(ONE, TWO)
    driver = by_library(hardware)
    async with Watching(driver, await driver.discover()) as watching:
        hardware.has(ONE, {**TWO, "code": 254})
        assert await watching.next() == Health("GCU-U2", False, "EfmlGetDevMem returned 254 (failed)")
        hardware.has(ONE, TWO)
        assert await watching.next() == Health("GCU-U2", True)


async def test_a_discovery_during_a_watch_disturbs_neither(hardware: Hardware) -> None:
    """The library's shutdown is not counted: the watch finds it closed, and opens it again."""
    hardware.has(ONE, TWO)
    driver = by_library(hardware)
    cards = await driver.discover()
    async with Watching(driver, cards) as watching:
        hardware.has({**ONE, "health": 0}, TWO)
        assert not (await watching.next()).healthy
        for _ in range(5):
            assert len(await driver.discover()) == 2
        hardware.has(ONE, TWO)
        assert await watching.next() == Health("GCU-U1", True)


async def test_a_card_with_another_id_is_matched_by_its_pci_address(hardware: Hardware) -> None:
    """The library breaks; the table names cards by serial number, and they are the same cards."""
    hardware.has(ONE, TWO)
    script = f"""[ "$1" = -q ] && exit 2\nexec '{hardware.path("efsmi")}'"""
    options = hardware.options(libraries=(hardware.path("libefml.so"),), tools=(hardware.tool("table-efsmi", script),))
    driver = EnflameDriver(options)
    cards = await driver.discover()
    hardware.has(ONE, init=6)
    async with Watching(driver, cards) as watching:
        assert await watching.next() == Health("GCU-U2", False, "is no longer listed")


async def test_repeated_failed_checks_make_cards_unhealthy_until_one_succeeds(hardware: Hardware) -> None:
    hardware.has(ONE)
    driver = by_library(hardware)
    cards = await driver.discover()
    hardware.has(ONE, init=6)
    async with Watching(driver, cards) as watching:
        health = await watching.next()
        assert (health.id, health.healthy) == ("GCU-U1", False)
        assert health.problem.startswith("its health check failed 3 times in a row: ")
        hardware.has(ONE)
        assert await watching.next() == Health("GCU-U1", True)
