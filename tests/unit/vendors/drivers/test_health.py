"""From checks to changes of health: what is reported, and what failed checks mean."""

from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

import pytest

from accelshare.vendors.drivers.driver import (
    Driver,
    DriverError,
    Health,
    HostCard,
    Listing,
    QueryFailed,
    ReportsUsage,
    SkippedDevice,
)
from accelshare.vendors.drivers.enflame import EnflameDriver
from accelshare.vendors.drivers.health import FAILURES_BEFORE_UNHEALTHY, LastUsage, health_changes, health_in
from accelshare.vendors.drivers.kunlun import KunlunDriver
from accelshare.vendors.drivers.nvidia import NvidiaDriver
from accelshare.vendors.drivers.static import StaticDriver
from accelshare.vendors.drivers.stream import StreamDriver
from tests.fakes.build import build
from tests.fakes.hardware import Hardware, Watching

A = HostCard(0, "a", 16384, pci="0000:01:00.0")
B = HostCard(1, "b", 16384, pci="0000:02:00.0")
WELL = {"a": Health("a", True), "b": Health("b", True)}
A_ILL = {**WELL, "a": Health("a", False, "ill")}
BLIND = DriverError(["tool: not found on PATH"])
BROKEN = QueryFailed("hangs")
UNREADABLE = OSError(5, "Input/output error")


class EndOfScriptError(Exception):
    """All checks of a test are done."""


async def reported(*looks: Mapping[str, Health] | Exception) -> list[Health]:
    """All that is reported about A and B during these checks, one after the other."""
    script = iter(looks)

    async def look() -> Mapping[str, Health]:
        seen = next(script, None)
        if seen is None:
            raise EndOfScriptError
        if isinstance(seen, Exception):
            raise seen
        return seen

    async def pause() -> None:
        pass

    reports = []
    try:
        async with aclosing(health_changes([A, B], look, pause)) as stream:  # type: ignore[type-var]
            async for health in stream:
                reports.append(health)
    except EndOfScriptError:
        pass
    return reports


async def test_unchanged_health_is_not_reported() -> None:
    assert await reported(WELL, WELL) == []


async def test_a_change_is_reported_once_and_recovery_too() -> None:
    assert await reported(WELL, A_ILL, A_ILL, WELL, WELL) == [Health("a", False, "ill"), Health("a", True)]


async def test_another_reason_is_a_change() -> None:
    assert [health.problem for health in await reported(A_ILL, {"a": Health("a", False, "worse")})] == ["ill", "worse"]


async def test_a_card_that_was_not_checked_keeps_its_health() -> None:
    assert await reported(A_ILL, {}) == [Health("a", False, "ill")]


async def test_a_card_that_is_not_watched_is_not_reported() -> None:
    assert await reported({"z": Health("z", False, "whose?")}) == []


async def test_a_single_failed_check_changes_nothing() -> None:
    assert await reported(BLIND, BROKEN, WELL, UNREADABLE, BLIND, A_ILL) == [Health("a", False, "ill")]


async def test_failed_checks_in_a_row_make_every_card_unhealthy_once() -> None:
    reports = await reported(*[BLIND] * (FAILURES_BEFORE_UNHEALTHY + 3), WELL)
    assert [(health.id, health.healthy) for health in reports] == [("a", False), ("b", False), ("a", True), ("b", True)]
    assert reports[0].problem == "its health check failed 3 times in a row: tool: not found on PATH"


def test_a_card_that_is_not_listed_is_unhealthy_with_the_reason_if_there_is_one() -> None:
    assert health_in([A, B], Listing((A,)))["b"] == Health("b", False, "is no longer listed")
    assert health_in([A, B], Listing((A,), (SkippedDevice(1, "lost"),)))["b"] == Health("b", False, "lost")


