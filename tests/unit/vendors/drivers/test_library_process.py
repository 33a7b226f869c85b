"""Vendors' libraries in a helper process: whatever one does, the agent's own process keeps running."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from accelshare.vendors.drivers.driver import Driver, DriverError, Listing, QueryFailed
from accelshare.vendors.drivers.enflame import EnflameDriver
from accelshare.vendors.drivers.kunlun import KunlunDriver
from accelshare.vendors.drivers.library_process import LibraryProcess
from accelshare.vendors.drivers.nvidia import NvidiaDriver
from tests.fakes.build import LIBRARIES, build
from tests.fakes.hardware import Hardware, Watching, is_running

CARD = {
    "uuid": "GPU-00000001-1111-2222-3333-0123456789ab",
    "sn": "SN1",
    "memory_mib": 8064,
    "minor": 0,
    "action": 0,
    "pci": "0000:3b:00.0",
}
# By vendor: its driver, and a function that every check calls.
VENDORS: dict[str, tuple[Callable[..., Driver], str]] = {
    "nvidia": (NvidiaDriver, "nvmlDeviceGetMemoryInfo"),
    "kunlun": (KunlunDriver, "xpumlDeviceGetState"),
    "enflame": (EnflameDriver, "EfmlGetDevMem"),
}
every_vendor = pytest.mark.parametrize("vendor", VENDORS)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {vendor: build(vendor, tmp_path_factory.mktemp(vendor)) for vendor in VENDORS}


@pytest.fixture
def hardware(built: dict[str, Path], vendor: str, tmp_path: Path) -> Hardware:
    return Hardware.copied(built[vendor], tmp_path)


def driver_of(vendor: str, hardware: Hardware, *, timeout_s: float = 10.0) -> Driver:
    library = next(iter(LIBRARIES[vendor]))
    return VENDORS[vendor][0](hardware.options(libraries=(hardware.path(library),), timeout_s=timeout_s))


def helpers() -> set[int]:
    """The helper processes of this process that live."""
    own, found = str(os.getpid()), set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:
            continue  # it has ended meanwhile
        if b"accelshare.vendors.drivers.library_main" in words and words[-1] == own.encode() and is_running(int(process.name)):
            found.add(int(process.name))
    return found


@every_vendor
async def test_a_library_that_crashes_is_an_error_of_that_vendor(vendor: str, hardware: Hardware) -> None:
    driver = driver_of(vendor, hardware)
    hardware.has(CARD, crash=VENDORS[vendor][1])
    with pytest.raises(DriverError, match="crashed with SIGSEGV during listing"):
        await driver.discover()
    hardware.has(CARD)
    assert len(await driver.discover()) == 1


@every_vendor
async def test_a_hanging_library_is_killed(vendor: str, hardware: Hardware) -> None:
    driver = driver_of(vendor, hardware, timeout_s=0.2)
    hardware.has(CARD, hang=VENDORS[vendor][1])
    with pytest.raises(DriverError, match=r"gave no answer within 0\.2 s and was killed"):
        await driver.discover()
    assert helpers() == set()
    hardware.has(CARD)
    assert len(await driver_of(vendor, hardware).discover()) == 1


@every_vendor
async def test_a_crash_during_a_watch_is_noticed_and_recovered_from(vendor: str, hardware: Hardware) -> None:
    hardware.has(CARD)
    driver = driver_of(vendor, hardware)
    async with Watching(driver, await driver.discover()) as watching:
        hardware.has(CARD, crash=VENDORS[vendor][1])
        health = await watching.next()
        assert not health.healthy
        assert "crashed with SIGSEGV" in health.problem
        hardware.has(CARD)
        assert (await watching.next()).healthy
    assert helpers() == set()


@every_vendor
async def test_a_cancelled_watch_ends_its_helper(vendor: str, hardware: Hardware) -> None:
    """Also one that hangs in its library at that moment."""
    hardware.has(CARD)
    driver = driver_of(vendor, hardware, timeout_s=60)
    watching = Watching(driver, await driver.discover())
    next_change = asyncio.create_task(watching.next())
    async with asyncio.timeout(60):
        while not helpers():
            await asyncio.sleep(0.01)
    hardware.has(CARD, hang=VENDORS[vendor][1])
    next_change.cancel()
    await asyncio.gather(next_change, return_exceptions=True)
    assert helpers() == set()


async def test_text_that_a_library_prints_is_not_read_as_an_answer(tmp_path: Path) -> None:
    """A loaded library that writes to standard output, as some do, does no harm."""
    source = tmp_path / "noise.c"
    source.write_text('#include <stdio.h>\n__attribute__((constructor)) static void n(void) { puts("{\\"result\\": 1}"); }\n')
    library = tmp_path / "libnoise.so"
    compiler = await asyncio.create_subprocess_exec("gcc", "-shared", "-fPIC", "-o", str(library), str(source))
    assert await compiler.wait() == 0
    process = LibraryProcess("noise", timeout_s=10)
    with pytest.raises(QueryFailed, match="has no function nvmlErrorString"):
        await process.call("open", "nvml", str(library), into=Listing)
    await process.close()


async def test_only_listed_calls_are_made(tmp_path: Path) -> None:
    process = LibraryProcess("calls", timeout_s=10)
    with pytest.raises(QueryFailed, match="'close' cannot be called"):
        await process.call("close", into=Listing)
    await process.close()


async def test_a_helper_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from accelshare.vendors.drivers.library_process import LibraryProcess\n"
        "async def main():\n"
        "    p = LibraryProcess('x', timeout_s=30)\n"
        "    try:\n"
        "        await p.call('nothing', into=type(None))\n"
        "    except Exception:\n"
        "        print(p._process.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    async with asyncio.timeout(60):
        helper = int(await parent.stdout.readline())
        assert is_running(helper)
        parent.kill()
        await parent.wait()
        while is_running(helper):
            await asyncio.sleep(0.01)
