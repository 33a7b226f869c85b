"""Kunlun's cards become unhealthy and recover, by library, table and /proc."""

import os

import pytest

from accelshare.vendors.drivers.driver import Health
from accelshare.vendors.drivers.kunlun import KunlunDriver
from tests.fakes.hardware import Hardware, Watching

CARD = {"sn": "SN1", "pci": "0000:86:00.0", "memory_mib": 8064, "model": 0}
FIRST, SECOND, ALONE = "SN1-chip0", "SN1-chip1", "SN1"


async def test_changes_of_the_librarys_state_are_reported(hardware: Hardware) -> None:
    hardware.has(CARD, CARD)
    driver = KunlunDriver(hardware.options(libraries=(hardware.path("libxpuml.so"),)))
    async with Watching(driver, await driver.discover()) as watching:
        hardware.has(CARD, {**CARD, "state": 207})
        assert await watching.next() == Health(SECOND, False, "state ERROR")
        hardware.has({**CARD, "code": 15}, CARD)
        assert {await watching.next(), await watching.next()} == {
            Health(SECOND, True),
            Health(FIRST, False, "xpumlDeviceGetState returned 15 (XPU is lost)"),
        }
        hardware.has(CARD, CARD)
        assert await watching.next() == Health(FIRST, True)


async def test_changes_of_the_tables_state_are_reported(hardware: Hardware) -> None:
    hardware.has(CARD, CARD)
    driver = KunlunDriver(hardware.options(tools=(hardware.path("xpu_smi"),)))
    async with Watching(driver, await driver.discover()) as watching:
        hardware.has({**CARD, "letter": "E"}, CARD)
        assert await watching.next() == Health(FIRST, False, "xpu_smi shows state 'E'")
        hardware.has(CARD, CARD)
        assert await watching.next() == Health(FIRST, True)


async def test_a_card_that_was_unhealthy_at_discovery_recovers(hardware: Hardware) -> None:
    """Differences from discovery are reported first, also if the card is healthy again."""
    hardware.has({**CARD, "state": 207})
    driver = KunlunDriver(hardware.options(libraries=(hardware.path("libxpuml.so"),)))
    cards = await driver.discover()
    hardware.has(CARD)
    async with Watching(driver, cards) as watching:
        assert await watching.next() == Health(ALONE, True)


async def test_proc_is_read_instead_of_running_the_tool(hardware: Hardware) -> None:
    """Once the cards are known the tool is not needed, so it may break."""
    hardware.has(CARD)
    hardware.tree("proc/xpu/dev0/state", "NORMAL")
    driver = KunlunDriver(hardware.options(tools=(hardware.path("xpu_smi"),)))
    cards = await driver.discover()
    hardware.tool("xpu_smi", "exit 1")
    async with Watching(driver, cards) as watching:
        hardware.tree("proc/xpu/dev0/state", "ERROR")
        health = await watching.next()
        assert (health.healthy, health.problem.endswith("/xpu/dev0/state is 'ERROR'")) == (False, True)
        hardware.tree("proc/xpu/dev0/state", "RUNNING")
        assert await watching.next() == Health(ALONE, True)


@pytest.mark.parametrize("way", ["libxpuml.so", "xpu_smi"])
async def test_a_card_that_vanishes_is_unhealthy(hardware: Hardware, way: str) -> None:
    hardware.has(CARD, CARD)
    driver = KunlunDriver(hardware.options(libraries=(hardware.path(way),), tools=(hardware.path(way),)))
    async with Watching(driver, await driver.discover()) as watching:
        hardware.has(CARD)
        assert await watching.next() == Health(SECOND, False, "is no longer listed")


async def test_repeated_failed_checks_make_cards_unhealthy_until_one_succeeds(hardware: Hardware) -> None:
    hardware.has(CARD)
    driver = KunlunDriver(hardware.options(libraries=(hardware.path("libxpuml.so"),)))
    cards = await driver.discover()
    hardware.has(CARD, init=9)
    async with Watching(driver, cards) as watching:
        health = await watching.next()
        assert (health.id, health.healthy) == (ALONE, False)
        assert health.problem.startswith("its health check failed 3 times in a row: ")
        hardware.has(CARD)
        assert await watching.next() == Health(ALONE, True)


async def test_a_proc_file_that_hangs_stops_neither_the_loop_nor_the_watch(hardware: Hardware) -> None:
    """A pipe without a writer hangs its reader, as a stuck kernel module does."""
    hardware.has(CARD)
    driver = KunlunDriver(hardware.options(libraries=(hardware.path("libxpuml.so"),)))
    cards = await driver.discover()
    (hardware.folder / "proc/xpu/dev0").mkdir(parents=True)
    os.mkfifo(hardware.folder / "proc/xpu/dev0/state")
    watcher = KunlunDriver(hardware.options(libraries=(hardware.path("libxpuml.so"),), timeout_s=0.05))
    async with Watching(watcher, cards) as watching:
        health = await watching.next()
    assert not health.healthy
    assert "gave no answer within" in health.problem or "an earlier call still hangs" in health.problem
