"""The processes on each card, as NVML tells them."""

from collections.abc import AsyncIterator

import pytest

from accelshare.vendors.drivers.driver import CardProcess, DriverError, ReportsProcesses
from accelshare.vendors.drivers.nvidia import NvidiaDriver
from tests.fakes.hardware import Hardware

LIBRARY = "libnvidia-ml.so.1"
A, B = "GPU-a", "GPU-b"
MIB = 2**20


@pytest.fixture
async def driver(hardware: Hardware) -> AsyncIterator[NvidiaDriver]:
    hardware.has({"uuid": A, "memory_mib": 16384}, {"uuid": B, "memory_mib": 16384})
    driver = NvidiaDriver(hardware.options(libraries=(hardware.path(LIBRARY),)))
    assert isinstance(driver, ReportsProcesses)
    yield driver
    await driver.close_processes()


async def test_each_card_has_its_own_processes(driver: NvidiaDriver, hardware: Hardware) -> None:
    hardware.runs((A, 100, 512, 40), (A, 101, 64, -1), (B, 100, 32, -1))
    found = await driver.processes([A, B])
    assert found == {
        A: (CardProcess(100, 512 * MIB, 0.4), CardProcess(101, 64 * MIB, 0.0)),
        B: (CardProcess(100, 32 * MIB, 0.0),),
    }


async def test_a_card_without_processes_has_none(driver: NvidiaDriver) -> None:
    assert await driver.processes([A]) == {A: ()}


async def test_processes_come_and_go_while_the_library_stays_open(driver: NvidiaDriver, hardware: Hardware) -> None:
    for pids in ([], [1], list(range(1, 300)), [7]):
        hardware.runs(*((A, pid, 1, 1) for pid in pids))
        assert [process.pid for process in (await driver.processes([A]))[A]] == pids


async def test_memory_that_is_not_available_is_not_a_number(driver: NvidiaDriver, hardware: Hardware) -> None:
    hardware.runs((A, 100, -1, 5))
    assert (await driver.processes([A]))[A] == (CardProcess(100, None, 0.05),)


async def test_a_process_that_computes_and_draws_is_counted_once(driver: NvidiaDriver, hardware: Hardware) -> None:
    hardware.runs((A, 100, 512, -1), type="C+G")
    assert (await driver.processes([A]))[A] == (CardProcess(100, 512 * MIB, 0.0),)


async def test_a_process_that_only_draws_is_counted(driver: NvidiaDriver, hardware: Hardware) -> None:
    hardware.runs((A, 100, 512, -1), type="G")
    assert [process.pid for process in (await driver.processes([A]))[A]] == [100]


async def test_more_than_a_hundred_percent_is_no_utilisation(driver: NvidiaDriver, hardware: Hardware) -> None:
    hardware.runs((A, 100, 1, 4000000))
    assert (await driver.processes([A]))[A] == (CardProcess(100, MIB, 0.0),)


async def test_a_card_that_does_not_tell_is_left_out(driver: NvidiaDriver, hardware: Hardware) -> None:
    hardware.has({"uuid": A, "memory_mib": 16384, "processes": 0}, {"uuid": B, "memory_mib": 16384, "utilisation": 0})
    hardware.runs((B, 100, 1, 50))
    assert await driver.processes([A, B]) == {B: (CardProcess(100, MIB, None),)}


async def test_without_samples_accounting_tells_the_utilisation_where_it_is_on(driver: NvidiaDriver, hardware: Hardware) -> None:
    """The average over the life of a process; one that accounting does not know has no utilisation rather than 0."""
    old = {"memory_mib": 16384, "utilisation": 0}
    hardware.has({"uuid": A, **old, "accounting": 1}, {"uuid": B, **old, "accounting": 0})
    hardware.runs((A, 100, 1, 50), (A, 101, 1, -1), (A, 102, 1, 4000000), (B, 100, 1, 50))
    assert await driver.processes([A, B]) == {
        A: (CardProcess(100, MIB, 0.5), CardProcess(101, MIB, None), CardProcess(102, MIB, None)),
        B: (CardProcess(100, MIB, None),),
    }


async def test_a_card_that_is_gone_does_not_hide_the_other(driver: NvidiaDriver, hardware: Hardware) -> None:
    hardware.has({"uuid": A, "memory_mib": 16384, "code": 15}, {"uuid": B, "memory_mib": 16384})
    assert await driver.processes([A, B]) == {B: ()}


async def test_a_library_that_crashes_is_an_error_and_is_asked_again(driver: NvidiaDriver, hardware: Hardware) -> None:
    cards = ({"uuid": A, "memory_mib": 16384},)
    hardware.has(*cards, crash="nvmlDeviceGetComputeRunningProcesses_v2")
    with pytest.raises(DriverError, match="SIGSEGV"):
        await driver.processes([A])
    hardware.has(*cards)
    assert await driver.processes([A]) == {A: ()}


async def test_a_host_without_the_library_is_an_error(hardware: Hardware) -> None:
    with pytest.raises(DriverError):
        await NvidiaDriver(hardware.options()).processes([A])