def test_a_card_with_another_id_is_matched_by_its_own_pci_address() -> None:
    renamed = HostCard(0, "other", 16384, pci=A.pci)
    assert health_in([A, B], Listing((renamed, B))) == WELL
    twin = HostCard(2, "twin", 16384, pci=A.pci)
    assert not health_in([A, B], Listing((renamed, twin, B)))["a"].healthy
    nowhere = HostCard(0, "n", 16384)
    assert not health_in([nowhere], Listing((HostCard(0, "m", 16384),)))["n"].healthy


UUIDS = [f"GPU-0000000{number}-1111-2222-3333-0123456789ab" for number in (1, 2)]
NVIDIA = tuple({"uuid": uuid, "memory_mib": 16127, "minor": number} for number, uuid in enumerate(UUIDS))
KUNLUN = tuple({"sn": f"SN{n}", "pci": f"0000:8{n}:00.0", "memory_mib": 8064, "model": 0} for n in (1, 2))
ENFLAME = tuple(
    {"uuid": f"U{n}", "sn": f"AAAAAAAAAA{n}", "pci": f"0000:2{n}:00.0", "memory_mib": 16384, "name": "S60"} for n in (1, 2)
)


async def used(
    driver: Driver, hardware: Hardware, cards: tuple[dict[str, object], ...], ill: dict[str, object]
) -> dict[str, int]:
    """What is reported once the second card uses 512 MiB; the first becomes unhealthy then, which shows that a check was made."""
    hardware.has(*cards)
    found = await driver.discover()
    async with Watching(driver, found) as watching:
        hardware.has({**cards[0], **ill}, {**cards[1], "used_mib": 512})
        assert not (await watching.next()).healthy
        assert isinstance(driver, ReportsUsage)
        return dict(driver.used_mib())


async def test_nvml_reports_usage_except_of_a_lost_card(tmp_path: Path) -> None:
    hardware = Hardware.copied(build("nvidia", tmp_path / "built"), tmp_path)
    driver = NvidiaDriver(hardware.options(libraries=(hardware.path("libnvidia-ml.so.1"),)))
    assert await used(driver, hardware, NVIDIA, {"code": 15}) == {UUIDS[1]: 512}


@pytest.mark.parametrize("way", ["library", "table"])
async def test_kunluns_library_and_its_table_report_usage(tmp_path: Path, way: str) -> None:
    hardware = Hardware.copied(build("kunlun", tmp_path / "built"), tmp_path)
    library, tool = ("libxpuml.so", "none") if way == "library" else ("none.so", "xpu_smi")
    driver = KunlunDriver(hardware.options(libraries=(hardware.path(library),), tools=(hardware.path(tool),)))
    assert await used(driver, hardware, KUNLUN, {"state": 207, "letter": "E"}) == {"SN1": 0, "SN2": 512}


@pytest.mark.parametrize(("library", "ill"), [("libefml.so", {"health": 0}), ("libefml-newer.so", {"code": 15})])
async def test_both_apis_of_enflames_library_report_usage(tmp_path: Path, library: str, ill: dict[str, object]) -> None:
    hardware = Hardware.copied(build("enflame", tmp_path / "built"), tmp_path)
    driver = EnflameDriver(hardware.options(libraries=(hardware.path(library),)))
    assert (await used(driver, hardware, ENFLAME, ill))["GCU-U2"] == 512


def test_drivers_without_usage_do_not_claim_to_report_it() -> None:
    assert not issubclass(StaticDriver, ReportsUsage)
    assert not issubclass(StreamDriver, ReportsUsage)


def test_usage_that_a_check_does_not_report_becomes_unknown() -> None:
    use = LastUsage()
    use.keep({"a": Health("a", True, used_mib=7), "b": Health("b", True, used_mib=0)})
    assert use.mib == {"a": 7, "b": 0}
    use.keep({"a": Health("a", True), "b": Health("b", True, used_mib=3)})
    assert use.mib == {"b": 3}


def test_a_change_of_usage_is_no_change_of_health() -> None:
    assert Health("a", True, used_mib=7) == Health("a", True, used_mib=8)
